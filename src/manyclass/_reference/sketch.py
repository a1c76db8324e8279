"""Sketches: a row's sign bits and factor, a query's levels, and the score that they give (RaBitQ's estimator)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._reference.vector_math import TINIEST, Floats, Ints, hadamard, lane_sum
from manyclass._reference.votes import best_by_score

QUERY_LEVELS = 7


def rotate(vector: Floats, signs: Floats, bits: int) -> Floats:
    """Return the first `bits` coordinates of random rotations of the vector: signs, Hadamard, twice per chunk."""
    width = signs.shape[2]
    padded = np.zeros(width, np.float32)
    padded[: len(vector)] = vector
    chunks = [hadamard(hadamard(padded * first) * then) * np.float32(1 / width) for first, then in signs]
    return np.concatenate(chunks)[:bits]


def sketch_row(row: Floats, centre: Floats, signs: Floats, bits: int) -> tuple[npt.NDArray[np.uint8], np.float32]:
    """Return a row's packed sign bits and the factor that makes the guess exact for the row itself."""
    residual = row - centre
    rotated = rotate(residual, signs, bits)
    code = np.packbits(rotated >= 0, bitorder="little")
    magnitude = lane_sum(np.abs(rotated))
    factor = lane_sum(residual * residual) / magnitude if magnitude > 0 else np.float32(0)
    return code, factor if np.isfinite(factor) else np.float32(0)


def grown_scale(scale: float, magnitude: float) -> float:
    """Return the scale, or the next power of two above the magnitude if that is larger."""
    return scale if magnitude <= scale else float(np.ldexp(1.0, int(np.frexp(magnitude)[1])))


def to_q15(fraction: npt.ArrayLike) -> npt.NDArray[np.int16]:
    return np.clip(np.rint(np.asarray(fraction, np.float64) * 32768), -32767, 32767).astype(np.int16)


def sketch_gain(bits: int) -> int:
    """Return the left shift that brings the largest raw score just under 16 bits."""
    gain = 0
    while QUERY_LEVELS * bits << (gain + 1) <= 32767:
        gain += 1
    return gain


def sketch_query(
    query: Floats, signs: Floats, bits: int, factor_scale: float, bias_scale: float
) -> tuple[Ints, int, int]:
    """Return the query's integer coordinates in [-7, 7] and the Q15 weights of sketch score and bias."""
    rotated = rotate(query, signs, bits)
    largest = np.abs(rotated).max()
    levels = np.zeros(bits, np.int64)
    if largest >= TINIEST:
        levels = np.rint(rotated * (np.float32(QUERY_LEVELS) / largest)).astype(np.int64)
    unit = factor_scale * (float(largest) / QUERY_LEVELS)
    beta = bias_scale * 2.0 ** sketch_gain(bits) / unit / 32768 if unit > 0 else 1e300
    if bias_scale <= 0:
        return levels, 32767, 0
    if beta <= 0.5:
        return levels, 32767, int(to_q15(beta))
    return levels, int(to_q15(0.5 / beta)), 16384


def q15_product(a: Ints, b: Ints) -> Ints:
    return (a * b + 0x4000) >> 15


def sketch_scores(
    levels: Ints,
    alpha: int,
    beta: int,
    codes: npt.NDArray[np.uint8],
    factors: npt.NDArray[np.int16],
    biases: npt.NDArray[np.int16],
) -> Ints:
    """Return one 16-bit score per class: signs times levels, weighted by the class's factor, plus its bias."""
    bits = len(levels)
    signs = 2 * np.unpackbits(codes, axis=1, bitorder="little").astype(np.int64) - 1
    raw = (signs @ levels) << sketch_gain(bits)
    weighted = q15_product(raw, np.asarray(alpha, np.int64))
    scores = q15_product(weighted, factors.astype(np.int64)) + q15_product(
        biases.astype(np.int64), np.asarray(beta, np.int64)
    )
    clipped: Ints = np.clip(scores, -32768, 32767)
    return clipped


class SketchStore:
    """Sign codes, factors and biases of all classes, and the two scales they are fractions of."""

    def __init__(self, bits: int, signs: Floats) -> None:
        self.bits, self.signs = bits, signs
        self.centre = np.zeros(0, np.float32)
        self.resize(0)

    def resize(self, count: int) -> None:
        self.codes = np.zeros((count, self.bits // 8), np.uint8)
        self.factors, self.biases = np.zeros(count, np.int16), np.zeros(count, np.int16)
        self.scales = [0.0, 0.0]

    def extend(self, count: int) -> None:
        self.codes, self.factors, self.biases = (longer(a, count) for a in (self.codes, self.factors, self.biases))

    def encode(self, row: Floats) -> tuple[npt.NDArray[np.uint8], np.float32]:
        return sketch_row(row, self.centre, self.signs, self.bits)

    def reserve(self, factor: float, bias: float) -> None:
        for kind, magnitude, stored in ((0, factor, self.factors), (1, bias, self.biases)):
            grown = grown_scale(self.scales[kind], magnitude)
            if grown != self.scales[kind]:
                stored[:] = np.rint(stored * (self.scales[kind] / grown)).astype(np.int16)
                self.scales[kind] = grown

    def set_weights(self, i: int, factor: np.float32, bias: np.float32) -> None:
        self.factors[i] = to_q15(float(factor) / self.scales[0]) if self.scales[0] > 0 else 0
        self.biases[i] = to_q15(float(bias) / self.scales[1]) if self.scales[1] > 0 else 0

    def best(self, query: Floats, ids: Ints, keep: int) -> Ints:
        """Return the `keep` ids with the best scores, best first."""
        levels, alpha, beta = sketch_query(query, self.signs, self.bits, self.scales[0], self.scales[1])
        scores = sketch_scores(levels, alpha, beta, self.codes[ids], self.factors[ids], self.biases[ids])
        return best_by_score(ids, scores, keep)


def longer(array: npt.NDArray[Any], count: int, fill: int = 0) -> npt.NDArray[Any]:
    """Return the array with `count` more entries."""
    return np.concatenate([array, np.full((count, *array.shape[1:]), fill, array.dtype)])
