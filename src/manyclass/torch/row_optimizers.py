"""Optimizers that move only the rows a sparse gradient touches, and treat dense gradients as torch.optim does.

Lazy semantics: a step reads and writes the touched rows and their states; every other row keeps its bits. So momentum
of an untouched row neither decays nor moves the row, and weight decay shrinks a row only when it is touched.
A step costs time in proportion to the touched rows; states are as large as the parameter, but the operating
system provides their memory page by page as rows are first touched (after `load_state_dict` or a dense gradient: all).

Parameters of bfloat16 take half the memory, and so do their states. Steps are computed in float32 and written by
stochastic rounding: up or down by chance, right on average, where rounding to nearest would lose every step smaller
than 1/512 of a weight. `seed` is that of the dice: same seed and steps, same bits, whatever the threads. A number that
bfloat16 cannot hold stays at its largest. Dense gradients go the way of torch, which rounds to nearest.
"""

from typing import Any

import torch
from torch import Tensor

from manyclass._row_rule import RowRule
from manyclass._validation import check_count
from manyclass.errors import ConfigError
from manyclass.torch.row_step import Group, RowStep, RowSteps, untouched_zeros

__all__ = ["RowAdagrad", "RowAdam", "RowSGD"]


class RowSGD(RowSteps, torch.optim.SGD):
    """SGD with momentum on touched rows; all arguments of `torch.optim.SGD`, row_momentum, and seed.

    Dense gradients: exactly `torch.optim.SGD`. For a touched row w with sparse gradient g:

        g = g + weight_decay·w
        w = w - lr·(1 - dampening)/(1 - momentum)·g                             row_momentum="at_once", the default
        m = momentum·m + (1 - dampening)·g;  w = w - lr·m                       row_momentum="lazy"

    Momentum moves a dense weight by lr/(1 - momentum)·g in all, most of it within a few steps. A row that is touched
    once in hundreds of steps would wait that long for the larger part of its move under "lazy", and learn late
    (docs/training.md has the curves); "at_once" makes the whole move when the gradient comes, and needs no state.
    "lazy" keeps m per row (zero before the first touch; nesterov: w - lr·(g + momentum·m)): rows touched at every step
    get what `torch.optim.SGD` gives, except that with dampening torch leaves it out of the very first step.
    The paper's decay of the learning rate is `ExponentialLR`.
    """

    row_states = frozenset({"momentum_buffer"})

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        *args: Any,
        row_momentum: str = "at_once",
        seed: int = 0,
        **settings: Any,
    ) -> None:
        if row_momentum not in ("at_once", "lazy"):
            raise ConfigError(f"row_momentum={row_momentum!r} is unknown; choose 'at_once' or 'lazy'")
        super().__init__(params, lr, *args, **settings)
        self._add_setting("row_momentum", row_momentum)
        self._add_setting("seed", check_count("seed", seed, low=0))

    def takes_states(self, names: set[str]) -> bool:
        """Return whether states of these names are this optimizer's: it may have none."""
        return names - {"step"} <= self.row_states

    def _row_step(self, group: Group, parameter: Tensor) -> RowStep:
        at_once = (
            group.get("row_momentum", self.defaults["row_momentum"]) == "at_once"
        )  # absent from torch's own groups
        rate, momentum, dampening = float(group["lr"]), float(group["momentum"]), float(group["dampening"])
        if at_once and momentum:
            if not momentum < 1:
                raise ConfigError(f"momentum={momentum} never comes to rest; give less than 1, or row_momentum='lazy'")
            rate = rate * (1 - dampening) / (1 - momentum)
        rule = RowRule.sgd(
            lr=rate,
            momentum=0.0 if at_once else momentum,
            dampening=0.0 if at_once else dampening,
            weight_decay=float(group["weight_decay"]),
            nesterov=bool(group["nesterov"]) and not at_once,
            scale=-1.0 if group["maximize"] else 1.0,
        )
        if not rule.uses_first:
            return RowStep(rule, None, None)
        state = self.state[parameter]
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = untouched_zeros(parameter)
        return RowStep(rule, state["momentum_buffer"], None)


class RowAdagrad(RowSteps, torch.optim.Adagrad):
    """Adagrad on touched rows; all arguments of `torch.optim.Adagrad`, and seed.

    Dense gradients: exactly `torch.optim.Adagrad`. For a touched row w with sparse gradient g, at step t of the
    parameter:

        g = g + weight_decay·w                    (torch's own refuses weight decay for sparse gradients)
        s = s + g²                                (initial_accumulator_value before the first touch)
        w = w - lr/(1 + (t - 1)·lr_decay) · g/(√s + eps)

    Unlike its parent it makes a parameter's state at the first step, not at construction.
    """

    row_states = frozenset({"sum"})

    def __init__(self, params: Any, lr: float | Tensor = 1e-2, *args: Any, seed: int = 0, **settings: Any) -> None:
        # The parent checks the settings, but would also fill a state of every parameter's size: it gets a stand-in.
        super().__init__([torch.zeros(())], lr, *args, **settings)
        torch.optim.Optimizer.__init__(self, params, self.defaults)
        self._add_setting("seed", check_count("seed", seed, low=0))

    def share_memory(self) -> None:
        """Make all states and move them to shared memory."""
        for group in self.param_groups:
            for parameter in group["params"]:
                self._made_state(parameter)
        super().share_memory()

    def _made_state(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["sum"] = untouched_zeros(parameter, fill=self.defaults["initial_accumulator_value"])
        return state

    def _row_step(self, group: Group, parameter: Tensor) -> RowStep:
        state = self._made_state(parameter)
        rule = RowRule.adagrad(
            lr=float(group["lr"]),
            time=float(state["step"]) + 1,
            lr_decay=float(group["lr_decay"]),
            weight_decay=float(group["weight_decay"]),
            eps=float(group["eps"]),
            scale=-1.0 if group["maximize"] else 1.0,
        )
        return RowStep(rule, state["sum"], None)


class RowAdam(RowSteps, torch.optim.AdamW):
    """Adam with decoupled weight decay on touched rows; arguments of `torch.optim.AdamW`, weight_decay=0 unless given.

    Dense gradients: exactly `torch.optim.AdamW`. For a touched row w with sparse gradient g, at step t of the
    parameter (steps are counted for the parameter as a whole, as `torch.optim.SparseAdam` does):

        m = β₁·m + (1 - β₁)·g
        v = β₂·v + (1 - β₂)·g²
        w = (1 - lr·weight_decay)·w - lr/(1 - β₁ᵗ) · m/(√v/√(1 - β₂ᵗ) + eps)

    Not with amsgrad, capturable or differentiable.
    """

    row_states = frozenset({"exp_avg", "exp_avg_sq"})

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *args: Any,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, *args, **settings)
        self._add_setting("seed", check_count("seed", seed, low=0))

    def _row_step(self, group: Group, parameter: Tensor) -> RowStep:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = untouched_zeros(parameter)
            state["exp_avg_sq"] = untouched_zeros(parameter)
        first, second = group["betas"]
        rule = RowRule.adam(
            lr=float(group["lr"]),
            time=float(state["step"]) + 1,
            betas=(float(first), float(second)),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            scale=-1.0 if group["maximize"] else 1.0,
        )
        return RowStep(rule, state["exp_avg"], state["exp_avg_sq"])
