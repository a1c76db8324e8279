"""The trained softmax layer that is approximated, with the held-out examples it is asked about."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from manyclass.errors import InputError
from manyclass.peers.judging import ExactAnswer, same_logit
from manyclass.peers.peer import Floats, Ids
from manyclass.quality import exact_answer

QUERIES_AT_ONCE = 1024


@dataclass
class TrainedLayer:
    """Rows (classes, features) and bias (classes,), and queries (n, features) with the class each belongs to.

    Held in memory and writable, as in a model: read-only arrays and memory maps are copied.
    """

    rows: Floats
    bias: Floats
    queries: Floats
    labels: Ids

    def __post_init__(self) -> None:
        self.rows = np.require(self.rows, np.float32, ["C", "W"])
        self.bias = np.require(self.bias, np.float32, ["C", "W"])
        self.queries = np.require(self.queries, np.float32, ["C", "W"])
        self.labels = np.asarray(self.labels, np.int64)
        if self.rows.ndim != 2 or self.bias.shape != self.rows.shape[:1]:
            raise InputError(f"rows has shape {self.rows.shape} and bias {self.bias.shape}; give one bias per row")
        if self.queries.ndim != 2 or self.queries.shape[1] != self.features or not len(self.queries):
            raise InputError(f"queries has shape {self.queries.shape}; expected (1 or more, {self.features})")
        if self.labels.shape != self.queries.shape[:1]:
            raise InputError(f"labels has shape {self.labels.shape} for {len(self.queries)} queries; give one each")

    @property
    def classes(self) -> int:
        return len(self.rows)

    @property
    def features(self) -> int:
        return int(self.rows.shape[1])

    @cached_property
    def exact(self) -> ExactAnswer:
        """The exact top-10 of every query and their accuracy, computed once. Cost: queries × classes × features."""
        best = min(10, self.classes)
        parts = [
            exact_answer(self.rows, self.bias, self.queries[start : start + QUERIES_AT_ONCE], best).classes
            for start in range(0, len(self.queries), QUERIES_AT_ONCE)
        ]
        top = np.vstack(parts)
        return ExactAnswer(top, self.accuracy(top[:, 0]))

    def accuracy(self, found: Ids, among: npt.NDArray[np.bool_] | None = None) -> float:
        """Return the share of queries (n,), or of some of them, whose class was found; an exact tie with it counts."""
        right = same_logit(self, found, self.labels)
        return float(np.mean(right if among is None else right[among]))
