"""What most rows and biases are like, whatever a few of them are: one row a million times longer must not decide."""

from typing import Any

import numpy as np
import numpy.typing as npt

SLACK = 4  # so much longer than the longest row that is no outlier a row may be and still be typical
Doubles = npt.NDArray[np.float64]


def all_but_a_few(values: npt.NDArray[np.floating]) -> float:
    """Return the largest of some values when the few largest are left out: one in 128 and eight, at most half."""
    rank = min(len(values) // 128 + 8, len(values) // 2)
    return float(np.partition(values, len(values) - 1 - rank)[len(values) - 1 - rank])


def lengths(rows: npt.NDArray[np.floating]) -> Doubles:
    """Return the length of each row, in double, where no square of a float32 overflows."""
    found: Doubles = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return found


def typical_rows(rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Tell which rows are not far longer than nearly all others."""
    found = lengths(rows)
    finite = np.isfinite(found)
    if not finite.any():
        return finite
    return found <= SLACK * all_but_a_few(found[finite])  # a NaN is not
