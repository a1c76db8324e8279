"""bfloat16 as the core stores it: its bits in uint16, read exactly, written by stochastic rounding."""

from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._windows_and_signs import splitmix

Floats = npt.NDArray[np.float32]
Bits = npt.NDArray[np.uint16]
LARGEST, INFINITY = np.uint32(0x7F7F0000), np.uint32(0x7F800000)


def widened(rows: npt.NDArray[Any]) -> Floats:
    """Return stored rows as float32: a bfloat16 is the upper half of one."""
    return (rows.astype(np.uint32) << np.uint32(16)).view(np.float32) if rows.dtype == np.uint16 else rows


def stored(values: Floats, like: npt.NDArray[Any], noise: int, ids: npt.NDArray[np.int64], array: int) -> Any:
    """Return rows `ids` of an array (0: weight, 1 and 2: its states) as it keeps them."""
    return rounded(values, rounding_noise(noise, ids, array, values.shape[1])) if like.dtype == np.uint16 else values


def rounding_noise(noise: int, ids: npt.NDArray[np.int64], array: int, width: int) -> npt.NDArray[np.uint32]:
    """Return sixteen random bits for each column of each row, (ids, width): a function of all four arguments."""
    u = np.uint32
    counters = np.uint64(4) * ids.astype(np.uint64) + np.uint64(array + 1)
    keys = splitmix(np.uint64(noise) + counters * np.uint64(0x9E3779B97F4A7C15))[:, None]
    x = keys.astype(u) + np.arange(width, dtype=u) * u(0x9E3779B9)
    x = (x ^ (x >> u(16))) * u(0x7FEB352D)
    x ^= (keys >> np.uint64(32)).astype(u)
    x = (x ^ (x >> u(15))) * u(0x846CA68B)
    bits: npt.NDArray[np.uint32] = x >> u(16)
    return bits


def rounded(values: Floats, noise: npt.NDArray[np.uint32]) -> Bits:
    """Return values as bfloat16: up by the chance that the cut-off bits give, else down; finite stays finite."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    upper = (bits + np.where(magnitude < LARGEST, noise, np.uint32(0))) >> np.uint32(16)
    return (upper | np.where(magnitude > INFINITY, np.uint32(0x40), np.uint32(0))).astype(np.uint16)
