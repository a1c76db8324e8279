"""What a shard owns and a checkpoint keeps: rows, biases, states, the ledger of pushes, and the version."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from manyclass._validation import Ids
from manyclass.distributed.messages import Floats, Sender
from manyclass.distributed.placement import Placement
from manyclass.distributed.row_rules import ServerRule, move_rows
from manyclass.distributed.servers.push_ledger import PushLedger
from manyclass.distributed.settings import HeadSettings

BLOCK = 4096  # classes whose first rows are drawn together
STREAM = 6_000_000
ARRAYS = ("weight", "bias", "weight_state", "bias_state")


@dataclass
class ShardRows:
    """Rows of the shuffled positions first … first + len(weight), and everything that moves with them."""

    rule: ServerRule
    first: int
    weight: Floats
    bias: Floats | None
    weight_state: Floats | None = None
    bias_state: Floats | None = None
    version: int = 0  # pushes applied
    ledger: PushLedger = field(default_factory=PushLedger)

    @classmethod
    def new(cls, settings: HeadSettings, placement: Placement, number: int) -> "ShardRows":
        """Return first rows, drawn as nn.Linear does; the same for a class whatever the number of shards."""
        first, end = int(placement.starts[number]), int(placement.starts[number + 1])
        weight = np.empty((end - first, settings.features), np.float32)
        bias = np.empty(end - first, np.float32) if settings.bias else None
        bound = settings.features**-0.5
        for block in range(first // BLOCK, -(-end // BLOCK)):
            begin, stop = max(first, block * BLOCK), min(end, (block + 1) * BLOCK)
            generator = np.random.Generator(np.random.Philox(key=[settings.seed, STREAM + block]))
            drawn = generator.random((BLOCK, settings.features + 1), np.float32)[begin - block * BLOCK :][
                : stop - begin
            ]
            drawn = (2 * drawn - 1) * np.float32(bound)
            weight[begin - first : stop - first] = drawn[:, :-1]
            if bias is not None:
                bias[begin - first : stop - first] = drawn[:, -1]
        return cls.of(settings.rule, first, weight, bias)

    @classmethod
    def of(cls, rule: ServerRule, first: int, weight: Floats, bias: Floats | None) -> "ShardRows":
        """Return rows that have not moved yet."""
        of_bias = None if bias is None else rule.new_state(bias, rows=True)
        return cls(rule, first, weight, bias, rule.new_state(weight, rows=True), of_bias)

    def move(
        self,
        sender: Sender,
        scale: float,
        rows: Ids,
        gradients: Floats,
        bias_gradients: Floats | None,
        threads: int = 1,
    ) -> None:
        """Take one step on rows, strictly ascending, and note the push."""
        rule = self.rule.at(self.version, scale, rows=True)
        if len(rows):
            move_rows(rule, self.weight, self.weight_state, rows, gradients, threads)
            if self.bias is not None and bias_gradients is not None:
                state = None if self.bias_state is None else self.bias_state[:, None]
                move_rows(rule, self.bias[:, None], state, rows, bias_gradients[:, None], 1)
        self.ledger.note(sender)
        self.version += 1

    def copy(self) -> "ShardRows":
        """Return a copy that does not move."""
        return self._with(lambda part: part.copy(), ledger=PushLedger.from_json(self.ledger.to_json()))

    def under(self, rule: ServerRule) -> "ShardRows":
        """Return these rows under another rule: states that it lacks begin anew, those it does not use are dropped.

        Under another kind of rule all of them begin anew.
        """
        if rule == self.rule:
            return self
        keeps = rule.continues(self.rule)
        fresh = ShardRows.of(rule, self.first, self.weight, self.bias)
        for name in ("weight_state", "bias_state"):
            if keeps and getattr(fresh, name) is not None and getattr(self, name) is not None:
                setattr(fresh, name, getattr(self, name))
        fresh.version, fresh.ledger = self.version, self.ledger
        return fresh

    def part(self, first: int, end: int) -> "ShardRows":
        """Return the rows of some shuffled positions."""
        cut = slice(first - self.first, end - self.first)
        return self._with(lambda part: part[cut], first=first)

    @staticmethod
    def joined(parts: list["ShardRows"]) -> "ShardRows":
        """Return parts that follow each other as one; workers have to join anew before it takes their pushes."""
        ledger = PushLedger.after([part.ledger for part in parts])
        whole: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ARRAYS
            if getattr(parts[0], name) is not None
        }
        return replace(parts[0], **whole, version=max(part.version for part in parts), ledger=ledger)

    def arrays(self) -> dict[str, Floats]:
        """Return the arrays that there are, by name."""
        return {name: part for name in ARRAYS if (part := getattr(self, name)) is not None}

    def _with(self, change: Callable[[Floats], Floats], **others: Any) -> "ShardRows":
        changed: dict[str, Any] = {name: change(part) for name, part in self.arrays().items()}
        return replace(self, **changed, **others)
