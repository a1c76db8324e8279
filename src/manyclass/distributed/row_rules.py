"""How a server moves its parameters by a gradient: SGD with momentum, or Adagrad, as the row optimizers do."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np

from manyclass._backend import core
from manyclass._row_rule import RowRule
from manyclass._validation import Ids
from manyclass.distributed.messages import Floats
from manyclass.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ServerRule:
    """An optimizer of a server.

    kind: "sgd" or "adagrad". lr: the learning rate. eps, weight_decay: as in torch.optim.
    momentum: of SGD. Dense parameters have it as in torch.optim.SGD; rows, which are touched now and then, make the
        whole move lr / (1 - momentum) · gradient at once, as `manyclass.torch.RowSGD` does, unless lazy=True.
    decay: the learning rate is multiplied by it with every update that all workers together have made.
    """

    kind: Literal["sgd", "adagrad"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.0
    lazy: bool = False
    weight_decay: float = 0.0
    eps: float = 1e-10
    decay: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ("sgd", "adagrad"):
            raise ConfigError(f"kind={self.kind!r} is no rule of a server; choose 'sgd' or 'adagrad'")
        if not 0 < self.lr < np.inf:
            raise ConfigError(f"lr={self.lr} is not a positive number; give one")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum={self.momentum} is outside of [0, 1); give less than 1")
        if self.kind == "adagrad" and self.momentum:
            raise ConfigError(f"momentum={self.momentum} with Adagrad, which has none; give 0")
        if not 0 < self.decay <= 1:
            raise ConfigError(f"decay={self.decay} is outside of (0, 1]; give 1 for none")

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Return the rule that `to_json` gave."""
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def at(self, version: int, scale: float, *, rows: bool) -> RowRule:
        """Return one step. version: updates made so far; scale: of the gradient; rows: whether touched now and then."""
        rate = self.lr * self.decay**version
        if self.kind == "adagrad":
            return RowRule.adagrad(lr=rate, time=1, weight_decay=self.weight_decay, eps=self.eps, scale=scale)
        at_once = rows and not self.lazy
        return RowRule.sgd(
            lr=rate / (1 - self.momentum) if at_once else rate,
            momentum=0.0 if at_once else self.momentum,
            weight_decay=self.weight_decay,
            scale=scale,
        )

    def continues(self, saved: "ServerRule") -> bool:
        """Return whether states that were saved under a rule are of use to this one.

        One kind's momentum is no other kind's sum of squares: taken for it, parameters become NaN.
        """
        return saved.kind == self.kind

    def new_state(self, values: Floats, *, rows: bool) -> Floats | None:
        """Return the state beside these parameters, zeros that take memory only where they are touched; or none."""
        return np.zeros_like(values) if self.at(0, 1.0, rows=rows).uses_first else None


def move_rows(rule: RowRule, weight: Floats, state: Floats | None, ids: Ids, gradient: Floats, threads: int) -> None:
    """Take one step on rows `ids`, strictly ascending, of weight (rows, width) in place."""
    core().update_rows(rule, weight, state, None, ids, np.ascontiguousarray(gradient, np.float32), threads)


def move_all(rule: RowRule, values: Floats, state: Floats | None, gradient: Floats) -> None:
    """Take one step on all of an array in place, whatever its shape."""
    flat = values.reshape(1, -1)
    of_state = None if state is None else state.reshape(1, -1)
    core().update_rows(rule, flat, of_state, None, np.zeros(1, np.int64), gradient.reshape(1, -1), 1)
