"""The exact stage of a search: logits of the candidates, and their log probabilities."""

import numpy as np
import numpy.typing as npt

from manyclass._reference.vector_math import Floats


def exact_logits(query: Floats, rows: npt.NDArray[np.floating], bias: Floats) -> Floats:
    """Return rows @ query + bias, summed in float64 and rounded once."""
    return (rows.astype(np.float64) @ query.astype(np.float64) + bias).astype(np.float32)


def log_probabilities(logits: Floats, logistic: bool) -> Floats:
    """Return log probabilities of the candidates: softmax over them (paper, equation 1), or each its sigmoid."""
    wide = logits.astype(np.float64)
    shifted = -np.logaddexp(0, -wide) if logistic else wide - np.logaddexp.reduce(wide) if len(wide) else wide
    return shifted.astype(np.float32)
