"""The rows of a rank as tensors: which class ids are its own, and where it starts to learn from."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from manyclass._class_shares import ClassShares
from manyclass._windows_and_signs import splitmix

DRAWN_AT_ONCE = 1 << 20  # numbers


class ClassShards(ClassShares):
    """The share of one rank in all classes."""

    def here(self, ids: Tensor) -> Tensor:
        """Return which class ids, of any shape, are of this rank; negative ones (absent) are of none."""
        return (ids >= 0) & (ids % self.ranks == self.rank)

    def rows_for(self, ids: Tensor) -> Tensor:
        """Return the row of each class id, -1 where it is absent or of another rank."""
        return torch.where(self.here(ids), ids // self.ranks, -1)

    def ids_of(self, rows: Tensor) -> Tensor:
        """Return the class id of each row of this rank, -1 where a row is negative."""
        return torch.where(rows >= 0, rows * self.ranks + self.rank, -1)

    def part(self, per_class: Tensor) -> Tensor:
        """Return what belongs to this rank's classes of something with an entry per class: a view."""
        return per_class[self.rank :: self.ranks]


def drawn_rows(shards: ClassShards, features: int, bound: float, seed: int, into: Tensor) -> None:
    """Fill rows with numbers from -bound to bound that follow from seed and class id, whatever the ranks.

    into: (rows,) or (rows, features); a head's bias has other numbers than its rows.
    """
    width = features if into.dim() == 2 else 1
    stream = splitmix(np.array([seed], np.uint64) ^ splitmix(np.array([into.dim()], np.uint64)))
    columns = np.arange(1, width + 1, dtype=np.uint64)
    step = max(1, DRAWN_AT_ONCE // width)
    for begin in range(0, shards.rows, step):
        rows = torch.arange(begin, min(begin + step, shards.rows))
        ids = shards.ids_of(rows).numpy().astype(np.uint64)
        words = splitmix(stream + (ids[:, None] * np.uint64(width) + columns) * np.uint64(0x9E3779B97F4A7C15))
        drawn: npt.NDArray[np.float64] = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        into[begin : begin + len(rows)] = torch.from_numpy((2 * drawn - 1) * bound).reshape(-1, *into.shape[1:])
