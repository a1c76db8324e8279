"""What no method that scores candidates exactly avoids: reading their rows once, and multiplying them.

Both rates are measured on the layer itself. Rows are gathered in the order of memory and summed up as they come, so
that nothing is written; arithmetic is that of a large exact product.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.peers.peer import Floats, Ids
from experiments.peers.timing import PAUSE, ROUNDS, best_seconds

GATHERED = 4096  # rows of a timing
SETS = 16  # of ids, one after the other: the rows of the last are no longer at hand
PRODUCT_QUERIES = 256


@dataclass(frozen=True)
class Rates:
    """Bytes per second of rows gathered in order, and floating-point operations per second of an exact product."""

    gathered: float
    arithmetic: float

    def seconds(self, distinct: float, scored: float, features: int) -> float:
        """Return the least time to read so many distinct rows and to score so many (row, query) pairs."""
        return max(4.0 * features * distinct / self.gathered, 2.0 * features * scored / self.arithmetic)


def measured_rates(rows: Floats, threads: int, rounds: int = ROUNDS, pause: float = PAUSE) -> Rates:
    """Return what this machine does on these rows."""
    import torch

    torch.set_num_threads(threads)
    random, count = np.random.default_rng(0), min(GATHERED, len(rows))
    drawn = [np.sort(random.choice(len(rows), count, replace=False)) for _ in range(SETS)]
    x = torch.from_numpy(rows[: min(PRODUCT_QUERIES, len(rows))].copy())
    block = torch.from_numpy(rows[: max(1, min(len(rows), 2**25 // rows.shape[1]))])
    with torch.inference_mode():
        multiplied = best_seconds({"product": lambda: x @ block.T}, rounds, pause)["product"]
    gathered = seconds_to_gather(rows, drawn, threads, rounds, pause)
    product = 2.0 * len(x) * len(block) * rows.shape[1]
    return Rates(4.0 * rows.shape[1] * count / gathered, product / multiplied)


def seconds_to_gather(
    rows: Floats, sets: Sequence[Ids], threads: int, rounds: int = ROUNDS, pause: float = PAUSE
) -> float:
    """Return the least time to read these rows, one ascending set of ids after the other: of a set, in the mean."""
    import torch

    torch.set_num_threads(threads)
    weight = torch.from_numpy(rows)
    bags = [(torch.from_numpy(ids), torch.arange(0, len(ids), -(-len(ids) // (4 * threads)))) for ids in sets]

    def gather() -> None:
        for ids, starts in bags:
            torch.nn.functional.embedding_bag(ids, weight, starts, mode="sum")

    with torch.inference_mode():
        return best_seconds({"gather": gather}, rounds, pause)["gather"] / len(bags)


def distinct_classes(candidates: Ids) -> Ids:
    """Return the different classes among the candidates (queries, K) of a batch, ascending; -1 is none."""
    found = np.unique(candidates)
    return found[found >= 0]


def distinct_rows(candidates: Ids) -> int:
    """Return how many different classes are among the candidates of a batch."""
    return len(distinct_classes(candidates))
