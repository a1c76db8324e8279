"""Ways of timing: the median call, the best call of several rounds, runs over a stream of queries."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle

from experiments.peers.peer import Floats

ROUNDS, REPEATS = 4, 5
PAUSE = 0.15  # seconds
RUNS, RUN_SECONDS = 3, 0.4


def time_call(call: Callable[[], object], repeats: int = 5, min_seconds: float = 0.5) -> float:
    """Return the median seconds of one call, after a warm-up call.

    Repeats at least `repeats` times and until `min_seconds` have passed.
    """
    call()
    seconds: list[float] = []
    while len(seconds) < repeats or sum(seconds) < min_seconds:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def in_turn(queries: Floats, size: int) -> Iterator[Floats]:
    """Yield whole batches of so many queries, from the first to the last and round again.

    The same queries over and over would find their few rows in the cache, which no stream of new queries does.
    """
    return cycle([queries[start : start + size] for start in range(0, len(queries) - size + 1, size)])


def best_seconds(
    calls: Mapping[str, Callable[[], object]], rounds: int = ROUNDS, pause: float = PAUSE
) -> dict[str, float]:
    """Return the best time of each call over alternating blocks.

    There is a pause before each block, because the thread pools of the linear-algebra libraries go on spinning for a
    while after each product.
    """
    best = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(pause)
            call()
            for _ in range(REPEATS):
                start = time.perf_counter()
                call()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


@dataclass(frozen=True)
class Runs:
    """µs per query of several runs of one thing."""

    microseconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.microseconds)

    @property
    def spread(self) -> float:
        """How far the runs lie apart, as a share of their median."""
        return (max(self.microseconds) - min(self.microseconds)) / self.median


def timed_runs(
    search: Callable[[Floats], object], queries: Floats, batch: int, runs: int = RUNS, seconds: float = RUN_SECONDS
) -> Runs:
    """Return µs per query of runs that last at least so long each, over batches that follow one another.

    The stream goes on from run to run and begins again only when every query has been asked.
    """
    size = min(batch, len(queries))
    stream = in_turn(queries, size)
    search(queries[-1:])  # warms up
    spent = []
    for _ in range(runs):
        asked, start = 0, time.perf_counter()
        while not asked or time.perf_counter() - start < seconds:
            search(next(stream))
            asked += size
        spent.append((time.perf_counter() - start) / asked * 1e6)
    return Runs(tuple(spent))
