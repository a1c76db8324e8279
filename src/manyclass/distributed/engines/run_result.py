"""What a run came to."""

from dataclasses import dataclass, field
from typing import NamedTuple

from manyclass.distributed.engines.monitor import Summary


class Point(NamedTuple):
    """The accuracy after so many batches, and seconds."""

    steps: int
    seconds: float
    accuracy: float


@dataclass
class RunResult:
    """The last look at a run, and its accuracy on the way; `learned` is whether it reached what the job asks for."""

    summary: Summary
    curve: list[Point] = field(default_factory=list)
    learned: bool = True

    @property
    def accuracy(self) -> float | None:
        """The last accuracy, if the job has anything to evaluate on."""
        return self.curve[-1].accuracy if self.curve else None
