"""What a training step's time goes into: trunk, finding candidates, logits, update, refresh."""

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch.optim import Optimizer

import manyclass.torch as mct
from experiments.frame.stages import Run
from experiments.video_id.batches import Batch, FrameBatches
from experiments.video_id.network import BASE_HEAD, MOMENTUM, new_head, new_trunk
from experiments.video_id.plan import TrunkSizes
from experiments.video_id.training import heads_of
from experiments.video_id.videos import Videos
from manyclass.errors import MemoryBudgetError
from manyclass.training.evaluation import TrunkAndHead

PARTS = ("frames", "trunk", "find", "logits", "update", "refresh")
WARM_UP = 4  # steps that do not count: memory is handed out at first touch, and the paper's layer builds its index
OWN_WARM_UP = 18  # of ours, which may look candidates up, and builds its index when it first does
LONGER = 4  # times as many of its steps are measured, which are short
RATE = 0.01


class Clock:
    """Adds up the seconds that are spent in calls it was put around."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the same call, timed."""

        def timed(*arguments: Any, **settings: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*arguments, **settings)
            finally:
                self.seconds += time.perf_counter() - started

        return timed

    def taken(self) -> float:
        """Return what has added up, and begin anew."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


@contextmanager
def looking_at(head: mct.OutputHead) -> Iterator[tuple[Clock, Clock]]:
    """Yield clocks of the head's index: one for finding candidates, one for re-hashing rows."""
    find, refresh = Clock(), Clock()
    index: Any = getattr(head, "index", None)
    if index is None:
        yield find, refresh
        return
    index.shortlist, index.refresh = find.around(index.shortlist), refresh.around(index.refresh)
    try:
        yield find, refresh
    finally:
        del index.shortlist, index.refresh  # the class's own come back


def measure(network: TrunkAndHead, batches: Callable[[int], Batch], steps: int) -> dict[str, float]:
    """Return the mean milliseconds of each part of a step."""
    ours = isinstance(network.head, mct.CandidateSoftmax) and network.head.shared
    warm_up, steps = (OWN_WARM_UP, LONGER * steps) if ours else (WARM_UP, steps)
    trunk_optimizer, head_optimizer = (
        mct.RowSGD(part.parameters(), lr=RATE, momentum=MOMENTUM) for part in (network.trunk, network.head)
    )
    assert isinstance(network.head, mct.OutputHead)
    network.train()
    spent: list[list[float]] = []
    with looking_at(network.head) as (find, refresh), warnings.catch_warnings():
        warnings.simplefilter("ignore", mct.ApproximationWarning)  # a quick run has few classes to choose from
        for step in range(warm_up + steps):
            marks = _marked_step(network, batches, step, trunk_optimizer, head_optimizer)
            got, forward, head, update, backward = (after - before for before, after in pairwise(marks))
            found, renewed = find.taken(), refresh.taken()
            spent.append([got, forward + backward, found, head - found - renewed, update, renewed])
    counted = zip(*spent[warm_up:], strict=True)
    means = {f"{part}_ms": 1000 * statistics.mean(some) for part, some in zip(PARTS, counted, strict=True)}
    return {**means, "step_ms": sum(means.values())}


def _marked_step(
    network: TrunkAndHead, batches: Callable[[int], Batch], step: int, trunk: Optimizer, head: Optimizer
) -> list[float]:
    """Train one step, and return the times between its parts: frames, trunk, head, update of the head, trunk."""
    marks = [time.perf_counter()]
    frames, labels = batches(step)
    marks.append(time.perf_counter())
    features = network.trunk(frames)
    marks.append(time.perf_counter())
    below = features.detach().requires_grad_()
    network.head(below, labels).backward()
    marks.append(time.perf_counter())
    head.step()
    head.zero_grad()
    marks.append(time.perf_counter())
    features.backward(below.grad)
    trunk.step()
    trunk.zero_grad()
    marks.append(time.perf_counter())
    return marks


def measured_head(head: str, features: int, classes: int, candidates: int, batch: int) -> mct.OutputHead:
    """Return an output layer whose step is to be measured.

    The meter of ours, which computes all classes once in hundreds of steps, is off.
    """
    settings = {"meter_every": 0} if head == BASE_HEAD else {}
    return new_head(head, features, classes, candidates, batch, **settings)


def run_parts(run: Run, stage: str, videos: Videos, sizes: TrunkSizes, batch: int, steps: int, candidates: int) -> None:
    """Measure a step of every output layer over the videos; one that does not fit into memory says so."""
    for head in heads_of(run):
        told = {"stage": stage, "head": head, "batch": batch, "classes": videos.classes, "features": sizes.features}
        if run.records.done(stage=stage, head=head, kind="result") or run.records.done(
            stage=stage, head=head, kind="left_out"
        ):
            continue
        torch.manual_seed(run.options.seed)
        trunk = new_trunk(sizes, videos.side)
        try:
            layer = measured_head(head, sizes.features, videos.classes, candidates, batch)
        except MemoryBudgetError as error:
            run.records.write(**told, kind="left_out", reason=str(error))
            continue
        with FrameBatches(videos, batch, run.options.seed) as batches:
            found = measure(TrunkAndHead(trunk, layer), batches, steps)
        run.records.write(**told, kind="result", **found)
