"""Sketches: a row's sign bits and factor, a query's levels, and the guess at the logit that they give (RaBitQ)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._reference.vector_math import (
    TINIEST,
    Doubles,
    Floats,
    Ints,
    hadamard,
    lane_sum,
    nearest_float,
    nearest_floats,
    sum_squares,
)
from manyclass._reference.votes import best_by_score

QUERY_LEVELS = 7
HUGE, SHRINK = np.float32(2.0**80), np.float32(2.0**-64)  # the transforms sum up to width² elements
Codes = npt.NDArray[np.uint8]


def rotate(vector: Floats, signs: Floats, bits: int) -> Floats:
    """Return the first `bits` coordinates of random rotations of the vector: signs, Hadamard, twice per chunk."""
    width = signs.shape[2]
    padded, unit = np.zeros(width, np.float32), np.float32(1 / width)
    padded[: len(vector)] = vector
    if np.abs(padded).max() > HUGE:
        padded, unit = padded * SHRINK, unit / SHRINK
    chunks = [hadamard(hadamard(padded * first) * then) * unit for first, then in signs]
    return np.concatenate(chunks)[:bits]


def sketch_row(row: Floats, centre: Floats, signs: Floats, bits: int) -> tuple[Codes, np.float32]:
    """Return a row's packed sign bits and the factor that makes the guess exact for the row itself."""
    residual = row - centre
    rotated = rotate(residual, signs, bits)
    code = np.packbits(rotated >= 0, bitorder="little")
    magnitude = lane_sum(np.abs(rotated).astype(np.float64))
    with np.errstate(all="ignore"):
        factor = np.float64(sum_squares(residual)) / magnitude
    return code, nearest_float(float(factor)) if np.isfinite(factor) else np.float32(0)


def query_levels(query: Floats, signs: Floats, bits: int) -> tuple[Ints, float]:
    """Return the query's rotated coordinates as whole numbers in [-7, 7], and the unit they are in."""
    rotated = rotate(query, signs, bits)
    largest = np.abs(rotated).max()
    levels = np.zeros(bits, np.int64)
    if largest >= TINIEST:
        levels = np.rint(rotated * (np.float32(QUERY_LEVELS) / largest)).astype(np.int64)
    return levels, float(largest) / QUERY_LEVELS


def sums(levels: Ints, codes: Codes) -> Ints:
    """Return the sum of each class's signs times the query's levels."""
    signs = 2 * np.unpackbits(codes, axis=1, bitorder="little").astype(np.int64) - 1
    products: Ints = signs @ levels
    return products


def guesses(levels: Ints, unit: float, codes: Codes, factors: Floats, bias: Floats) -> Doubles:
    """Return a guess at each class's logit, up to what the mean row adds to all."""
    guessed: Doubles = sums(levels, codes) * (factors.astype(np.float64) * unit) + bias.astype(np.float64)
    return guessed


class SketchRecords:
    """Sign codes and factors of all classes, to rank those that tables or scan found."""

    def __init__(self, bits: int, signs: Floats) -> None:
        self.bits, self.signs = bits, signs
        self.centre = np.zeros(0, np.float32)
        self.start(0)

    def start(self, count: int) -> None:
        self.codes, self.factors = np.zeros((count, self.bits // 8), np.uint8), np.zeros(count, np.float32)

    def resize(self, count: int) -> None:
        self.codes, self.factors = resized(self.codes, count), resized(self.factors, count)

    def set_row(self, i: int, row: Floats) -> None:
        self.codes[i], self.factors[i] = sketch_row(row, self.centre, self.signs, self.bits)

    def best(self, query: Floats, ids: Ints, bias: Floats, keep: int) -> Ints:
        """Return the `keep` ids with the best guesses, best first."""
        levels, unit = query_levels(query, self.signs, self.bits)
        scores = nearest_floats(guesses(levels, unit, self.codes[ids], self.factors[ids], bias[ids]))
        return best_by_score(ids, scores, keep)


def resized(array: npt.NDArray[Any], count: int, fill: float = 0) -> npt.NDArray[Any]:
    """Return the array with `count` entries: cut, or filled up."""
    more = max(0, count - len(array))
    return np.concatenate([array[:count], np.full((more, *array.shape[1:]), fill, array.dtype)])
