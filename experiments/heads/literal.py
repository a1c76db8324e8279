"""Why the paper's literal rule learns here and not there: two suspicions, tested on features that are made for it.

Under that rule an example is compared with its own K candidates alone. A class that was met has a row near the example
that it was met by. The first suspicion: the rule learns where the next example of the class finds that row again. That
can be told before any training: each class has one of its examples as its row, and another is asked for K candidates by
the paper's votes. The second: it fails where features have a large common part, so that whoever was met lately is found
by everybody and pushed down. Features are made with a common part and noise of several lengths, apart from each other;
the rule and full softmax learn from them for as many steps.

What came of it: the common part decides, finding again does not. The tasks of the other stages have their numbers
beside what their heads reached.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import manyclass.torch as mct
from experiments.datasets.missing import MissingDataError
from experiments.frame.stages import Run
from experiments.heads.literal_parts import STAGE
from experiments.heads.sizes import LiteralSizes, Sizes
from experiments.heads.tasks import Where, open_task
from experiments.heads.tasks.task import Task
from manyclass import ClassIndex, HashConfig

K = 30
RATE, MOMENTUM, BATCH, TESTS = 0.1, 0.9, 64, 1000
HEADS = ("full", "wta")
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class MadeFeatures:
    """Features of a network that does not change: common part + centre of the class + noise, all of one length each.

    common, noise: their lengths, where a centre's is one.
    """

    classes: int
    features: int
    common: float
    noise: float
    seed: int

    @cached_property
    def centres(self) -> Tensor:
        """What all examples of a class have in common, (classes, features)."""
        generator = torch.Generator().manual_seed(self.seed)
        drawn: Tensor = torch.randn(1 + self.classes, self.features, generator=generator) * self.features**-0.5
        return self.common * drawn[0] + drawn[1:]

    def examples(self, number: int, labels: Tensor) -> Tensor:
        """Return examples of these classes, those of batch `number`."""
        generator = torch.Generator().manual_seed((self.seed + 1) * 1_000_003 + number)
        noise: Tensor = torch.randn(len(labels), self.features, generator=generator) * self.features**-0.5
        return self.centres[labels] + self.noise * noise

    def batch(self, number: int, size: int) -> tuple[Tensor, Tensor]:
        """Return batch `number`."""
        generator = torch.Generator().manual_seed((self.seed + 1) * 7_000_003 + number)
        labels = torch.randint(self.classes, (size,), generator=generator)
        return self.examples(number, labels), labels


def found_again(rows: Floats, queries: Floats, candidates: int = K, threads: int = 1) -> float:
    """Return the share of queries whose K best by votes hold the row of the same number."""
    index = ClassIndex.build(rows, config=HashConfig.paper(), threads=threads)
    found = index.shortlist(queries, min(candidates, len(rows)), threads=threads)
    return float((found == np.arange(len(rows))[:, None]).any(1).mean())


def run_literal(run: Run, sizes: Sizes) -> None:
    """Write what the records lack: made features by common part, noise and seed, then the tasks' numbers."""
    torch.set_num_threads(run.options.threads)
    warnings.simplefilter("ignore", mct.ApproximationWarning)  # so few classes that a batch touches many of them
    literal = sizes.literal
    settings = [(common, noise, seed) for common in literal.commons for noise in literal.noises for seed in sizes.seeds]
    with run.progress(len(settings) + len(sizes.tasks), "settings") as show:
        for place, (common, noise, seed) in enumerate(settings):
            key = {"stage": STAGE, "kind": "result", "common": common, "noise": noise, "seed": seed}
            show(place, f"common part {common:g}, noise {noise:g}")
            if not run.records.done(**key):
                made = MadeFeatures(literal.classes, literal.features, common, noise, seed)
                run.records.write(**key, **_measured(made, literal, run.options.threads))
        for place, name in enumerate(sizes.tasks):
            show(len(settings) + place, f"the task {name}")
            _predict_task(run, name, sizes)


def _measured(made: MadeFeatures, literal: LiteralSizes, threads: int) -> dict[str, Any]:
    """Return the number, and what both heads reach."""
    every = torch.arange(made.classes)
    first, second = (made.examples(-number, every).numpy() for number in (1, 2))
    scores = {head: _trained(made, head, literal.steps) for head in HEADS}
    told = {"classes": made.classes, "features": made.features, "steps": literal.steps, "candidates": K}
    return told | {"found_again": found_again(first, second, threads=threads), **scores}


def _trained(made: MadeFeatures, name: str, steps: int) -> float:
    """Return the accuracy after so many steps, judged by the exact best class."""
    torch.manual_seed(made.seed)
    head: Any = (
        mct.FullSoftmax(made.features, made.classes)
        if name == "full"
        else mct.WTASoftmax(made.features, made.classes, candidates=K)
    )
    optimizer = mct.RowSGD(head.parameters(), lr=RATE, momentum=MOMENTUM)
    for step in range(steps):
        x, labels = made.batch(step, BATCH)
        optimizer.zero_grad()
        head(x, labels).backward()
        optimizer.step()
    x, labels = made.batch(-3, TESTS)
    with torch.no_grad():
        best = torch.nn.functional.linear(x, head.weight, head.bias).argmax(1)
    return float((best == labels).float().mean())


def _predict_task(run: Run, name: str, sizes: Sizes) -> None:
    """Write the number of a task, from its features before any training."""
    key = {"stage": STAGE, "kind": "task", "task": name}
    if run.records.done(**key):
        return
    try:
        task = open_task(name, sizes.tasks[name], Where(run.options.quick, run.options.data), 0)
    except MissingDataError as missing:
        run.console.print(f"  left out: {missing}", highlight=False, markup=False)
        return
    rows, queries = two_of_each(task, sizes.literal.task_examples)
    if len(rows) > K:
        again = found_again(rows, queries, threads=run.options.threads)
        run.records.write(**key, found_again=again, classes=len(rows), candidates=K)


@torch.no_grad()
def two_of_each(task: Task, examples: int) -> tuple[Floats, Floats]:
    """Return features of one example and of another of each class that is met twice in so many examples."""
    torch.manual_seed(0)
    trunk = task.trunk()
    trunk.train()  # normalised over the batch, as at the first step
    first: dict[int, Tensor] = {}
    second: dict[int, Tensor] = {}
    for number in range(max(1, examples // 500)):
        inputs, targets = task.batch(number, 500)
        for x, label in zip(trunk(inputs), targets.reshape(len(targets), -1)[:, 0].tolist(), strict=True):
            if label in first:
                second.setdefault(label, x)
            else:
                first[label] = x
    met = sorted(second)
    if not met:
        return np.zeros((0, task.features), np.float32), np.zeros((0, task.features), np.float32)
    return tuple(torch.stack([some[label] for label in met]).float().numpy() for some in (first, second))  # type: ignore[return-value]
