"""The scan: sketches of all classes with 16-bit factors and biases, and 16-bit scores in a unit that suits the query.

The fractions are of two scales that cover all classes but a few. Those few, the outliers, are scored apart; a bias far
below all others is cut off (it is sunk), and what the scan finds of those classes is scored again.
"""

import numpy as np
import numpy.typing as npt

from manyclass._reference.sketch import QUERY_LEVELS, SketchRecords, guesses, query_levels, sums
from manyclass._reference.vector_math import Doubles, Floats, Ints, nearest_floats
from manyclass._reference.votes import best_by_score

SLACK = 2  # scales reach so far beyond the largest value that is no outlier
SUNK = -32768  # stands for a bias below -scale
MOST_SCORE = 32766  # beyond the 16-bit range there is no order
EDGE = 65_536  # wide scores are whole numbers below this, and follow the bits of the float beyond
Flags = npt.NDArray[np.bool_]


def scale_above(magnitude: float) -> float:
    """Return the next power of two above the magnitude."""
    return float(np.ldexp(1.0, int(np.frexp(magnitude)[1]))) if magnitude > 0 else 0.0


def to_q15(fraction: npt.ArrayLike) -> npt.NDArray[np.int16]:
    return np.clip(np.rint(np.asarray(fraction, np.float64) * 32768), -32767, 32767).astype(np.int16)


def q15_product(a: Ints, b: Ints | int) -> Ints:
    product: Ints = (a * b + 0x4000) >> 15
    return product


def allowed(classes: int) -> int:
    """Return how many classes may be outside the scales."""
    return classes // 128 + 8


def rank_of(classes: int) -> int:
    """Return how many classes are above the one that the scales are taken from."""
    return min(allowed(classes), classes // 2)


def bias_that_matters(factor_scale: float, bits: int) -> float:
    """Return what the sketch could make up for, with a query whose elements are about 1."""
    return SLACK * factor_scale * bits


def choose_scales(factors: Floats, biases: Floats, bits: int) -> tuple[float, float]:
    """Return scales that cover all of these classes but a few."""
    if not len(factors):
        return 0.0, 0.0
    rank = rank_of(len(factors))
    ordered, long = np.sort(biases), float(np.sort(factors)[::-1][rank])
    factor = scale_above(min(float(factors.max()), SLACK * long))
    high, low = SLACK * abs(float(ordered[::-1][rank])), SLACK * abs(float(ordered[rank]))
    largest = float(np.abs(biases).max())
    return factor, scale_above(min(largest, max(high, min(low, bias_that_matters(factor, bits)))))


def sketch_gain(bits: int) -> int:
    """Return the left shift that brings the largest raw score just under 16 bits."""
    gain = 0
    while QUERY_LEVELS * bits << (gain + 1) <= 32767:
        gain += 1
    return gain


def score_weights(levels: Ints, unit: float, factor_scale: float, bias_scale: float) -> tuple[int, int, float]:
    """Return the Q15 weights of sketch score and bias for a query, and what a logit of 1 is in scores."""
    gain = sketch_gain(len(levels))
    sketch_unit = factor_scale * unit
    wanted = bias_scale * 2.0**gain / sketch_unit / 32768 if sketch_unit > 0 else 1e300
    biases_rule = bias_scale > 0 and wanted > 0.5
    alpha = int(to_q15(0.5 / wanted)) if biases_rule else 32767
    beta = 16384 if biases_rule else int(to_q15(wanted)) if bias_scale > 0 else 0
    reach: Ints = np.asarray(np.abs(levels).sum() << gain)
    most = int(q15_product(reach, alpha)) + beta
    if most > MOST_SCORE:
        alpha, beta = alpha * MOST_SCORE // most, beta * MOST_SCORE // most
    if biases_rule:
        return alpha, beta, beta / bias_scale
    return alpha, beta, 2.0**gain * alpha / 32768 / sketch_unit if sketch_unit > 0 else 1e30


def narrow_scores(
    raw: Ints, bits: int, alpha: int, beta: int, factors: npt.NDArray[np.int16], biases: npt.NDArray[np.int16]
) -> Ints:
    """Return one 16-bit score per class: signs times levels, weighted by the class's factor, plus its bias."""
    weighted = q15_product(raw << sketch_gain(bits), alpha)
    products = q15_product(weighted, factors.astype(np.int64))
    scores: Ints = products + q15_product(biases.astype(np.int64), beta)
    return scores


def wide_scores(scores: Doubles) -> Ints:
    """Return whole numbers of the same order: rounded where small, by the bits of the float32 beyond."""
    magnitudes = np.abs(scores)
    bits = nearest_floats(magnitudes).view(np.int32).astype(np.int64)
    beyond = EDGE + bits - int(np.float32(EDGE).view(np.int32))
    small = magnitudes < EDGE
    wide: Ints = np.where(small, np.rint(np.where(small, scores, 0)).astype(np.int64), np.sign(scores) * beyond)
    return wide.astype(np.int64)


class ScanStore(SketchRecords):
    """Sketches of all classes, and the scales that their 16-bit factors and biases are fractions of."""

    def start(self, count: int) -> None:
        super().start(count)
        self.scales = (0.0, 0.0)

    def weights(self, bias: Floats) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
        """Return factors and biases of all classes as 16-bit fractions of the scales."""
        factor_scale, bias_scale = self.scales
        none = np.zeros(len(bias), np.int16)
        factors = to_q15(self.factors.astype(np.float64) / factor_scale) if factor_scale > 0 else none
        finite = np.where(np.isfinite(bias), bias, 0).astype(np.float64)
        biases = to_q15(finite / bias_scale) if bias_scale > 0 else none
        return factors, np.where(bias < -bias_scale, SUNK, biases).astype(np.int16)

    def outside(self, bias: Floats) -> Flags:
        """Tell which classes are outside the scales."""
        flags: Flags = (self.factors > self.scales[0]) | (bias > self.scales[1])
        return flags

    def suited(self, bias: Floats, visible: Flags) -> bool:
        """Tell whether the scales suit the visible classes: few are outside, and the scales are not far too large."""
        count = int(visible.sum())
        factors, biases = (weights[visible] for weights in self.weights(bias))
        rank, many, matters = rank_of(count), 2 * allowed(count), bias_that_matters(self.scales[0], self.bits)
        sunk = int((biases == SUNK).sum())
        high, low = (biases > 1024).sum(), (biases < -1024).sum()
        factors_fell = self.scales[0] > 0 and (factors > 512).sum() <= rank
        biases_fell = self.scales[1] > 0 and high <= rank and low <= rank
        biases_sank = sunk > 0 and (count - sunk <= rank or (sunk > many and self.scales[1] < matters))
        outliers = (self.outside(bias) & visible).sum()
        return not count or not (outliers > many or factors_fell or biases_fell or biases_sank)

    def settle(self, bias: Floats, visible: Flags) -> None:
        """Choose new scales where the old ones no longer suit."""
        if not self.suited(bias, visible):
            self.scales = choose_scales(self.factors[visible], bias[visible], self.bits)

    def best(self, query: Floats, ids: Ints, bias: Floats, keep: int) -> Ints:
        """Return the `keep` ids with the best scores, best first."""
        levels, unit = query_levels(query, self.signs, self.bits)
        alpha, beta, per_unit = score_weights(levels, unit, *self.scales)
        factors, biases = (weights[ids] for weights in self.weights(bias))
        codes = self.codes[ids]
        narrow = narrow_scores(sums(levels, codes), self.bits, alpha, beta, factors, biases)
        wide = wide_scores(guesses(levels, unit, codes, self.factors[ids], bias[ids]) * per_unit)
        scores = np.where(biases == SUNK, np.minimum(narrow, wide), narrow)
        return best_by_score(ids, np.where(self.outside(bias)[ids], wide, scores), keep)
