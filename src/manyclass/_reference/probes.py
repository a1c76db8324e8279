"""Multi-probing (Lv et al., VLDB 2007, for winner codes): buckets beside the query's own, the likeliest first."""

import itertools

import numpy as np
import numpy.typing as npt

from manyclass._reference.vector_math import Ints
from manyclass._reference.winner_codes import bucket_numbers
from manyclass.config import MAX_PROBED_CODES

COSTS = 2048  # probes are ordered by cost in steps of 8 key units


def probe_order(
    best: Ints, second: Ints, margin: Ints, silent: npt.NDArray[np.bool_], code_bits: int, limit: int
) -> list[tuple[int, int]]:
    """Return (band, bucket) pairs to read: those that change the winners least first, at most `limit`."""
    bands, planes = best.shape
    flips = min(planes, MAX_PROBED_CODES)
    shifts = np.arange(planes) * code_bits
    change = (best ^ second) << shifts
    found = []
    for band, subset in itertools.product(range(bands), range(2**flips)):
        if silent[band]:
            continue
        order = np.argsort(margin[band], kind="stable")[:flips]
        chosen = order[[subset >> bit & 1 == 1 for bit in range(flips)]]
        bucket = int(bucket_numbers(best[band], code_bits)) ^ int(change[band, chosen].sum())
        found.append((min(int(margin[band, chosen].sum()) >> 3, COSTS - 1), band, bucket))
    found.sort(key=lambda probe: probe[0])  # stable: band, then subset
    return [(band, bucket) for _, band, bucket in found[:limit]]


def read_probes(probes: list[tuple[int, int]], table: Ints, budget: int) -> Ints:
    """Return the ids in the listed buckets, repeated as often as found; a bucket beyond the budget is passed over."""
    hits: list[Ints] = [np.empty(0, np.int64)]
    for band, bucket in probes:
        ids = np.flatnonzero(table[:, band] == bucket)
        if len(ids) <= budget:
            budget -= len(ids)
            hits.append(ids)
    return np.concatenate(hits)
