"""The two ways of timing: the median call, and the best call of several rounds; and the queries to time with."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle

from experiments.peers.peer import Floats

ROUNDS, REPEATS = 4, 5
PAUSE = 0.15  # seconds


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
