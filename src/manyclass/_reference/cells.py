"""The coarse partition of a scan: how centres are found, which cell a class belongs to, which cells a query scans.

Both backends use the centres found here; the rest is the specification of `cpp/cells.cpp`. Products are sums of whole
numbers that floats hold exactly, in whatever order they are added: cells are the same bits everywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._reference.stages import TINIEST, Floats, Ints, lane_sum
from manyclass._windows_and_signs import permutation
from manyclass.config import HashConfig

LEVELS = 127
SAMPLE_PER_CELL = 32  # more rows, or more rounds, find centres that are hardly better: docs/how_it_works.md
ROUNDS = 6
CHUNK = 4096
RANKS = 1024  # a query sorts its cells into so many: within one, the lowest come first
FARTHEST = 1e39  # a length may overflow where a file's centre is absurd
MOST_EXTRA = 2.0**30  # leaves the sum of products the other half of 32 bits
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Centres:
    """Centres of all cells: whole numbers in [-127, 127] in units of `scale`, and the mean bias of each."""

    levels: npt.NDArray[np.int8]  # (cells, features)
    biases: Floats  # (cells,)
    scale: float

    def offsets(self) -> Doubles:
        """Return half the squared length of each centre."""
        squares = (self.levels.astype(np.int64) ** 2).sum(1).astype(np.float64)
        wide = self.biases.astype(np.float64)
        lengths: Doubles = (squares * (self.scale * self.scale) + wide * wide) * 0.5
        return lengths


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
    """Return the cell of each class, the centre nearest to (row minus mean row, bias), and merit: see distances."""
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


def chosen(query: Floats, centres: Centres, radii: Doubles, sizes: Ints, probes: int, limit: int) -> Ints:
    """Return the best `probes` cells; twice as many as long as they hold fewer than `limit` classes."""
    merit = scores(query, centres, radii)
    highest = int(merit.max())
    shift = ((highest - int(merit.min())) // RANKS).bit_length()
    order = np.argsort((highest - merit) >> shift, kind="stable")
    while sizes[order[:probes]].sum() < limit and probes < len(order):
        probes *= 2
    return order[:probes]


def find_centres(
    rows: npt.NDArray[Any],
    bias: Floats | None,
    origin: Floats,
    config: HashConfig,
    file: Callable[[Floats, Floats, Centres], npt.NDArray[np.integer]],
) -> Centres:
    """Return centres by k-means over a sample of the rows, with the bias as one more coordinate.

    file: returns the nearest centre of each of some vectors, as `nearest` does.
    """
    cells = config.cells
    step = max(1, len(rows) // (SAMPLE_PER_CELL * cells))
    with np.errstate(invalid="ignore", over="ignore"):
        sample = np.nan_to_num(rows[::step].astype(np.float32) - origin, posinf=0.0, neginf=0.0)
    if not len(sample):
        return Centres(np.zeros((cells, rows.shape[1]), np.int8), np.zeros(cells, np.float32), 0.0)
    sample_bias = np.zeros(len(sample), np.float32) if bias is None else np.ascontiguousarray(bias[::step])
    # Sums of whole numbers do not depend on their order either.
    points = np.concatenate([sample, sample_bias[:, None]], axis=1).astype(np.float64)
    unit = float(np.abs(points).max()) / 2**30 or 1.0
    fixed = np.rint(points / unit).astype(np.int32)
    first = permutation(config.seed, 4_000_000, len(sample))[np.arange(cells) % len(sample)]
    means = fixed[first].astype(np.float64)
    for _ in range(ROUNDS):
        cell = file(sample, sample_bias, _rounded(means, unit))
        order = np.argsort(cell, kind="stable")
        counts = np.bincount(cell, minlength=cells)
        filled = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[filled]
        means[filled] = np.add.reduceat(fixed[order], starts, axis=0, dtype=np.int64) / counts[filled, None]
    return _rounded(means, unit)


def _rounded(means: Doubles, unit: float) -> Centres:
    largest = float(np.abs(means[:, :-1]).max(initial=0))
    levels = np.rint(means[:, :-1] * (LEVELS / largest)) if largest > 0 else np.zeros_like(means[:, :-1])
    return Centres(levels.astype(np.int8), (means[:, -1] * unit).astype(np.float32), largest / LEVELS * unit)
