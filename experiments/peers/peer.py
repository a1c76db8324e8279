"""What every entry of a comparison looks like, and the transform that peers without a bias share."""

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
    takes_queries = False  # whether a sample of queries can teach it something
    sample: Floats | None = None  # that sample, set before `build`; None: build from the rows alone
    judged_queries: int | None = None  # so many suffice to judge it; None: ask all

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


class Widened:
    """Rows with their bias as one more column, for libraries that know inner products only.

    The column is made as large as the others, and the queries' with it as much larger than 1: logits stay the same,
    and where a library compares rows with each other, to link or to group them, the bias does not outweigh them all.
    Columns of zeros fill up to a multiple of `multiple`, as product quantizers split columns evenly, and to `least`.
    """

    def __init__(self, rows: Floats, bias: Floats | None, multiple: int = 1, least: int = 1) -> None:
        self.features = int(rows.shape[1])
        needed = max(least, self.features + (bias is not None))
        self.columns: int = -(-needed // multiple) * multiple
        self.scale = 1.0 if bias is None else _power_of_two(_size(bias) / (_size(rows) or 1.0))
        self.rows: Floats = np.zeros((len(rows), self.columns), np.float32)
        self.rows[:, : self.features] = rows
        if bias is not None:
            self.rows[:, self.features] = bias / self.scale

    def widen(self, queries: Floats) -> Floats:
        """Return queries whose inner product with the rows is the logit, bias included."""
        if self.features == self.columns:
            return queries
        widened = np.zeros((len(queries), self.columns), np.float32)
        widened[:, : self.features] = queries
        widened[:, self.features] = self.scale
        return widened

    def changed(self, row_id: int, new_row: Floats) -> Floats:
        """Return a row with other features and its own bias."""
        row: Floats = self.rows[row_id].copy()
        row[: self.features] = new_row
        return row


def _size(values: Floats) -> float:
    """Return the root mean square; of a sample of the rows, which may be many."""
    some = values[:: max(1, len(values) // 10_000)]
    return float(np.sqrt(np.mean(np.square(some, dtype=np.float64))))


def _power_of_two(value: float) -> float:
    """Return the nearest power of two, so that dividing by it loses nothing; 1 for 0."""
    return 2.0 ** round(np.log2(value)) if value > 0 else 1.0


def setting_in_words(setting: Setting) -> str:
    """Return a setting as one reads it: probes 8, refine 4."""
    return ", ".join(f"{knob} {value}" for knob, value in setting.items())
