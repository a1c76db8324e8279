"""What every entry of a comparison looks like, and the two transforms the peers share."""

from abc import ABC, abstractmethod

import numpy as np


class Peer(ABC):
    """One way of finding the best classes, built once and searched at several settings.

    All of them answer the same question: the `k` classes with the largest `x · row + bias`.
    """

    name: str

    def __init__(self, classes: int, features: int, threads: int = 2) -> None:
        self.classes = classes
        self.features = features
        self.threads = threads

    @abstractmethod
    def build(self, rows: np.ndarray, bias: np.ndarray | None) -> None:
        """Index the rows (classes, features); raises ImportError if the library is not installed."""

    @abstractmethod
    def settings(self) -> list[dict]:
        """Return the run-time settings that make up its frontier, fastest first."""

    @abstractmethod
    def search(self, queries: np.ndarray, k: int, setting: dict, batch_mode: bool) -> np.ndarray:
        """Return class ids int64 (queries, k), best first; `batch_mode` is False for one query at a time."""

    @abstractmethod
    def bytes_per_class(self) -> float:
        """Return all it keeps in memory, its copy of the rows included, divided by the classes."""

    def update_one(self, row_id: int, new_row: np.ndarray) -> bool:
        """Re-index one changed row; returns False if the library offers no way to do that in place."""
        return False


def with_bias_column(rows: np.ndarray, bias: np.ndarray | None, multiple: int = 1) -> np.ndarray:
    """Return rows whose inner product with `with_ones_column(query)` is the logit, bias included.

    Columns of zeros fill up to a multiple of `multiple`: product quantizers split the columns evenly.
    """
    columns = _padded(rows.shape[1] + (bias is not None), multiple)
    widened = np.zeros((len(rows), columns), np.float32)
    widened[:, : rows.shape[1]] = rows
    if bias is not None:
        widened[:, rows.shape[1]] = bias
    return widened


def with_ones_column(queries: np.ndarray, columns: int) -> np.ndarray:
    """Return queries widened to `columns`, with a 1 where the rows carry their bias."""
    if queries.shape[1] == columns:
        return queries
    widened = np.zeros((len(queries), columns), np.float32)
    widened[:, : queries.shape[1]] = queries
    widened[:, queries.shape[1]] = 1
    return widened


def _padded(columns: int, multiple: int) -> int:
    return -(-columns // multiple) * multiple
