"""How a peer is measured: build time and memory once; per setting what it keeps, and µs per query at several batches.

Slow peers are asked fewer queries, so that no timing takes much more than the seconds given here.
"""

from time import perf_counter
from typing import Any

import numpy as np

from experiments.peers.judging import judge
from experiments.peers.peer import Floats, Peer, Setting
from experiments.peers.problem import Problem
from experiments.peers.timing import in_turn, time_call

DEPTH = 10
SINGLES = 100  # queries of a round, one at a time
LARGE_BATCH = 1000
SECONDS_SINGLE = 30.0
SECONDS_BATCH = 20.0
CHANGED_ROWS = 200  # over which the time to re-index a row is read
SURELY_QUICK = 1.0  # second; a batch expected to take less is not tried out in parts


def build_timed(peer: Peer, rows: Floats, bias: Floats | None) -> dict[str, Any]:
    """Build the peer; return the seconds that took and the bytes per class, of which row_bytes are the row itself."""
    start = perf_counter()
    peer.build(rows, bias)
    seconds = perf_counter() - start
    return {"build_seconds": seconds, "bytes_per_class": peer.bytes_per_class(), "row_bytes": rows[0].nbytes}


def measure_setting(
    peer: Peer,
    problem: Problem,
    setting: Setting,
    batches: tuple[int, ...] = (LARGE_BATCH,),
    min_seconds: float = 0.5,
) -> dict[str, Any]:
    """Return quality over all queries, us_batch1, and us_batch{size} with the number of queries in it, per batch.

    min_seconds: how long each timing goes on at least.
    """
    queries = problem.queries
    measured = judge(peer.answers(queries, DEPTH, setting), problem)
    measured["us_batch1"] = microseconds_single(peer, queries, setting, min_seconds)
    for size in batches:
        count = fitting_queries(peer, queries, setting, most=min(size, len(queries)))
        measured[f"us_batch{size}"] = microseconds_batch(peer, queries[:LARGE_BATCH], setting, count, min_seconds)
        measured["batch_queries" if size == LARGE_BATCH else f"batch{size}_queries"] = count
    return measured


def microseconds_single(peer: Peer, queries: Floats, setting: Setting, min_seconds: float = 0.5) -> float:
    """Return µs per query asked one at a time: the median of five or more rounds of 100 queries, fewer if slow."""
    singles = in_turn(queries, 1)

    def ask(count: int) -> None:
        for _ in range(count):
            peer.search(next(singles), DEPTH, setting, batch_mode=False)

    ask(1)
    start = perf_counter()
    ask(1)
    round_size = max(1, min(SINGLES, int(SECONDS_SINGLE / 6 / (perf_counter() - start))))
    return time_call(lambda: ask(round_size), min_seconds=min_seconds) / round_size * 1e6


def microseconds_batch(peer: Peer, queries: Floats, setting: Setting, count: int, min_seconds: float = 0.5) -> float:
    """Return µs per query in batches of `count`: the median batch, or the only one where that takes very long."""
    batches = in_turn(queries, count)

    def ask() -> None:
        peer.search(next(batches), DEPTH, setting, batch_mode=True)

    start = perf_counter()
    ask()
    seconds = perf_counter() - start
    if seconds < SECONDS_BATCH / 4:
        seconds = time_call(ask, repeats=3, min_seconds=min_seconds)
    return seconds / count * 1e6


def fitting_queries(peer: Peer, queries: Floats, setting: Setting, most: int, seconds: float = SECONDS_BATCH) -> int:
    """Return how many queries, at most `most`, the peer answers at once in about that many seconds.

    Tried out with ever larger batches, because a query in a batch may cost less than one alone, or more.
    """
    peer.search(queries[:1], DEPTH, setting, batch_mode=True)
    count = 1
    while True:
        start = perf_counter()
        peer.search(queries[:count], DEPTH, setting, batch_mode=True)
        per_query = (perf_counter() - start) / count
        fits = int(seconds / per_query)
        if fits < 4 * count or 4 * count >= most or per_query * most < SURELY_QUICK:
            return max(1, min(most, fits))
        count *= 4


def microseconds_update(peer: Peer, problem: Problem) -> float | None:
    """Return the median µs to re-index one slightly changed row, None if the peer cannot."""
    random = np.random.default_rng(4)
    chosen = random.choice(problem.classes, min(CHANGED_ROWS, problem.classes), replace=False)
    seconds = []
    for row_id in chosen:
        row = problem.rows[row_id].copy()
        moved = row + 0.05 * row.std() * random.standard_normal(len(row), dtype=np.float32)
        start = perf_counter()
        if not peer.update_one(int(row_id), moved):
            return None
        seconds.append(perf_counter() - start)
        peer.update_one(int(row_id), row)
    return float(np.median(seconds)) * 1e6
