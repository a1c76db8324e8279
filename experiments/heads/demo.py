"""Accuracy against steps and against seconds on the demo's task, every head, the same seconds each."""

import os
import subprocess
import sys
import warnings
from functools import partial

import torch

import manyclass.torch as mct
from experiments.demo.demo import BATCH, HIDDEN, MOMENTUM, RATE, SKEW, full, hierarchical, wta
from experiments.demo.task import Identification, trunk
from experiments.index.records import Log
from manyclass.training.loop import train
from manyclass.training.metrics import Accuracy, Metrics

CLASSES, FEATURES, TESTS = 100_000, 64, 1000
SECONDS, EVERY = 20.0, 2.5  # of training: evaluations cost none of them
SEEDS = (0, 1, 2)
HEADS = {
    "default": wta,
    "own candidates": partial(wta, shared=False),
    "paper's literal rule": partial(wta, paper_exact=True),
    "hierarchical": hierarchical,
    "sampled": lambda task: mct.SampledSoftmax(HIDDEN, len(task.centres)),
    "full softmax": full,
}


def learn(name: str, seed: int) -> dict[str, object]:
    """Return the curve of one run as (step, seconds, accuracy), steps in all, and how candidates were found."""
    warnings.simplefilter("ignore", mct.ApproximationWarning)
    task = Identification.random(CLASSES, FEATURES, seed, SKEW)
    torch.manual_seed(seed)
    below, head = trunk(FEATURES, HIDDEN), HEADS[name](task)
    optimizer = mct.RowSGD([*below.parameters(), *head.parameters()], lr=RATE, momentum=MOMENTUM)
    done = train(
        (below, head),
        lambda step: task.batch(step, BATCH),
        optimizer,
        seconds=SECONDS,
        evaluate_on=[task.test(TESTS)],
        evaluate_every=EVERY,
        metrics=Metrics([Accuracy()]),
        progress=False,
    )
    curve = [(point["step"], point["seconds"], point["accuracy"]) for point in done.evaluations]
    return {"curve": curve, "steps": done.step, "seconds": done.seconds, "pipeline": getattr(head, "pipeline", None)}


def run(log: Log) -> None:
    """Do what the log lacks, one run at a time, each in a process of its own with all threads."""
    for seed in SEEDS:
        for name in HEADS:
            if not log.done(stage="demo", head=name, seed=seed, budget=SECONDS):
                command = [sys.executable, "-m", "experiments.heads.demo", name, str(seed)]
                environment = {**os.environ, "OMP_NUM_THREADS": str(log.threads)}
                subprocess.run([*command, str(log.path), str(log.threads)], check=True, env=environment)


def main() -> None:
    """Do one run and log it."""
    name, seed, path, threads = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    torch.set_num_threads(threads)
    found = learn(name, seed)
    setting = {"classes": CLASSES, "features": FEATURES, "hidden": HIDDEN, "batch": BATCH, "tests": TESTS}
    Log(path, threads).write(stage="demo", head=name, seed=seed, budget=SECONDS, **setting, **found)
    print(f"{name}, seed {seed}: {found['curve'][-1][2]:.3f} after {found['steps']} steps", flush=True)  # type: ignore[index]


if __name__ == "__main__":
    main()
