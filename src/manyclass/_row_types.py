"""The types that rows may have; bfloat16 above all, which NumPy lacks."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

# bfloat16 as NumPy can hold it: mark raw bits with `bits.view(BF16)`, get them back with `array["bf16"]`.
# A one-field structure, because it cannot be confused with uint16. Rows may also be ml_dtypes.bfloat16, if installed.
BF16: Final = np.dtype([("bf16", "<u2")])
ROW_TYPES: Final = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}  # numbers as in cpp/kernels.h


def row_type(dtype: np.dtype[Any]) -> int | None:
    """Return the core's number of a type of rows; None if there is none."""
    return ROW_TYPES.get("bfloat16" if dtype == BF16 else dtype.name) if dtype.isnative else None


def as_floats(rows: npt.NDArray[Any], kind: type[np.floating[Any]] = np.float32) -> npt.NDArray[Any]:
    """Return rows of any of these types as float32 or float64; the same array where it is that already."""
    if rows.dtype == BF16:  # astype would make numbers of the bits
        rows = (rows["bf16"].astype(np.uint32) << np.uint32(16)).view(np.float32)
    return rows.astype(kind, copy=False)


def as_rows(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return floats as rows of a type, rounded to nearest; too large a number becomes infinite."""
    if dtype != BF16:
        return (as_floats(values) if values.dtype == BF16 else values).astype(dtype, copy=False)
    bits = np.ascontiguousarray(as_floats(values)).view(np.uint32)
    upper = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)  # a NaN, whose bits would carry over
    return np.where((bits & np.uint32(0x7FFFFFFF)) > 0x7F800000, quiet, upper).astype(np.uint16).view(BF16)
