"""Time of one training step of a head: forward, backward, update, refresh; alone, and with a small network below."""

import re
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import manyclass.torch as mct
from experiments.demo.task import trunk
from experiments.frame.stages import Run
from experiments.heads.apart import run_apart
from experiments.heads.contestants import make
from experiments.heads.sizes import StepSizes

FULL_LIMIT = 2_000_000  # classes: beyond, weights, gradient, momentum and logits of the full softmax do not fit here
MEASURED, WARM_UP = 12, 4
MINING_MEASURED, MINING_WARM_UP = 64, 16  # whole rounds from one look-up of candidates to the next
MOMENTUM: dict[str, Any] = {"lr": 0.1, "momentum": 0.9}
Batch = tuple[Tensor, Tensor]
Contestant = tuple[Callable[..., mct.OutputHead], Callable[..., torch.optim.Optimizer] | None]
MANY_DRAWS = 2048  # so many that a step's products take longer than what goes with them
STEP_HEADS = (
    "candidate",
    "candidate, 2048 drawn",
    "candidate, 32 mined",
    "candidate, momentum at once",
    "candidate, plain fused",
    "own candidates",
    "own candidates, plain fused",
    "hierarchical",
    "sampled",
    "sampled 2048",
    "full",
)


def contestant(name: str, candidates: int) -> Contestant:
    """Return head and optimizer; lazy momentum, which has the work of the full softmax's, unless it says otherwise."""
    kind, _, how = name.partition(", ")
    settings: dict[str, Any] = {}
    if kind in ("candidate", "own candidates"):
        settings = {"candidates": candidates, "meter_every": 0}
        if kind == "own candidates":
            settings["tail"] = 0
        if how == "2048 drawn":
            settings["tail"] = MANY_DRAWS
        if how == "32 mined":  # the same number of examples in every step, whatever the classes
            settings["mined_examples"] = 32
        if how == "plain fused":
            settings |= {"row_update": "fused", "row_optimizer": partial(mct.RowSGD, lr=0.1)}
    head = partial(make, kind, **settings)
    if how == "plain fused":
        return head, None
    if kind == "full":
        return head, partial(torch.optim.SGD, **MOMENTUM)
    return head, partial(mct.RowSGD, **MOMENTUM, row_momentum="at_once" if how == "momentum at once" else "lazy")


def run_steps(run: Run, stage: str, sizes: Iterable[StepSizes], heads: Iterable[str]) -> None:
    """Write a record per head and size that the records lack, each measured in a process of its own."""
    plans = [(name, size) for size in sizes for name in heads if name != "full" or size.classes <= FULL_LIMIT]
    key = {"stage": stage, "kind": "result"}
    left = [(name, size) for name, size in plans if not run.records.done(**key, head=name, **asdict(size))]
    with run.progress(len(left), "measurements") as show:
        calls = [partial(measure, name, size) for name, size in left]
        measured_apart = run_apart(calls, run.options.threads, fresh=not run.options.quick)
        for completed, (number, found) in enumerate(measured_apart, start=1):
            name, size = left[number]
            run.records.write(**key, head=name, **asdict(size), **found)
            show(completed, f"{name}, {size.classes:,} classes: {found['step_ms']:.1f} ms")


def measure(name: str, size: StepSizes) -> dict[str, float | None]:
    """Return the mean milliseconds of a step by part, the classes it touches, and bytes per class.

    The mean, because a head looks candidates up now and then: what a step costs is its share of that, too.
    """
    warnings.simplefilter("ignore", mct.ApproximationWarning)
    torch.manual_seed(0)
    make_head, optimize = contestant(name, size.candidates)
    head = make_head(size.features, size.classes)
    optimizer = optimize(head.parameters()) if optimize else None
    mines = isinstance(head, mct.CandidateSoftmax) and head.shared
    measured, warm_up = (MINING_MEASURED, MINING_WARM_UP) if mines else (MEASURED, WARM_UP)
    alone = time_steps(head, optimizer, None, batches(head, size, measured + warm_up))[warm_up:]
    parts = {
        f"{part}_ms": 1000 * statistics.mean(step[place] for step in alone)
        for place, part in enumerate(("forward", "backward", "update"))
    }
    meter = getattr(head, "meter", None)
    distinct = meter.report().get("distinct_classes", 0.0) if meter is not None else 0.0
    peak = peak_bytes() / size.classes
    shared = head.samples if isinstance(head, mct.SampledSoftmax) else int(distinct) if mines else 0
    below = trunk(size.features, size.features)
    whole = time_steps(head, optimizer, below, batches(head, size, measured + warm_up))[warm_up:]
    return {
        **parts,
        "step_ms": 1000 * statistics.mean(sum(step) for step in alone),
        "with_trunk_ms": 1000 * statistics.mean(sum(step) for step in whole),
        "distinct_classes": distinct,
        "peak_bytes_per_class": peak,
        "bare_products_ms": bare_products_ms(size, shared) if shared else None,
    }


def time_steps(
    head: mct.OutputHead, optimizer: torch.optim.Optimizer | None, below: nn.Module | None, data: list[Batch]
) -> list[tuple[float, float, float]]:
    """Return the seconds of forward, backward and update of every step. below: a network before the head, if any."""
    optimizers = [] if optimizer is None else [optimizer]
    if below is not None:
        optimizers.append(torch.optim.SGD(below.parameters(), **MOMENTUM))
    steps: list[tuple[float, float, float]] = []
    for x, y in data:
        x.requires_grad_(below is None)
        start = time.perf_counter()
        loss = head(x if below is None else below(x), y)
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        for one in optimizers:
            one.step()
            one.zero_grad()
        if not steps and optimizer is not None:
            touch_states(optimizer)  # as in a long run: a state gets its memory when it is first touched
        steps.append((forward - start, backward - forward, time.perf_counter() - backward))
    return steps


def bare_products_ms(size: StepSizes, classes: int) -> float:
    """Return the milliseconds of a step's three products over classes that all examples share, and nothing else."""
    x, rows = torch.randn(size.batch, size.features), torch.randn(classes, size.features)
    logits, of_x, of_rows = torch.empty(size.batch, classes), torch.empty_like(x), torch.empty_like(rows)
    spent = []
    for _ in range(MINING_WARM_UP + MINING_MEASURED):
        start = time.perf_counter()
        torch.mm(x, rows.T, out=logits)
        torch.mm(logits, rows, out=of_x)
        torch.mm(logits.T, x, out=of_rows)
        spent.append(time.perf_counter() - start)
    return 1000 * statistics.mean(spent[MINING_WARM_UP:])


def batches(head: mct.OutputHead, size: StepSizes, count: int) -> list[Batch]:
    """Return batches whose inputs lie near the rows of their classes, as they do in a network that has learned."""
    generator = torch.Generator().manual_seed(1)
    weight: Tensor = head.get_parameter("weight").detach()
    drawn = []
    for _ in range(count):
        y = torch.randint(size.classes, (size.batch,), generator=generator)
        noise = torch.randn(size.batch, size.features, generator=generator)
        known = weight[y.clamp(max=len(weight) - 1)]  # a tree has one row less
        drawn.append((2 * size.features**0.5 * known + noise, y))
    return drawn


def peak_bytes() -> float:
    """Return the most memory this process has held; `getrusage` would count what its parent held when it started it."""
    told = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    return 1024.0 * int(told[1]) if told else float("nan")


def touch_states(optimizer: torch.optim.Optimizer) -> None:
    """Write all states of an optimizer: zeros take no memory before."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()
