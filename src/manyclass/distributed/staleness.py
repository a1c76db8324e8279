"""What is done about gradients of parameters that have moved meanwhile: nothing, waiting, or smaller steps.

The staleness of a push is the number of pushes that its shard applied between the read and the write.
"""

from dataclasses import dataclass

from manyclass._validation import check_count
from manyclass.errors import ConfigError

__all__ = ["Staleness"]


@dataclass(frozen=True)
class Staleness:
    """A policy. Make one with `parse`, of "unbounded", "bounded:4" or "scaled:8", or by hand.

    lead: steps that a worker may be ahead of the slowest one; it waits rather than take one more. None: no limit.
    free: a push of staleness t moves rows by 1 / (1 + t - free) of its step where t is more than `free`. None: always
        all of it.
    """

    lead: int | None = None
    free: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("lead", self.lead), ("free", self.free)):
            if value is not None:
                check_count(name, value, low=0)

    @classmethod
    def parse(cls, text: str) -> "Staleness":
        """Return the policy of a text, as a command line has it."""
        kind, _, number = text.partition(":")
        if kind == "unbounded" and not number:
            return cls()
        if kind in ("bounded", "scaled") and (number.isdecimal() or (not number and kind == "scaled")):
            return cls(lead=int(number)) if kind == "bounded" else cls(free=int(number or 0))
        raise ConfigError(f"staleness={text!r} is unknown; give 'unbounded', 'bounded:STEPS' or 'scaled:FREE'")

    def __str__(self) -> str:
        if self.lead is not None:
            return f"bounded:{self.lead}"
        return "unbounded" if self.free is None else f"scaled:{self.free}"

    def scale(self, staleness: int) -> float:
        """Return by how much a step of this staleness is multiplied."""
        return 1.0 if self.free is None else 1.0 / (1 + max(0, staleness - self.free))

    def must_wait(self, clock: int, slowest: int) -> bool:
        """Return whether a worker that has finished `clock` steps may not start another yet."""
        return self.lead is not None and clock - slowest > self.lead
