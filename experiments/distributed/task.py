"""The demo's task as a job, with the same output layer for the plain loop and for workers."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyclass.distributed import HeadSettings, Job, ServerRule
from manyclass.distributed.job import JobText

if TYPE_CHECKING:
    from experiments.demo.task import Identification

ROOT = Path(__file__).parents[2]

# Of the rows, and of the trunk. Adagrad, as those found who first did Downpour SGD (Dean et al., 2012); momentum beside
# it, which adds up with what many workers compute at the same point.
RULES = {
    "adagrad": (ServerRule(kind="adagrad", lr=0.1), ServerRule(kind="adagrad", lr=0.05)),
    "momentum": (ServerRule(lr=0.3, momentum=0.9), ServerRule(lr=0.3, momentum=0.9)),
}


def let_workers_import_this() -> None:
    """Have processes that this one starts, those of Ray included, find the experiments."""
    os.environ["PYTHONPATH"] = str(ROOT)


@dataclass(frozen=True, kw_only=True)
class TaskSizes:
    """Sizes of the task; all else is as in the demo."""

    classes: int = 20_000
    features: int = 64
    hidden: int = 128
    batch: int = 256
    steps: int = 1500
    tests: int = 20_000
    rule: str = "adagrad"
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

    def head(self) -> HeadSettings:
        """Return the output layer."""
        rows, _ = RULES[self.rule]
        return HeadSettings(classes=self.classes, features=self.hidden, rule=rows, mined_every=self.mined_every,
                            seed=self.seed)  # fmt: skip

    def job(self) -> Job:
        """Return the job."""
        task, (_, trunk) = self.task(), RULES[self.rule]
        return Job(
            trunk=self.trunk,
            batches=lambda number: task.batch(number, self.batch),
            head=self.head(),
            trunk_rule=trunk,
            steps=self.steps,
            test=lambda: [task.test(self.tests)],
        )

    def text(self) -> JobText:
        """Return the job as text, for workers in other processes: they import this module."""
        return JobText(
            "the demo's task",
            f"from experiments.distributed.task import TaskSizes\ndef job(quick=False):\n    return {self!r}.job()\n",
        )
