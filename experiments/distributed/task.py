"""The demo's task as a job, with the same output layer for the plain loop and for workers."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyclass.distributed import HeadSettings, Job, ServerRule
from manyclass.distributed.job import JobText

if TYPE_CHECKING:
    from experiments.demo.task import Identification

ROOT = Path(__file__).parents[2]  # from which workers in other processes import this


@dataclass(frozen=True, kw_only=True)
class TaskSizes:
    """Sizes of the task; all else is as in the demo."""

    classes: int = 20_000
    features: int = 64
    hidden: int = 128
    batch: int = 256
    steps: int = 1500
    tests: int = 4000
    rate: float = 0.3
    momentum: float = 0.9
    mined_every: int = 4
    seed: int = 0

    def task(self) -> "Identification":
        """Return the data."""
        from experiments.demo.task import Identification

        return Identification.random(self.classes, self.features, self.seed, 1.0)

    def trunk(self) -> Any:
        """Return the network below the classes, the same whenever it is asked for."""
        import torch

        from experiments.demo.task import trunk

        torch.manual_seed(self.seed)
        return trunk(self.features, self.hidden)

    def job(self) -> Job:
        """Return the job."""
        task, rule = self.task(), ServerRule(lr=self.rate, momentum=self.momentum)
        head = HeadSettings(classes=self.classes, features=self.hidden, rule=rule, mined_every=self.mined_every,
                            seed=self.seed)  # fmt: skip
        return Job(
            trunk=self.trunk,
            batches=lambda number: task.batch(number, self.batch),
            head=head,
            trunk_rule=rule,
            steps=self.steps,
            test=lambda: [task.test(self.tests)],
        )

    def text(self) -> JobText:
        """Return the job as text, for workers in other processes: they import this module."""
        return JobText(
            "the demo's task",
            f"from experiments.distributed.task import TaskSizes\ndef job(quick=False):\n    return {self!r}.job()\n",
        )
