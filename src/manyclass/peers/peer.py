"""What every entry of a comparison looks like, and the two transforms the peers share."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Setting = dict[str, Any]  # run-time knobs by name; it is recorded as it is


class Peer(ABC):
    """One way of finding the best classes, built once and searched at several settings.

    All of them answer the same question: the `k` classes with the largest `x · row + bias`.
    """

    name: str
    install = ""  # how to get the library it needs; empty where manyclass itself brings it

    def __init__(self, classes: int, features: int, threads: int = 2) -> None:
        self.classes = classes
        self.features = features
        self.threads = threads

    @abstractmethod
    def build(self, rows: Floats, bias: Floats | None) -> None:
        """Index the rows (classes, features); raises ImportError if the library is not installed."""

    @abstractmethod
    def settings(self) -> list[Setting]:
        """Return the run-time settings that make up its frontier, fastest first."""

    @abstractmethod
    def search(self, queries: Floats, k: int, setting: Setting, batch_mode: bool) -> Ids:
        """Return class ids int64 (queries, k), best first; `batch_mode` is False for one query at a time."""

    @abstractmethod
    def bytes_per_class(self) -> float:
        """Return all it keeps in memory, its copy of the rows included, divided by the classes."""

    def answers(self, queries: Floats, k: int, setting: Setting) -> Ids:
        """Return what `search` finds, for judging: a peer may have a way that is quicker for very many queries."""
        return self.search(queries, k, setting, batch_mode=True)

    def update_one(self, row_id: int, new_row: Floats) -> bool:
        """Re-index one changed row; returns False if the library offers no way to do that in place."""
        return False


def with_bias_column(rows: Floats, bias: Floats | None, multiple: int = 1) -> Floats:
    """Return rows whose inner product with `with_ones_column(query)` is the logit, bias included.

    Columns of zeros fill up to a multiple of `multiple`: product quantizers split the columns evenly.
    """
    columns = _padded(rows.shape[1] + (bias is not None), multiple)
    widened = np.zeros((len(rows), columns), np.float32)
    widened[:, : rows.shape[1]] = rows
    if bias is not None:
        widened[:, rows.shape[1]] = bias
    return widened


def with_ones_column(queries: Floats, columns: int) -> Floats:
    """Return queries widened to `columns`, with a 1 where the rows carry their bias."""
    if queries.shape[1] == columns:
        return queries
    widened = np.zeros((len(queries), columns), np.float32)
    widened[:, : queries.shape[1]] = queries
    widened[:, queries.shape[1]] = 1
    return widened


def _padded(columns: int, multiple: int) -> int:
    return -(-columns // multiple) * multiple
