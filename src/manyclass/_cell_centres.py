"""Centres of the cells of a scan, found by k-means over a sample of the rows. Both backends use the centres found here.

Sums of whole numbers do not depend on their order, so the centres are the same bits everywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manyclass._typical import SLACK, all_but_a_few, lengths, typical_rows
from manyclass._windows_and_signs import permutation
from manyclass.config import HashConfig

LEVELS = 127  # a coordinate of a centre is a whole number in [-127, 127]
SAMPLE_PER_CELL = 32  # more rows, or more rounds, find centres that are hardly better
ROUNDS = 6
WIDEST_BIAS = 64  # lengths of a row: a bias beyond that would leave no room for the rows among the coordinates
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Nearest = Callable[[Floats, Floats, "Centres"], npt.NDArray[np.integer]]


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


def find_centres(sample: Floats, sample_bias: Floats, config: HashConfig, nearest: Nearest) -> Centres:
    """Return centres by k-means over a sample of the rows, with the bias as one more coordinate.

    sample: rows without their mean, (count, width). nearest: returns the cell of each of some (residuals, biases).
    """
    cells = config.cells
    if not len(sample):
        return Centres(np.zeros((cells, sample.shape[1]), np.int8), np.zeros(cells, np.float32), 0.0)
    points = np.concatenate([sample, sample_bias[:, None]], axis=1).astype(np.float64)
    unit = float(np.abs(points).max()) / 2**30 or 1.0
    fixed = np.rint(points / unit).astype(np.int32)
    first = permutation(config.seed, 4_000_000, len(sample))[np.arange(cells) % len(sample)]
    means = fixed[first].astype(np.float64)
    for _ in range(ROUNDS):
        cell = nearest(sample, sample_bias, _rounded(means, unit))
        order = np.argsort(cell, kind="stable")
        counts = np.bincount(cell, minlength=cells)
        filled = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[filled]
        means[filled] = np.add.reduceat(fixed[order], starts, axis=0, dtype=np.int64) / counts[filled, None]
    return _rounded(means, unit)


def typical_sample(sample: Floats, sample_bias: Floats) -> tuple[Floats, Floats]:
    """Return the rows (count, width) and biases of it that are not far longer than nearly all, nor masked.

    Biases far beyond the others are cut.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        kept = typical_rows(sample) & (sample_bias != -np.inf)
    sample, sample_bias = sample[kept], sample_bias[kept]
    if len(sample):
        limit = max(SLACK * abs(all_but_a_few(sample_bias)), WIDEST_BIAS * float(np.median(lengths(sample))))
        sample_bias = np.clip(sample_bias, -limit, limit).astype(np.float32)
    return sample, np.ascontiguousarray(sample_bias)


def _rounded(means: Doubles, unit: float) -> Centres:
    largest = float(np.abs(means[:, :-1]).max(initial=0))
    levels = np.rint(means[:, :-1] * (LEVELS / largest)) if largest > 0 else np.zeros_like(means[:, :-1])
    return Centres(levels.astype(np.int8), (means[:, -1] * unit).astype(np.float32), largest / LEVELS * unit)
