"""The coarse partition of a scan: which cell a class belongs to, and which cells a query scans.

Products are sums of whole numbers that floats hold exactly, in whatever order they are added: cells are the same bits
everywhere. How the centres are found is no part of the specification: `manyclass._cell_centres`.
"""

import numpy as np

from manyclass._cell_centres import LEVELS, Centres, Doubles
from manyclass._reference.vector_math import TINIEST, Floats, Ints, lane_sum

CHUNK = 4096
RANKS = 1024  # a query sorts its cells into so many: within one, the lowest come first
FARTHEST = 1e39  # a length may overflow where a file's centre is absurd
MOST_EXTRA = 2.0**30  # leaves the sum of products the other half of 32 bits


def whole_levels(vectors: Floats) -> tuple[Floats, Doubles]:
    """Return vectors (count, features) rounded to whole numbers in [-127, 127], and the unit each is in."""
    largest = np.abs(vectors).max(axis=1, initial=0)
    tiny = largest < TINIEST
    levels = np.rint(vectors * (np.float32(LEVELS) / np.where(tiny, np.float32(1), largest))[:, None])
    levels[tiny] = 0
    return levels, np.where(tiny, 0.0, largest.astype(np.float64) / LEVELS)


def products(levels: Floats, centres: Centres) -> Doubles:
    """Return the products of vectors with all centres, (count, cells): exact, as floats hold such whole numbers."""
    exact = np.float32 if levels.shape[1] * LEVELS**2 < 2**24 else np.float64
    sums: Doubles = (levels.astype(exact) @ centres.levels.T.astype(exact)).astype(np.float64)
    return sums


def nearest(residuals: Floats, bias: Floats, centres: Centres) -> tuple[Ints, Doubles]:
    """Return the cell of each class and its merit: the centre nearest to (row minus mean row, bias)."""
    offsets, wide = centres.offsets(), centres.biases.astype(np.float64)
    found, merits = np.empty(len(residuals), np.int64), np.empty(len(residuals))
    for begin in range(0, len(residuals), CHUNK):
        part = slice(begin, begin + CHUNK)
        levels, units = whole_levels(residuals[part])
        merit = products(levels, centres) * (units * centres.scale)[:, None]
        merit += bias[part].astype(np.float64)[:, None] * wide - offsets
        found[part], merits[part] = merit.argmax(1), merit.max(1)  # ties go to the lowest
    return found, merits


def distance(residual: Floats, bias: np.float32, merit: float) -> float:
    """Return how far a class is from its centre: |v - c|² = |v|² - 2 (v·c - |c|²/2)."""
    length = float(lane_sum(residual * residual)) + float(bias) * float(bias)
    return min(FARTHEST, float(np.sqrt(max(0.0, length - 2 * merit))))


def scores(query: Floats, centres: Centres, radii: Doubles) -> Ints:
    """Return what each cell promises a query as whole numbers, (cells,), in a unit that suits the query.

    It is the logit of the centre, and how far above it a class at the cell's edge is, in a typical direction.
    """
    levels, units = whole_levels(query[None])
    dots: Ints = products(levels, centres)[0].astype(np.int64)
    wide = centres.biases.astype(np.float64)
    spread = np.sqrt(float(lane_sum(query * query)) + 1.0) / np.sqrt(float(len(query)))
    least = (np.abs(wide).max() + spread * radii.max()) / MOST_EXTRA
    unit = max(units[0] * centres.scale, least)
    if unit >= 1e-300:
        dots += np.rint((wide + spread * radii) * (1 / unit)).astype(np.int64)
    return dots


def chosen(query: Floats, centres: Centres, radii: Doubles, sizes: Ints, wanted: int, limit: int) -> Ints:
    """Return the best `wanted` cells; twice as many as long as they hold fewer than `limit` classes."""
    merit = scores(query, centres, radii)
    highest = int(merit.max())
    shift = ((highest - int(merit.min())) // RANKS).bit_length()
    order = np.argsort((highest - merit) >> shift, kind="stable")
    while sizes[order[:wanted]].sum() < limit and wanted < len(order):
        wanted *= 2
    return order[:wanted]
