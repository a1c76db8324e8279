"""Queries from which an index learns what it is for: checked, parted by lot, or made from the rows for want of any.

Parts have their roles: on one the balance is fitted, on one settings are chosen, on the last, which nothing has seen,
what was chosen is judged.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._row_types import as_floats
from manyclass._self_configuration.plans import MOST_DIRECTIONS
from manyclass._typical import typical_rows
from manyclass._validation import Floats, check_finite, check_vectors
from manyclass._windows_and_signs import permutation, random_words
from manyclass.errors import InputError

FEWEST = 64  # queries: fewer say nothing of a share, nor of how they vary
MOST_TO_FIT, MOST_TO_CHOOSE, MOST_TO_JUDGE = 6000, 1500, 2000
LEAST_CHOSEN, LEAST_JUDGED = 1000, 1000  # if there are as many: of fewer, the luckiest of many settings may be chosen
EXACT_PRODUCTS = 6e10  # of query, class and feature: about a second or two of exact answers
FIT_STAND_INS, CHOOSE_STAND_INS, JUDGE_STAND_INS = 3000, 400, 400
NOISE = 3.0  # of stand-ins, in lengths of a row
LEAST_VARIANCE = 0.01  # of the mean variance that every direction is taken to have
SPLIT, PICKED, NOISY = 5_000_000, 5_000_001, 5_000_002  # streams of random numbers


@dataclass(frozen=True)
class QuerySample:
    """Queries in three parts, (count, features) each. real: whether they were given, or made from the rows."""

    fit: Floats
    choose: Floats
    judge: Floats
    real: bool
    given: int


def checked_sample(name: str, queries: npt.ArrayLike, features: int) -> Floats:
    """Return a sample of queries (count, features) that can teach something."""
    vectors, single = check_vectors(name, queries, features)
    if single or len(vectors) < FEWEST:
        count = 1 if single else len(vectors)
        raise InputError(
            f"{name} holds {count} vectors; a sample needs at least {FEWEST}, better a few thousand: "
            f"give more, or leave {name} out"
        )
    check_finite(name, vectors)
    if (vectors == vectors[0]).all():
        raise InputError(f"{name} repeats one vector {len(vectors)} times; give queries as they come, or none")
    return vectors


def parted(vectors: Floats, classes: int, seed: int) -> QuerySample:
    """Return real queries in their parts, by lot: up to half to judge, up to a quarter to choose, the others to fit.

    No more to choose and judge than exact answers are quickly found for.
    """
    order = permutation(seed, SPLIT, len(vectors))
    affordable = int(EXACT_PRODUCTS / max(1, classes * vectors.shape[1]))
    choose = min(len(vectors) // 4, MOST_TO_CHOOSE, max(LEAST_CHOSEN, affordable // 2))
    judge = min(len(vectors) // 2, MOST_TO_JUDGE, max(LEAST_JUDGED, affordable - choose))
    judged, chosen, fitted = np.split(order, [judge, judge + choose])
    in_order_given = np.sort(judged)
    return QuerySample(
        vectors[fitted[:MOST_TO_FIT]], vectors[chosen], vectors[in_order_given], real=True, given=len(vectors)
    )


def stand_ins(rows: npt.NDArray[Any], seed: int) -> QuerySample:
    """Return queries made from the rows: a row each, and noise, the more of it the less rows differ in a direction.

    Rows tell neither where queries lie nor how they vary. But nothing that queries do where rows hardly differ helps to
    tell classes apart, and trained layers have queries with much going on there: such noise makes the balance play
    those directions down.
    """
    count = FIT_STAND_INS + CHOOSE_STAND_INS + JUDGE_STAND_INS
    if not len(rows):
        none = np.zeros((0, rows.shape[1]), np.float32)
        return QuerySample(none, none, none, real=False, given=0)
    drawn = (random_words(seed, PICKED, count) % np.uint64(len(rows))).astype(np.int64)
    picked = as_floats(rows[drawn], np.float64)
    picked = picked[typical_rows(picked)]
    noise = NOISE * _normal(seed, picked.shape)
    residuals = picked - picked.mean(axis=0) if len(picked) else picked
    if rows.shape[1] <= MOST_DIRECTIONS:
        values, vectors = np.linalg.eigh(residuals.T @ residuals / max(1, len(residuals)))
        noise = (noise * _spread(values)) @ vectors.T
    else:
        noise *= _spread((residuals**2).mean(axis=0))
    queries: Floats = (picked + noise).astype(np.float32)
    parts = np.split(queries, [CHOOSE_STAND_INS, CHOOSE_STAND_INS + JUDGE_STAND_INS])
    return QuerySample(fit=parts[2], choose=parts[0], judge=parts[1], real=False, given=0)


def _spread(variances: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the standard deviations of noise along each direction: as much in all as rows have, and unlike theirs."""
    total = variances.sum()
    if not total > 0:
        return np.ones(len(variances))
    spread = np.maximum(variances, LEAST_VARIANCE * total / len(variances)) ** -0.25
    scaled: npt.NDArray[np.float64] = spread * np.sqrt(total / (spread**2).sum())
    return scaled


def _normal(seed: int, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Return nearly normal numbers: sums of four even ones, from the generator that is part of the format."""
    words = random_words(seed, NOISY, shape[0] * shape[1])
    fields = sum((words >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48))
    centred: npt.NDArray[np.float64] = (np.asarray(fields, np.float64) - 2 * 0xFFFF) / (0xFFFF * np.sqrt(1 / 3))
    return centred.reshape(shape)
