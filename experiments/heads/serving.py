"""A head that is served while it changes: a query through it beside one to its index, threads, and classes that come.

Times of a head and of its index are taken in turns, so that both see the same machine.
"""

import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import manyclass.torch as mct
from experiments.frame.stages import Run
from experiments.heads.apart import run_apart
from experiments.heads.sizes import ServingSizes
from manyclass import ClassIndex
from manyclass.torch.weight_watch import WeightWatch

K, WARM_UP = 10, 5
FIRST_ADDS = 5  # after the very first, which moves all rows: tables of the index move when one of their buckets is full
Found = dict[str, Any]


def run_serving(run: Run, sizes: ServingSizes, heads: Iterable[str]) -> None:
    """Write a record per measurement that the records lack, each in a process of its own."""
    key = {"stage": "serving", "kind": "result"}
    wanted = MEASUREMENTS if "candidate" in heads else {}
    left = [name for name in wanted if not run.records.done(**key, what=name, **asdict(sizes))]
    with run.progress(len(left), "measurements") as show:
        calls = [partial(MEASUREMENTS[name], sizes) for name in left]
        done = run_apart(calls, run.options.threads, fresh=not run.options.quick)
        for completed, (number, found) in enumerate(done, start=1):
            run.records.write(**key, what=left[number], **asdict(sizes), **found)
            show(completed, left[number])


def served(classes: int, features: int) -> tuple[mct.CandidateSoftmax, ClassIndex]:
    """Return a head in evaluation and the index that it has built."""
    torch.manual_seed(0)
    head = mct.CandidateSoftmax(features, classes, meter_every=0).eval()
    head.topk(torch.zeros(1, features), 1)
    assert head.index.built is not None
    return head, head.index.built


def askers(
    head: mct.CandidateSoftmax, index: ClassIndex, threads: int
) -> dict[str, tuple[Callable[[Any], Any], Callable[[Tensor], Any]]]:
    """Return by name how one query is put, and how it is made of a tensor."""
    search = partial(index.search, k=K, candidates=head.candidates, threads=threads)
    return {"index": (search, Tensor.numpy), "head": (partial(head.topk, k=K), Tensor.detach)}


def measure_query(sizes: ServingSizes) -> Found:
    """Return the median microseconds of one query to the index and through the head, and of noticing changes."""
    head, index = served(sizes.classes, sizes.features)
    asked = askers(head, index, torch.get_num_threads())
    spent: dict[str, list[float]] = {name: [] for name in asked}
    for turn, pair in enumerate(torch.randn(sizes.queries, 2, 1, sizes.features)):  # nobody finds another's rows cached
        for query, name in zip(pair, sorted(asked, reverse=turn % 2 > 0), strict=True):
            ask, made = asked[name]
            spent[name].append(seconds(partial(ask, made(query))))
    watch = head.index.watch
    assert watch is not None
    weight, bias, noticing = head.weight, head.bias, []
    for query in torch.randn(sizes.queries, 1, sizes.features):
        head.topk(query, K)  # leaves the caches as a query finds them
        noticing.append(seconds(partial(watch.in_step, weight, bias)))
    medians = {f"{name}_us": 1e6 * statistics.median(times[WARM_UP:]) for name, times in spent.items()}
    return {**medians, "noticing_us": 1e6 * statistics.median(noticing[WARM_UP:])}


def measure_threads(sizes: ServingSizes) -> Found:
    """Return queries per second of one and of two threads, each with a core of its own, by the index and by the head.

    The best of three rounds: another process can only take from it.
    """
    torch.set_num_threads(1)
    head, index = served(sizes.classes, sizes.features)
    queries = torch.randn(sizes.queries, 1, sizes.features)
    best: dict[str, float] = {}
    for _ in range(3):
        for name, (ask, made) in askers(head, index, threads=1).items():
            given = [made(query) for query in queries]
            for threads in (1, 2):
                label = f"{name}_{threads}_per_second"
                best[label] = max(best.get(label, 0.0), throughput(ask, given, threads))
    return best


def throughput(ask: Callable[[Any], Any], queries: Sequence[Any], threads: int) -> float:
    """Return how many queries per second so many threads are answered, each asking all of them."""

    def work() -> None:
        for query in queries:
            ask(query)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return threads * len(queries) / (time.perf_counter() - start)


def measure_step(sizes: ServingSizes) -> Found:
    """Return the median milliseconds of a training step, and of what it spends on noticing changed weights."""
    warnings.simplefilter("ignore", mct.ApproximationWarning)
    torch.manual_seed(0)
    head = mct.CandidateSoftmax(sizes.features, sizes.classes, meter_every=0)
    optimizer = mct.RowSGD(head.parameters(), lr=0.1)
    steps, noticing = [], []
    for _ in range(sizes.steps + WARM_UP):
        x, y = torch.randn(sizes.batch, sizes.features), torch.randint(sizes.classes, (sizes.batch,))
        with timed_methods(WeightWatch, "in_step", "look_before_move", "expect_moved") as spent:
            start = time.perf_counter()
            head(x, y).backward()
            optimizer.step()
            optimizer.zero_grad()
            steps.append(time.perf_counter() - start)
        noticing.append(sum(spent))
    medians = {"step_ms": statistics.median(steps[WARM_UP:]), "noticing_ms": statistics.median(noticing[WARM_UP:])}
    return {name: 1000 * value for name, value in medians.items()}


@contextmanager
def timed_methods(owner: type, *names: str) -> Iterator[list[float]]:
    """Yield a list that collects the seconds of every call of some methods."""
    spent: list[float] = []

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return method(*args)
            finally:
                spent.append(time.perf_counter() - start)

        return call

    replaced: dict[str, Any] = {name: timed(getattr(owner, name)) for name in names}
    with mock.patch.multiple(owner, **replaced):
        yield spent


def measure_change(sizes: ServingSizes) -> Found:
    """Return milliseconds of adding or removing one class and the next query: of the first time, and of later ones."""
    head, _ = served(sizes.changed_classes, sizes.features)
    query, rows = torch.randn(1, sizes.features), torch.randn(sizes.changes, 1, sizes.features)

    def spent(change: Callable[[], Any]) -> float:
        def change_and_ask() -> None:
            change()
            head.topk(query, K)

        return 1000 * seconds(change_and_ask)

    head.topk(query, K)
    added = [spent(partial(head.add_classes, rows=row)) for row in rows]
    removed = [spent(partial(head.remove_classes, [gone])) for gone in range(sizes.changes)]
    later = added[1 + FIRST_ADDS :]
    return {
        "first_add_ms": added[0],
        "next_adds_most_ms": max(added[1 : 1 + FIRST_ADDS]),
        "add_ms": statistics.median(later),
        "add_most_ms": max(later),
        "first_remove_ms": removed[0],
        "remove_ms": statistics.median(removed[1:]),
        "remove_most_ms": max(removed[1:]),
    }


def seconds(call: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


MEASUREMENTS: dict[str, Callable[[ServingSizes], Found]] = {
    "query": measure_query,
    "threads": measure_threads,
    "step": measure_step,
    "change": measure_change,
}
