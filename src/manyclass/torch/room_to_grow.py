"""Rows that grow in place: a tensor over the beginning of a longer piece of memory, so that adding copies no old row.

Only the first growth copies, into room for half as many rows again; the system provides that room page by page as it is
written. The tensor's own storage ends where its rows end: no state dict, pickle or copy of it holds the spare room.
"""

import weakref
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class _Room(NamedTuple):
    """Memory that tensors were put into, alive as long as one of them is, and how many bytes of it are taken."""

    memory: "weakref.ref[npt.NDArray[np.uint8]]"
    taken: int


_ROOMS: dict[int, _Room] = {}  # by address


def grown(old: Tensor, new: Tensor) -> Tensor:
    """Return a tensor of the rows of `old` and then of `new`, in the memory of `old` if that has room behind it.

    Both have the same dtype and shape of a row. Where another tensor has grown into that room before, the rows are
    copied: nobody's rows are written over.
    """
    if old.device.type != "cpu" or not old.is_contiguous():
        return torch.cat([old, new])
    address, begin, end = old.data_ptr(), old.nbytes, old.nbytes + new.nbytes
    room = _ROOMS.get(address)
    memory = None if room is None or room.taken != begin else room.memory()
    if memory is None or memory.size < end:
        memory = torch.empty(end + begin // 2, dtype=torch.uint8).numpy()
        address = memory.__array_interface__["data"][0]
        weakref.finalize(memory, _ROOMS.pop, address, None)
        together = _over(memory, end, old, len(old) + len(new))
        together[: len(old)] = old
    else:
        together = _over(memory, end, old, len(old) + len(new))
    together[len(old) :] = new
    _ROOMS[address] = _Room(weakref.ref(memory), end)
    return together


def _over(memory: npt.NDArray[Any], end: int, like: Tensor, rows: int) -> Tensor:
    """Return the first bytes of some memory as rows; the storage of the result is no longer than they are."""
    return torch.from_numpy(memory[:end]).view(like.dtype).view(rows, *like.shape[1:])
