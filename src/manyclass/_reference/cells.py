"""The coarse partition of a scan: which cell a class belongs to, and which cells a query scans.

Products are sums of whole numbers that floats hold exactly, in whatever order they are added: cells are the same bits
everywhere. How the centres are found is no part of the specification: `manyclass._cell_centres`.
"""

import numpy as np

from manyclass._cell_centres import LEVELS, Centres, Doubles
from manyclass._reference.vector_math import TINIEST, Floats, Ints, nearest_float, sum_squares

CHUNK = 4096
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
    """Return the cell of each class, whose centre is nearest to (row minus mean row, bias), and row times centre.

    A bias beyond those of all centres counts as the last of them.
    """
    offsets, wide = centres.offsets(), centres.biases.astype(np.float64)
    found, dots = np.empty(len(residuals), np.int64), np.empty(len(residuals))
    within = np.clip(bias.astype(np.float64), wide.min(), wide.max())
    for begin in range(0, len(residuals), CHUNK):
        part = slice(begin, begin + CHUNK)
        levels, units = whole_levels(residuals[part])
        product = products(levels, centres) * (units * centres.scale)[:, None]
        merit = product + (within[part][:, None] * wide - offsets)
        found[part] = merit.argmax(1)  # ties go to the lowest
        dots[part] = np.take_along_axis(product, found[part][:, None], 1)[:, 0]
    return found, dots


def distance(residual: Floats, cell: int, dot: float, centres: Centres) -> np.float32:
    """Return how far a row is from its centre, the bias left out: |v - c|² = |v|² - 2 v·c + |c|²."""
    centre_bias = float(centres.biases[cell])
    squares = 2 * float(centres.offsets()[cell]) - centre_bias * centre_bias
    return nearest_float(float(np.sqrt(max(0.0, (sum_squares(residual) - 2 * dot) + squares))))


def scores(query: Floats, centres: Centres, radii: Floats, top_biases: Doubles) -> Ints:
    """Return what each cell promises a query as whole numbers, (cells,), in a unit that suits the query.

    It is the logit of the centre, and how far above it a class at the cell's edge is, in a typical direction, or the
    one with the largest bias.
    """
    levels, units = whole_levels(query[None])
    dots: Ints = products(levels, centres)[0].astype(np.int64)
    wide = centres.biases.astype(np.float64)
    spread = np.sqrt(sum_squares(query)) / np.sqrt(float(len(query)))
    reach = spread * radii.astype(np.float64)
    least = (max(np.abs(wide).max(), np.abs(top_biases).max()) + reach.max()) / MOST_EXTRA
    unit = max(units[0] * centres.scale, least)
    if unit >= 1e-300:
        shrink = units[0] * centres.scale / unit
        if shrink < 1:
            dots = np.rint(dots * shrink).astype(np.int64)
        dots += np.rint(np.maximum(wide + reach, top_biases) * (1 / unit)).astype(np.int64)
    return dots


def chosen(
    query: Floats, centres: Centres, radii: Floats, top_biases: Doubles, sizes: Ints, wanted: int, limit: int
) -> Ints:
    """Return the best `wanted` cells; twice as many as long as they hold fewer than `limit` classes."""
    order = np.argsort(-scores(query, centres, radii, top_biases), kind="stable")
    while sizes[order[:wanted]].sum() < limit and wanted < len(order):
        wanted *= 2
    return order[:wanted]
