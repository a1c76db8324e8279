"""What every peer is asked: rows, queries and labels, with the exact answer beside them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from experiments.peers.exact_best import ExactBest, exact_best
from experiments.peers.peer import Floats, Ids
from manyclass.errors import InputError

DEPTH = 10  # exact best classes that are known of every query


@dataclass
class Problem:
    """Rows (classes, features), perhaps a bias (classes,), and queries (n, features) with the class each belongs to.

    Held in memory and writable, as in a model: read-only arrays and memory maps are copied.
    """

    rows: Floats
    bias: Floats | None
    queries: Floats
    labels: Ids

    def __post_init__(self) -> None:
        self.rows = np.require(self.rows, np.float32, ["C", "W"])
        self.bias = None if self.bias is None else np.require(self.bias, np.float32, ["C", "W"])
        self.queries = np.require(self.queries, np.float32, ["C", "W"])
        self.labels = np.asarray(self.labels, np.int64)
        if self.rows.ndim != 2 or (self.bias is not None and self.bias.shape != self.rows.shape[:1]):
            shape = None if self.bias is None else self.bias.shape
            raise InputError(f"rows has shape {self.rows.shape} and bias {shape}; give one bias per row")
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

    def first(self, count: int) -> "Problem":
        """Return the same rows with so many of the queries, and their exact answers if they are known."""
        if count >= len(self.queries):
            return self
        part = Problem(self.rows, self.bias, self.queries[:count], self.labels[:count])
        if "exact" in vars(self):
            part.exact = self.exact.first(count)
        return part

    def halves(self) -> "Halves":
        """Return the same rows with the first half of the queries, to choose settings by, and with the second."""
        middle = len(self.queries) // 2
        first, second = slice(middle), slice(middle, None)
        return Halves(*(Problem(self.rows, self.bias, self.queries[of], self.labels[of]) for of in (first, second)))

    @cached_property
    def exact(self) -> ExactBest:
        """The exact top-10 of every query, computed once. Cost: queries × classes × features."""
        return exact_best(self.rows, self.bias, self.queries, min(DEPTH, self.classes))

    @cached_property
    def exact_accuracy(self) -> float:
        """How often the exact best class is the label."""
        return self.accuracy(self.exact.classes[:, 0])

    def accuracy(self, found: Ids, among: npt.NDArray[np.bool_] | None = None) -> float:
        """Return the share of queries (n,), or of some of them, whose class was found; an exact tie with it counts."""
        right = self.same_logit(found, self.labels)
        return float(np.mean(right if among is None else right[among]))

    def same_logit(self, found: Ids, wanted: Ids) -> npt.NDArray[np.bool_]:
        """Return, per query, whether the class found is the class wanted or ties with it up to rounding.

        WordNet has a thousand glosses that occur twice; which of two equal rows comes first says nothing.
        """
        same = np.asarray(found == wanted)
        other = np.flatnonzero(~same & (found >= 0))  # -1 where a search found nothing
        found_logits, wanted_logits = (self._logits_of(other, ids[other]) for ids in (found, wanted))
        same[other] = np.abs(found_logits - wanted_logits) <= 1e-6 * (1 + np.abs(wanted_logits))
        return same

    def _logits_of(self, positions: Ids, classes: Ids) -> npt.NDArray[np.float64]:
        queries, rows = self.queries[positions], self.rows[classes]
        logits: npt.NDArray[np.float64] = np.einsum("qf,qf->q", queries, rows, dtype=np.float64)
        return logits if self.bias is None else logits + self.bias[classes]


@dataclass(frozen=True)
class Halves:
    """One layer twice: settings are chosen on some queries and judged on others, which nobody saw before."""

    calibration: Problem
    judging: Problem
