"""Checks of what users pass in: every failure names the argument, its value, the rule and the way out."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._row_types import ROW_TYPES, as_floats, row_type
from manyclass._typical import lengths
from manyclass.config import MAX_CLASSES
from manyclass.errors import InputError, InputTypeError

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


def as_array(name: str, values: Any, copy: bool = False) -> npt.NDArray[Any]:
    """Return what was given as an array; lists of unequal lengths and the like are refused by name."""
    try:
        return np.array(values) if copy else np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{name} cannot be read as an array ({error}); pass a NumPy array") from error


def check_rows(name: str, rows: Any) -> tuple[npt.NDArray[Any], int]:
    """Return the rows as the core may view them, and their type number. Never copies: an index keeps a view."""
    if not isinstance(rows, np.ndarray):
        raise InputTypeError(f"{name} is a {type(rows).__name__}, not a NumPy array; pass np.asarray({name})")
    kind = row_type(rows.dtype)
    if kind is None:
        raise InputTypeError(
            f"{name} has dtype {rows.dtype}; rows are {', '.join(ROW_TYPES)}; convert with .astype(np.float32)"
        )
    if rows.ndim != 2:
        raise InputError(f"{name} has shape {rows.shape}; rows are (classes, features)")
    if rows.shape[1] < 1:
        raise InputError(f"{name} has shape {rows.shape}: no features; give at least one column")
    if rows.shape[0] > MAX_CLASSES:
        raise InputError(f"{name} has {rows.shape[0]} rows; one index holds at most {MAX_CLASSES}: split it")
    dense = rows.shape[1] == 1 or rows.strides[1] == rows.itemsize or not len(rows)
    if not dense or not rows.flags.aligned or rows.strides[0] % rows.itemsize:
        raise InputError(
            f"{name} has strides {rows.strides}: features must be adjacent and aligned, because an index keeps a view; "
            f"pass np.ascontiguousarray({name}) and keep that array"
        )
    return (rows.view(np.uint16) if kind >= 2 else rows), kind


def check_vectors(name: str, vectors: Any, features: int) -> tuple[Floats, bool]:
    """Return vectors as contiguous float32 (count, features), and whether a single 1-D vector was given.

    Does not look for NaN: the core does, and `not_finite` words the error.
    """
    array = as_array(name, vectors)
    if array.dtype.char not in "fde" and row_type(array.dtype) is None:
        raise InputTypeError(f"{name} has dtype {array.dtype}; give floats, for instance .astype(np.float32)")
    single = array.ndim == 1
    if not (single or array.ndim == 2) or array.shape[-1] != features:
        raise InputError(f"{name} has shape {array.shape}; expected ({features},) or (count, {features})")
    if array.dtype.char != "f":
        with np.errstate(over="ignore"):
            array = as_floats(array)
    return _contiguous(array.reshape(-1, features), np.float32), single


def _contiguous(array: npt.NDArray[Any], kind: type[np.generic]) -> npt.NDArray[Any]:
    """Return np.require(array, kind, ["C", "A"]), which takes several µs also where there is nothing to do."""
    flags = array.flags
    if array.dtype == kind and flags.c_contiguous and flags.aligned:
        return array
    return np.require(array, kind, ["C", "A"])


def not_finite(name: str, row: int) -> InputError:
    return InputError(f"{name}[{row}] has a NaN, an infinity or a norm beyond float32; clean or scale it first")


def check_finite(name: str, vectors: Floats) -> None:
    """Raise for the first vector whose norm is not finite."""
    if len(vectors) == 1 and math.isfinite(np.vdot(vectors, vectors)):
        return  # one row at a time is how a served layer changes: a fraction of the time of what follows
    with np.errstate(over="ignore", invalid="ignore"):
        bad = ~(lengths(vectors) <= np.finfo(np.float32).max)
    if bad.any():
        raise not_finite(name, int(np.flatnonzero(bad)[0]))


def check_biases(name: str, values: Any, count: int) -> Floats:
    """Return a copy of `count` biases as contiguous float32: finite, or -inf for a class that is masked."""
    array = as_array(name, values)
    if array.dtype.name not in ROW_TYPES:
        raise InputTypeError(f"{name} has dtype {array.dtype}; give floats, for instance .astype(np.float32)")
    if array.shape != (count,):
        raise InputError(f"{name} has shape {array.shape}; expected ({count},): one number per class")
    with np.errstate(over="ignore"):
        biases = np.array(array, np.float32)
    bad = ~(np.isfinite(biases) | (np.asarray(array == -np.inf)))
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise InputError(f"{name}[{at}] is neither a finite float32 nor -inf, which masks a class; replace it")
    return biases


def check_ids(name: str, ids: Any, classes: int) -> Ids:
    """Return class ids as contiguous int64 in [0, classes): a copy, because what was checked must not change."""
    array = np.arange(classes)[ids] if isinstance(ids, slice) else as_array(name, ids, copy=True)
    if array.ndim == 0:
        array = array[None]
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InputTypeError(f"{name} has dtype {array.dtype}; class ids are whole numbers")
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}; ids are one-dimensional: pass {name}.ravel()")
    low, high = (array.item(),) * 2 if array.size == 1 else (array.min(initial=0), array.max(initial=0))
    if array.size and not (low >= 0 and high < classes):
        wrong = array[(array < 0) | (array >= classes)][0]
        raise InputError(f"{name} holds {wrong}; ids are from 0 to {classes - 1}")
    return _contiguous(array, np.int64)


def check_excluded(name: str, ids: Any, classes: int, queries: int, single: bool) -> Ids:
    """Return ids to leave out as (queries, m), padded with -1; for a single query (m,) will do. A copy, as above."""
    array = as_array(name, ids, copy=True)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InputTypeError(f"{name} has dtype {array.dtype}; class ids are whole numbers, and -1 where there is none")
    if single and array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or len(array) != queries:
        expected = "(m,)" if single else f"({queries}, m)"
        raise InputError(f"{name} has shape {array.shape}; expected {expected}: ids per query, padded with -1")
    if array.size and not (array.min() >= -1 and array.max() < classes):
        wrong = array[(array < -1) | (array >= classes)][0]
        raise InputError(f"{name} holds {wrong}; ids are from 0 to {classes - 1}, and -1 where there is none")
    return _contiguous(array, np.int64)


def check_count(name: str, value: Any, low: int = 1) -> int:
    """Return a whole number of at least `low`."""
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, int | np.integer)):
        raise InputTypeError(f"{name}={value!r} is not a whole number; give an int")
    if not low <= value < 2**63:
        raise InputError(f"{name}={value} is below {low} or absurdly large; give at least {low}")
    return int(value)


def check_names(name: str, names: Any, count: int) -> list[str]:
    """Return class names as a list of `count` strings."""
    if isinstance(names, str) or not isinstance(names, Sequence | np.ndarray):
        raise InputTypeError(f"{name} is a {type(names).__name__}; give a sequence of {count} strings")
    if len(names) != count:
        raise InputError(f"{name} has {len(names)} entries; expected {count}: one per class")
    listed = [str(entry) if isinstance(entry, np.str_) else entry for entry in names]
    for at, entry in enumerate(listed):
        if not isinstance(entry, str):
            raise InputTypeError(f"{name}[{at}]={entry!r} is not a string; pass str(...) of it")
    return listed
