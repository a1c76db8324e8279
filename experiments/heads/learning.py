"""Accuracy against steps: does a head learn what full softmax learns? Same data, same order, same steps."""

import os
import statistics
import subprocess
import sys
import time
import warnings
from functools import partial

import numpy as np
import torch

import manyclass.torch as mct
from experiments.demo.task import Identification, trunk
from experiments.index.datasets import BY_NAME
from experiments.index.records import Log

CLASSES, HIDDEN, BATCH, STEPS, EVERY, TESTS = 10_000, 128, 64, 3000, 250, 20_000
DECAY = 0.1  # the learning rate's share that is left at the end
SEEDS = (0, 1, 2)
TASKS = ("random points", "wordnet")
TRUNKS = ("plain", "normalized")
PAPER = "paper's literal rule"
HEADS = {
    "full softmax": mct.FullSoftmax,
    "default": mct.CandidateSoftmax,
    PAPER: partial(mct.CandidateSoftmax, paper_exact=True, candidates=100),
}
REFRESH = {f"round robin in {period}": {"refresh_steps": period, "touched_first": False, "refresh_limit": 10_000}
           for period in (10, 100, 1000, 10_000)} | {"touched first (default)": {}}  # fmt: skip


def task_of(name: str, seed: int) -> Identification:
    """Return random points, or every twelfth gloss of WordNet as centres, scaled to unit variance."""
    if name == "random points":
        return Identification.random(CLASSES, 128, seed)
    rows = BY_NAME["wordnet"]().rows
    centres = torch.from_numpy(np.array(rows[:: len(rows) // CLASSES][:CLASSES], np.float32))
    return Identification(centres / centres.std(), seed=seed)


def accuracy(below: torch.nn.Module, head: mct.OutputHead, inputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of test examples whose exact best class is right, whatever the head approximates."""
    below.eval(), head.eval()
    right = 0
    with torch.no_grad():
        for begin in range(0, len(inputs), 2000):
            part = slice(begin, begin + 2000)
            logits = torch.nn.functional.linear(below(inputs[part]), head.weight, head.bias)
            right += int((logits.argmax(1) == labels[part]).sum())
    below.train(), head.train()
    return right / len(inputs)


def learn(task_name: str, kind: str, make: object, seed: int, row_momentum: str) -> dict[str, object]:
    """Return the curve of one run: steps, accuracies, seconds of training, the meter's last readings."""
    warnings.simplefilter("ignore", mct.ApproximationWarning)
    task = task_of(task_name, seed)
    test_inputs, test_labels = task.test(TESTS)
    torch.manual_seed(seed)
    below = trunk(task.centres.shape[1], HIDDEN, kind)
    head = make(HIDDEN, CLASSES)  # type: ignore[operator]
    optimizer = mct.RowSGD([*below.parameters(), *head.parameters()], lr=0.1, momentum=0.9, row_momentum=row_momentum)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, DECAY ** (1 / STEPS))  # exponential, as in the paper
    curve, seconds, recalls = [], 0.0, []
    for step in range(STEPS):
        start = time.perf_counter()
        x, y = task.batch(step, BATCH)
        loss = head(below(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        seconds += time.perf_counter() - start
        if (step + 1) % EVERY == 0:
            curve.append((step + 1, accuracy(below, head, test_inputs, test_labels)))
            if hasattr(head, "meter"):
                recalls.append(head.meter.report().get("recall_at_10", 0.0))
    readings = head.meter.report() if hasattr(head, "meter") else {}
    mean_recall = statistics.mean(recalls) if recalls else None
    return {"curve": curve, "seconds": seconds, "readings": readings, "mean_recall": mean_recall}


def runs(stage: str) -> list[tuple[str, str, str, int]]:
    """Return (task, trunk, head, seed) of every run of a stage."""
    if stage == "learning":
        everything = [(task, kind, head, seed) for task in TASKS for kind in TRUNKS for seed in SEEDS for head in HEADS]
        return [run for run in everything if run[2] != PAPER or run[3] == 0]  # it collapses with every seed alike
    if stage == "momentum":
        return [("wordnet", kind, "lazy momentum", 0) for kind in TRUNKS]  # the learning stage has it at once
    return [("wordnet", "normalized", head, 0) for head in REFRESH]


def run(log: Log, stage: str) -> None:
    """Run what the log lacks, two runs at a time with one thread each: they finish sooner than one with two."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "experiments.heads.learning", stage, str(log.path), str(share), str(log.threads)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for share in range(log.threads)
    ]
    codes = [worker.wait() for worker in workers]
    if any(codes):
        raise SystemExit(f"a run of stage {stage} failed; start it again to go on")


def main() -> None:
    """Do every n-th run of a stage."""
    stage, path, share, shares = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    log = Log(path, threads=1)
    for task, kind, head, seed in runs(stage)[share::shares]:
        key = {"stage": stage, "task": task, "trunk": kind, "head": head, "seed": seed}
        if log.done(**key):
            continue
        make = HEADS.get(head) or partial(mct.CandidateSoftmax, **REFRESH.get(head, {}))
        found = learn(task, kind, make, seed, "lazy" if stage == "momentum" else "at_once")
        log.write(**key, classes=CLASSES, steps=STEPS, batch=BATCH, tests=TESTS, **found)
        print(f"{task}, {kind}, {head}, seed {seed}: {found['curve'][-1][1]:.4f}", flush=True)  # type: ignore[index]


if __name__ == "__main__":
    main()
