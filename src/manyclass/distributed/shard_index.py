"""The index over the rows of one shard: built when first asked, hashed anew a slice at a time, and how old it is."""

import threading
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manyclass._training_config import training_config
from manyclass._validation import Ids
from manyclass.config import HashConfig
from manyclass.distributed.messages import Floats
from manyclass.index import ClassIndex


class TableAge(NamedTuple):
    """How long ago entries were hashed, in look-ups."""

    mean: float
    largest: int


class ShardIndex:
    """Finds candidates among rows that move.

    weight, bias: the arrays that move in place. config: None: what suits the size. period: look-ups in which every row
    is hashed anew once, in turn (the paper's round robin); limit: at most so many at a time, of which half may be rows
    that have just moved.
    """

    def __init__(
        self,
        weight: Floats,
        bias: Floats | None,
        config: HashConfig | None,
        *,
        candidates: int,
        period: int,
        limit: int,
        threads: int,
    ) -> None:
        self.weight, self.bias, self.threads = weight, bias, threads
        self.config = config or training_config(weight.shape[0], weight.shape[1], candidates)
        self.period, self.limit = period, limit
        self.cursor, self.look_ups = 0, 0
        self._hashed_at: npt.NDArray[np.int32] = np.zeros(len(weight), np.int32)
        self._moved: Ids = np.empty(0, np.int64)
        self._index: ClassIndex | None = None
        self._building = threading.Lock()

    def shortlist(self, x: Floats, count: int) -> Ids:
        """Return rows of `count` candidates per input, likeliest first, -1 where there is none.

        The caller keeps the rows from moving meanwhile.
        """
        index = self.index()
        found = index.shortlist(x, min(count, len(self.weight)), threads=self.threads)
        if found.shape[1] <= count:
            return found
        return best_rows(self.weight, self.bias, x, count)[0]  # an index of few classes gives all, in no order

    def refresh(self) -> None:
        """Hash a slice anew: the rows whose turn it is, and some that have just moved. Before every look-up."""
        with self._building:
            self.look_ups += 1
            if self._index is not None:
                turn = self._turn()
                moved = self._moved[: max(0, self.limit - len(turn))]
                self._moved = self._moved[:0]
                self._hash(self._index, np.union1d(turn, moved))

    def note_moved(self, rows: Ids) -> None:
        """Remember rows that have just moved: they are among the next that are hashed anew."""
        with self._building:
            self._moved = rows

    def store(self, rows: Ids, weight: Floats, bias: Floats | None) -> None:
        """Write rows that were changed elsewhere into the arrays, and hash them anew."""
        with self._building:
            self.weight[rows] = weight
            if self.bias is not None and bias is not None:
                self.bias[rows] = bias
            if self._index is not None:
                self._hash(self._index, rows)

    def turn(self) -> Ids:
        """Return the rows whose turn it is, ascending, and pass the turn on: those to be had from elsewhere."""
        with self._building:
            self.look_ups += 1
            return self._turn()

    def _turn(self) -> Ids:
        count = min(self.limit, -(-len(self.weight) // self.period))
        rows = (self.cursor + np.arange(count)) % len(self.weight)
        self.cursor = int((self.cursor + count) % len(self.weight))
        return np.sort(rows)

    def age(self) -> TableAge:
        """Return how old the entries are."""
        ages = self.look_ups - self._hashed_at
        return TableAge(float(ages.mean()), int(ages.max()))

    def index(self) -> ClassIndex:
        """Return the index, built if there is none."""
        with self._building:
            return self._built()

    def _built(self) -> ClassIndex:
        if self._index is None:
            self._index = ClassIndex.build(self.weight, bias=self.bias, config=self.config, threads=self.threads)
            self._hashed_at[:] = self.look_ups
        return self._index

    def _hash(self, index: ClassIndex, rows: Ids) -> None:
        index.refresh(rows, bias=None if self.bias is None else self.bias[rows], threads=self.threads)
        self._hashed_at[rows] = self.look_ups


def best_rows(weight: Floats, bias: Floats | None, x: Floats, count: int) -> tuple[Ids, Floats]:
    """Return the `count` rows with the largest logits per input, best first, and those logits, by looking at all."""
    logits = x @ weight.T
    if bias is not None:
        logits += bias
    count = min(count, len(weight))
    found = np.argpartition(logits, -count, axis=1)[:, -count:]
    values = np.take_along_axis(logits, found, 1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(found, order, 1), np.take_along_axis(values, order, 1)
