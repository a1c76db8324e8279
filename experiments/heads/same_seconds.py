"""Accuracy against seconds and steps on the task of the demo: every head trains for the same seconds."""

import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

import manyclass.torch as mct
from experiments.demo.task import Identification, trunk
from experiments.frame.stages import Run
from experiments.heads.apart import run_apart
from experiments.heads.contestants import make
from experiments.heads.sizes import SecondsSizes
from manyclass.training.loop import train
from manyclass.training.metrics import Accuracy, Metrics

HIDDEN, BATCH, RATE, MOMENTUM = 128, 256, 0.3, 0.9
SKEW = 1.0  # classes are as unequal as words: a few are met all the time, most of them hardly ever


def run_same_seconds(run: Run, sizes: SecondsSizes, heads: Iterable[str]) -> None:
    """Write a record per head and seed that the records lack, one run at a time, with all threads."""
    key = {"stage": "demo", "kind": "result", "budget": sizes.seconds}
    plans = [(head, seed) for seed in sizes.seeds for head in heads]
    left = [(head, seed) for head, seed in plans if not run.records.done(head=head, seed=seed, **key)]
    told = {"classes": sizes.classes, "features": sizes.features, "hidden": HIDDEN, "batch": BATCH}
    with run.progress(len(left), "runs") as show:
        calls = [partial(learn, head, seed, sizes) for head, seed in left]
        runs_apart = run_apart(calls, run.options.threads, fresh=not run.options.quick)
        for completed, (number, found) in enumerate(runs_apart, start=1):
            head, seed = left[number]
            run.records.write(**key, head=head, seed=seed, **told, tests=sizes.tests, **found)
            show(completed, f"{head}: {found['curve'][-1][2]:.3f} after {found['steps']:,} steps")


def learn(name: str, seed: int, sizes: SecondsSizes) -> dict[str, Any]:
    """Return the curve of one run as (step, seconds, accuracy), steps in all, and how candidates were found."""
    warnings.simplefilter("ignore", mct.ApproximationWarning)  # a quick run has few classes
    task = Identification.random(sizes.classes, sizes.features, seed, SKEW)
    torch.manual_seed(seed)
    below = trunk(sizes.features, HIDDEN)
    # A tree over the true frequencies is the best case of a tree.
    settings = {"counts": (task.frequencies * 1e9).long()} if name == "hierarchical" else {}
    head = make(name, HIDDEN, sizes.classes, **settings)
    optimizer = mct.RowSGD([*below.parameters(), *head.parameters()], lr=RATE, momentum=MOMENTUM)
    done = train(
        (below, head),
        lambda step: task.batch(step, BATCH),
        optimizer,
        seconds=sizes.seconds,  # evaluations cost none of them
        evaluate_on=[task.test(sizes.tests)],
        evaluate_every=sizes.every,
        metrics=Metrics([Accuracy()]),
        progress=False,
    )
    curve = [(point["step"], point["seconds"], point["accuracy"]) for point in done.evaluations]
    return {"curve": curve, "steps": done.step, "seconds": done.seconds, "pipeline": getattr(head, "pipeline", None)}
