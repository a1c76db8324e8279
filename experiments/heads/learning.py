"""Accuracy against steps: does a head learn what full softmax learns? Same data, same order, same steps.

Every run has one thread, and as many run at a time, in processes of their own, as there are threads: they finish
sooner than one after the other with all threads.
"""

import statistics
import time
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

import manyclass.torch as mct
from experiments.datasets import wordnet
from experiments.datasets.missing import MissingDataError
from experiments.demo.task import Identification, trunk
from experiments.frame.stages import Run
from experiments.heads.apart import run_apart
from experiments.heads.contestants import make
from experiments.heads.sizes import LAZY, TOUCHED_FIRST, LearningSizes

HIDDEN, BATCH, RATE, MOMENTUM = 128, 64, 0.1, 0.9
DECAY = 0.1  # the learning rate's share that is left at the end
TRUNKS = ("plain", "normalized")
LITERAL_CANDIDATES = 100  # of the paper's literal rule


@dataclass(frozen=True)
class LearningRun:
    """One line of a figure. head: an output layer, or what is special about it."""

    task: str
    trunk: str
    head: str
    seed: int = 0


def learning_runs(sizes: LearningSizes, heads: Iterable[str]) -> list[LearningRun]:
    """Return every head on every task and trunk with every seed."""
    return [
        LearningRun(task, kind, head, seed)
        for task in sizes.tasks for kind in TRUNKS for seed in sizes.seeds for head in heads
    ]  # fmt: skip


def momentum_runs(sizes: LearningSizes) -> list[LearningRun]:
    """Return the runs with lazy momentum; those with momentum at once are among the others."""
    return [LearningRun(sizes.tasks[-1], kind, LAZY) for kind in TRUNKS]


def refresh_runs(sizes: LearningSizes) -> list[LearningRun]:
    """Return the default refresh, and rounds of several lengths."""
    names = [TOUCHED_FIRST, *(f"round robin in {period}" for period in sizes.periods)]
    return [LearningRun(sizes.tasks[-1], "normalized", name) for name in names]


def run_learning(run: Run, stage: str, sizes: LearningSizes, runs: list[LearningRun]) -> None:
    """Write a record for each run that the records lack; what needs WordNet is left out where it is missing."""
    left = [plan for plan in runs if not run.records.done(stage=stage, kind="result", **asdict(plan))]
    if any(plan.task == "wordnet" for plan in left):
        try:
            with run.progress(100, "% of the texts") as show:
                wordnet.wordnet(lambda share, text: show(100 * share, text))  # into the cache, before all need it
        except MissingDataError as missing:
            run.console.print(f"  left out: {missing}", highlight=False, markup=False)
            record = {"stage": stage, "kind": "missing", "reason": missing.reason, "install": missing.install}
            if not run.records.done(**record):
                run.records.write(**record)
            left = [plan for plan in left if plan.task != "wordnet"]
    told = {"classes": sizes.classes, "steps": sizes.steps, "batch": BATCH, "tests": sizes.tests}
    with run.progress(len(left), "runs") as show:
        calls = [partial(learn, plan, sizes) for plan in left]
        runs_apart = run_apart(calls, threads=1, at_once=run.options.threads, fresh=False)
        for completed, (number, found) in enumerate(runs_apart, start=1):
            plan = left[number]
            run.records.write(stage=stage, kind="result", **asdict(plan), **told, **found)
            show(completed, f"{plan.task}, {plan.trunk}, {plan.head}: {found['curve'][-1][1]:.3f}")


def learn(plan: LearningRun, sizes: LearningSizes) -> dict[str, Any]:
    """Return the curve of one run as (step, accuracy), seconds of training, and what the head's meter read."""
    warnings.simplefilter("ignore", mct.ApproximationWarning)  # so few classes that full softmax is affordable
    task = task_of(plan.task, sizes.classes, plan.seed)
    inputs, labels = task.test(sizes.tests)
    torch.manual_seed(plan.seed)
    below = trunk(task.centres.shape[1], HIDDEN, plan.trunk)
    head = head_of(plan.head, sizes)
    momentum: Any = "lazy" if plan.head == LAZY else "at_once"
    parameters = [*below.parameters(), *head.parameters()]
    optimizer = mct.RowSGD(parameters, lr=RATE, momentum=MOMENTUM, row_momentum=momentum)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, DECAY ** (1 / sizes.steps))  # as in the paper
    meter = getattr(head, "meter", None)
    curve, seconds, recalls = [], 0.0, []
    for step in range(sizes.steps):
        start = time.perf_counter()
        x, y = task.batch(step, BATCH)
        loss = head(below(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        seconds += time.perf_counter() - start
        if (step + 1) % sizes.every == 0:
            curve.append((step + 1, accuracy(below, head, inputs, labels)))
            if meter is not None:
                recalls.append(meter.report().get("recall_at_10", 0.0))
    readings = {} if meter is None else meter.report()
    mean_recall = statistics.mean(recalls) if recalls else None
    return {"curve": curve, "seconds": seconds, "readings": readings, "mean_recall": mean_recall}


def task_of(name: str, classes: int, seed: int) -> Identification:
    """Return random points, or glosses of WordNet spread over all of them as centres, scaled to unit variance."""
    if name == "random points":
        return Identification.random(classes, 128, seed)
    rows = wordnet.wordnet().rows
    centres = torch.from_numpy(rows[:: len(rows) // classes][:classes].copy())
    return Identification(centres / centres.std(), seed=seed)


def head_of(name: str, sizes: LearningSizes) -> mct.OutputHead:
    """Return the output layer of a run."""
    settings: dict[str, Any] = {"candidates": LITERAL_CANDIDATES} if name == "wta" else {}
    if name.startswith("round robin"):
        period = int(name.rpartition(" ")[2])
        settings = {"refresh_steps": period, "touched_first": False, "refresh_limit": sizes.classes}
    if name == TOUCHED_FIRST or name.startswith("round robin"):
        settings["mined_examples"] = BATCH  # who never looks anything up has nothing to refresh
    special = name in (TOUCHED_FIRST, LAZY) or name.startswith("round robin")
    return make("candidate" if special else name, HIDDEN, sizes.classes, **settings)


def accuracy(below: torch.nn.Module, head: mct.OutputHead, inputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of examples whose exact best class is right, whatever the head approximates."""
    below.eval(), head.eval()
    weight, bias = head.get_parameter("weight"), head.get_parameter("bias")
    right = 0
    with torch.no_grad():
        for begin in range(0, len(inputs), 2000):
            part = slice(begin, begin + 2000)
            logits = torch.nn.functional.linear(below(inputs[part]), weight, bias)
            right += int((logits.argmax(1) == labels[part]).sum())
    below.train(), head.train()
    return right / len(inputs)
