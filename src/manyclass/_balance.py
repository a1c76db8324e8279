"""A change of coordinates after which rows and queries vary alike, so that no bit of a sketch is spent in vain.

x·w = μ·w + (x - μ)·w, where μ is the mean query: the first term is a number per class, its mean logit. The second is
the same in any coordinates y = A⁻¹(x - μ), v = Aᵀ(w - c), up to a term that all classes share. Where queries vary much
and rows hardly, or the other way round, a sketch of the features tells little; A is chosen so that y and v have the
same covariance: A Aᵀ is the geometric mean of Σ_rows⁻¹ and Σ_queries. Directions come in order of what they contribute
to the logits, so the first few do most.

Matrices are rounded to whole numbers, and rows and queries too before they are multiplied: coordinates are the same
bits everywhere. The rows' map is fitted to the queries' map as it is after rounding.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._row_types import as_floats
from manyclass._typical import lengths, typical_rows
from manyclass.config import HashConfig

# Whole numbers up to which features and the elements of matrices are rounded. Queries are mapped all the time and make
# do with 8 bits for both; rows are mapped once, and get 12 and 14.
QUERY_FEATURE, QUERY_ELEMENT = 127, 127
ROW_FEATURE, ROW_ELEMENT = 2047, 8191
RIDGE = 0.03  # of the mean variance is added to each variance: a direction that a sample never showed may still come
ROWS_SAMPLED = 20_000
LONGEST = 0.98  # longer vectors than so large a share of all are shortened to that length: a few must not rule
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Balance:
    """How features become coordinates. Without directions, coordinates are the features, moved and scaled.

    A query x: whole numbers of (x - mean) / scales, times query_levels, in units of query_units.
    A row w: whole numbers of (w - centre) · scales, times row_levels, in units of row_units; the last of those
    products is its part of the mean logit.
    """

    mean: Floats  # (features,) of the queries
    centre: Floats  # (features,) of the rows
    scales: Doubles  # (features,)
    query_levels: npt.NDArray[np.int8]  # (directions, features)
    query_units: Doubles  # (directions,)
    row_levels: npt.NDArray[np.int16]  # (directions + 1, features)
    row_units: Doubles  # (directions + 1,)

    @property
    def directions(self) -> int:
        return len(self.query_levels)

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return self.directions or len(self.mean)


def find_balance(
    rows: npt.NDArray[Any], queries: npt.NDArray[Any], config: HashConfig, real: bool = True
) -> Balance | None:
    """Return the balance of rows (classes, features) with a sample of queries (count, features); None for no balance.

    real: whether the queries are some, or made from the rows: then they tell how queries may vary, not where they lie,
    nor how long they are, and their mean is taken to be zero.

    Rows and queries that are far longer than nearly all others are left out. Cost: features³, once.
    """
    if config.balance == "none":
        return None
    step = max(1, len(rows) // ROWS_SAMPLED)
    centre, row_residuals = _centred(as_floats(rows[::step], np.float64))
    mean, query_residuals = _centred(np.asarray(queries, np.float64))
    if not real:
        mean = np.zeros_like(mean)
    if config.balance == "features":
        spread = np.sqrt(_variances(query_residuals) / _variances(row_residuals))
        scales = np.sqrt(spread / spread.max())
        none = np.zeros((0, rows.shape[1]))
        return _balance(mean, centre, scales, (none, np.zeros(0)), none)
    covariance = _covariance(query_residuals)
    scales = np.sqrt(np.diag(covariance))
    scales /= scales.max()
    wanted = min(config.coordinates or rows.shape[1], rows.shape[1])
    to_coordinates = _directions(_covariance(row_residuals), covariance)[:wanted]
    levels, units = _whole(to_coordinates * scales, QUERY_ELEMENT)
    kept = levels * units[:, None] / scales  # as it is after rounding
    # The rows' coordinates that make the product nearest to (x - μ)·w over the queries: exact where kept is invertible.
    row_map = np.linalg.solve(kept @ covariance @ kept.T, kept @ covariance).astype(np.float64)
    return _balance(mean, centre, scales, (levels, units), row_map)


def _centred(vectors: Doubles) -> tuple[Doubles, Doubles]:
    """Return the mean of the typical vectors, and those minus the mean, none longer than most."""
    kept = vectors[typical_rows(vectors)]
    if not len(kept):
        return np.zeros(vectors.shape[1]), np.zeros((1, vectors.shape[1]))
    mean = kept.mean(axis=0)
    residuals = kept - mean
    long = lengths(residuals)
    limit = np.quantile(long, LONGEST)
    residuals *= np.minimum(1, limit / np.where(long > 0, long, 1))[:, None]
    return mean, residuals


def _variances(residuals: Doubles) -> Doubles:
    """Return the variance of each feature, with the ridge; ones where nothing varies."""
    variances: Doubles = np.einsum("ij,ij->j", residuals, residuals) / len(residuals)
    return variances + RIDGE * variances.mean() if variances.any() else np.ones(residuals.shape[1])


def _covariance(residuals: Doubles) -> Doubles:
    covariance: Doubles = residuals.T @ residuals / len(residuals)
    ridge = RIDGE * np.trace(covariance) / len(covariance)
    return covariance + (ridge or 1.0) * np.eye(len(covariance))


def _powers(matrix: Doubles, *exponents: float) -> list[Doubles]:
    """Return powers of a symmetric positive matrix."""
    values, vectors = np.linalg.eigh(matrix)
    positive = np.maximum(values, values.max() * 1e-12)
    return [(vectors * positive**exponent) @ vectors.T for exponent in exponents]


def _directions(rows: Doubles, queries: Doubles) -> Doubles:
    """Return A⁻¹, (features, features): y = A⁻¹(x - μ) and v = Aᵀw have the same diagonal covariance, falling."""
    root, inverse_root = _powers(rows, 0.5, -0.5)
    (between,) = _powers(root @ queries @ root, 0.5)
    symmetric, inverse = _powers(inverse_root @ between @ inverse_root, 0.5, -0.5)  # of A Aᵀ
    values, vectors = np.linalg.eigh(symmetric @ rows @ symmetric)
    order = np.argsort(-values, kind="stable")
    directions = vectors[:, order].T @ inverse
    # An eigenvector may point either way: its largest element is made positive.
    largest = np.take_along_axis(directions, np.abs(directions).argmax(1)[:, None], 1)
    found: Doubles = directions * np.where(largest < 0, -1.0, 1.0)
    return found


def _whole(matrix: Doubles, levels: int) -> tuple[Doubles, Doubles]:
    """Return the matrix in whole numbers up to `levels`, and the unit of each row."""
    units = np.abs(matrix).max(axis=1, initial=0) / levels
    units[units == 0] = 1.0
    return np.rint(matrix / units[:, None]), units


def _balance(
    mean: Doubles, centre: Doubles, scales: Doubles, query_map: tuple[Doubles, Doubles], row_map: Doubles
) -> Balance:
    """Return the balance: the queries' map in whole numbers and units, the rows' as it acts on w - centre."""
    query_levels, query_units = query_map
    row_levels, row_units = _whole(np.concatenate([row_map, mean[None]]) / scales, ROW_ELEMENT)
    return Balance(
        mean.astype(np.float32), centre.astype(np.float32), scales, query_levels.astype(np.int8), query_units,
        row_levels.astype(np.int16), row_units,
    )  # fmt: skip
