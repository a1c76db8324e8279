"""Time of one training step of a head alone: forward, backward, update, refresh. `make bench-heads`."""

import gc
import math
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from functools import partial

import torch
from torch import Tensor

import manyclass.torch as mct
from experiments.index.records import Log

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
FULL_LIMIT = 2_000_000  # classes: beyond, weights, gradient, momentum and logits of the full softmax do not fit here
MEASURED, WARM_UP = 12, 4
MOMENTUM = {"lr": 0.1, "momentum": 0.9}


def contestants(candidates: int) -> dict[str, tuple[object, object]]:
    """Return name → (head, optimizer); lazy momentum, which has the work of the full softmax's, unless it says so."""
    wta = partial(mct.CandidateSoftmax, candidates=candidates, meter_every=0)
    lazy = partial(mct.RowSGD, **MOMENTUM, row_momentum="lazy")
    plain = partial(mct.RowSGD, lr=0.1)
    return {
        "shared": (wta, lazy),
        "shared, momentum at once": (wta, partial(mct.RowSGD, **MOMENTUM)),
        "shared, plain fused": (partial(wta, row_update="fused", row_optimizer=plain), None),
        "own": (partial(wta, shared=False, tail=0), lazy),
        "own, plain fused": (partial(wta, shared=False, tail=0, row_update="fused", row_optimizer=plain), None),
        "hierarchical": (mct.HierarchicalSoftmax, lazy),
        "sampled": (mct.SampledSoftmax, lazy),
        "full softmax": (mct.FullSoftmax, partial(torch.optim.SGD, **MOMENTUM)),
    }


def batches(head: mct.OutputHead, classes: int, features: int, batch: int) -> list[tuple[Tensor, Tensor]]:
    """Return batches whose inputs lie near the rows of their classes, as they do in a network that has learned."""
    generator = torch.Generator().manual_seed(1)
    drawn = []
    for _ in range(MEASURED + WARM_UP):
        y = torch.randint(classes, (batch,), generator=generator)
        noise = torch.randn(batch, features, generator=generator)
        known = head.weight.detach()[y.clamp(max=len(head.weight) - 1)]
        drawn.append((2 * features**0.5 * known + noise, y))
    return drawn


def measure(name: str, classes: int, features: int, batch: int, candidates: int) -> dict[str, float]:
    """Return the median milliseconds of a step by part, the classes it touches, and bytes per class."""
    warnings.simplefilter("ignore", mct.ApproximationWarning)
    torch.manual_seed(0)
    make, optimize = contestants(candidates)[name]
    head = make(features, classes)  # type: ignore[operator]
    optimizer = optimize(head.parameters()) if optimize else None  # type: ignore[operator]
    steps: list[tuple[float, float, float]] = []
    for x, y in batches(head, classes, features, batch):
        x.requires_grad_()
        start = time.perf_counter()
        loss = head(x, y)
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
            if not steps:  # what a long run has behind it: the system hands out a state's memory at its first touch
                _touch(optimizer)
        steps.append((forward - start, backward - forward, time.perf_counter() - backward))
    kept = steps[WARM_UP:] if len(steps) > WARM_UP else steps
    parts = {
        part: 1000 * statistics.median(step[i] for step in kept)
        for i, part in enumerate(("forward", "backward", "update"))
    }
    distinct = head.meter.report().get("distinct_classes", 0.0) if hasattr(head, "meter") else 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        **{f"{part}_ms": value for part, value in parts.items()},
        "step_ms": 1000 * statistics.median(sum(step) for step in kept),
        "distinct_classes": distinct,
        "peak_bytes_per_class": peak / classes,
    }


def _touch(optimizer: torch.optim.Optimizer) -> None:
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()


def run(log: Log) -> None:
    """Measure all heads at all sizes, each in a process of its own, so that peak memory is its own."""
    for classes in SIZES:
        for name in contestants(1):
            setting = {"classes": classes, "features": 128, "batch": 256, "candidates": 300}
            _measure_apart(log, "steps", name, setting)


def run_paper_setting(log: Log) -> None:
    """Measure the paper's setting for its second experiment: 3000 of 1.2 million classes."""
    for name in contestants(1):
        setting = {"classes": 1_200_000, "features": 512, "batch": 32, "candidates": 3000}
        _measure_apart(log, "paper_setting", name, setting)


def _measure_apart(log: Log, stage: str, name: str, setting: dict[str, int]) -> None:
    if log.done(stage=stage, head=name, **setting):
        return
    if name == "full softmax" and setting["classes"] > FULL_LIMIT:
        return
    gc.collect()
    command = [sys.executable, "-m", "experiments.heads.steps", stage, name, str(log.path), str(log.threads)]
    numbers = [str(setting[key]) for key in ("classes", "features", "batch", "candidates")]
    subprocess.run([*command, *numbers], check=True, env={**os.environ, "OMP_NUM_THREADS": str(log.threads)})


def main() -> None:
    """Measure one head at one size and log it."""
    stage, name, path, threads, *numbers = sys.argv[1:]
    classes, features, batch, candidates = map(int, numbers)
    torch.set_num_threads(int(threads))
    found = measure(name, classes, features, batch, candidates)
    setting = {"classes": classes, "features": features, "batch": batch, "candidates": candidates}
    floor = (candidates + 1) / math.log2(classes)
    Log(path, int(threads)).write(stage=stage, head=name, **setting, **found, row_floor=floor)
    print(f"{name}, {classes:,} classes: {found['step_ms']:.1f} ms")


if __name__ == "__main__":
    main()
