"""Votes: in how many bands a class shares the query's bucket (paper, section 3.2), and how they rank classes."""

import numpy as np
import numpy.typing as npt

from manyclass._reference.vector_math import Floats, Ints, norm


def count_votes(query_buckets: Ints, silent: npt.NDArray[np.bool_], table: Ints) -> Ints:
    """Return in how many bands, silent ones left out, each class of table (classes, bands) shares the bucket."""
    votes: Ints = ((table == query_buckets) & ~silent).sum(-1)
    return votes


def rescored(query: Floats, norms: Floats, bias: Floats, votes: Ints, weights: Floats) -> Floats:
    """Return |x| |w| f(votes) + bias for each class."""
    with np.errstate(over="ignore"):
        picked: Floats = norm(query) * (norms * weights[np.minimum(votes, len(weights) - 1)]) + bias
    return picked


def best_by_score(ids: Ints, scores: npt.NDArray[np.generic], keep: int) -> Ints:
    """Return the ids with the `keep` largest scores, best first; ties go to the lowest id."""
    order = np.lexsort((ids, -scores.astype(np.float64)))
    return ids[order[:keep]]
