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
from experiments.video_id.network import MOMENTUM, new_head, new_network, new_trunk
from experiments.video_id.plan import Plan, TrunkSizes
from experiments.video_id.training import heads_of
from experiments.video_id.videos import Videos
from manyclass.errors import MemoryBudgetError
from manyclass.training.evaluation import TrunkAndHead

PARTS = ("frames", "trunk", "find", "logits", "update", "refresh")
WARM_UP = 18  # steps that do not count: the first search builds an index, and memory is handed out at first touch
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
    """Return the mean milliseconds of each part of a step; the mean, because candidates are looked up now and then."""
    warnings.simplefilter("ignore", mct.ApproximationWarning)
    trunk_optimizer, head_optimizer = (
        mct.RowSGD(part.parameters(), lr=RATE, momentum=MOMENTUM) for part in (network.trunk, network.head)
    )
    assert isinstance(network.head, mct.OutputHead)
    network.train()
    spent: list[list[float]] = []
    with looking_at(network.head) as (find, refresh):
        for step in range(WARM_UP + steps):
            marks = _marked_step(network, batches, step, trunk_optimizer, head_optimizer)
            got, forward, head, update, backward = (after - before for before, after in pairwise(marks))
            found, renewed = find.taken(), refresh.taken()
            spent.append([got, forward + backward, found, head - found - renewed, update, renewed])
    counted = zip(*spent[WARM_UP:], strict=True)
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


def run_parts(run: Run, videos: Videos, plan: Plan) -> None:
    """Measure a step of every output layer over the videos."""
    for head in heads_of(run):
        key = {"stage": "step_parts", "kind": "result", "head": head}
        if run.records.done(**key):
            continue
        network = new_network(plan, videos.classes, head, run.options.seed)
        with FrameBatches(videos, plan.batch, run.options.seed) as batches:
            found = measure(network, batches, plan.measured_steps)
        run.records.write(**key, batch=plan.batch, classes=videos.classes, features=plan.trunk.features, **found)


def run_many_parts(run: Run, stage: str, videos: Videos, sizes: TrunkSizes, batch: int, plan: Plan) -> None:
    """Measure a step over very many videos, with few features; a layer that does not fit into memory says so."""
    for head in heads_of(run):
        key = {"stage": stage, "kind": "result", "head": head}
        if run.records.done(**key):
            continue
        torch.manual_seed(run.options.seed)
        told = {"batch": batch, "classes": videos.classes, "features": sizes.features}
        try:
            layer = new_head(head, sizes.features, videos.classes, plan.candidates)
        except MemoryBudgetError as error:
            run.records.write(**{**key, "kind": "left_out"}, **told, reason=str(error))
            continue
        with FrameBatches(videos, batch, run.options.seed) as batches:
            found = measure(TrunkAndHead(new_trunk(sizes, videos.side), layer), batches, plan.million.measured_steps)
        run.records.write(**key, **told, **found)
