"""The index over the rows of one shard: built when first asked, hashed anew a slice at a time, and how old it is."""

import threading
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manyclass._training_config import training_config
from manyclass._validation import Ids
from manyclass.distributed.messages import Floats
from manyclass.distributed.settings import HeadSettings
from manyclass.distributed.steps.exact_search import best_rows
from manyclass.distributed.steps.refresh_turns import RefreshTurns
from manyclass.index import ClassIndex


class TableAge(NamedTuple):
    """How long ago entries were hashed, in look-ups."""

    mean: float
    largest: int


class ShardIndex:
    """Finds candidates among rows that move.

    settings: of the layer: how candidates are found, and how often rows are hashed anew (see `RefreshTurns`).
    weight, bias: the arrays that move in place. threads: of this index.
    """

    def __init__(self, settings: HeadSettings, weight: Floats, bias: Floats | None, threads: int) -> None:
        self.weight, self.bias, self.threads = weight, bias, threads
        candidates = settings.mined_candidates if settings.shared else settings.candidates
        self.config = settings.config or training_config(weight.shape[0], weight.shape[1], candidates)
        self.look_ups = 0
        self._turns = RefreshTurns(len(weight), period=settings.refresh_steps, limit=settings.refresh_limit)
        self._hashed_at: npt.NDArray[np.int32] = np.zeros(len(weight), np.int32)
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
        """Hash a slice anew: the rows whose turn it is, and some that have moved. Before every look-up."""
        self.rehash(self.turn())

    def note_moved(self, rows: Ids, gradients: Floats) -> None:
        """Remember rows that gradients have moved: those pulled farthest are among the next that are hashed anew."""
        with self._building:
            if self._index is not None:  # what is not built yet will know
                self._turns.moved(rows, _lengths(gradients))

    def store(self, rows: Ids, weight: Floats, bias: Floats | None) -> None:
        """Write rows that were changed elsewhere into the arrays; for `rehash` they are rows that moved."""
        with self._building:
            if self._index is not None:
                self._turns.moved(rows, _lengths(weight - self.weight[rows]))
            self.weight[rows] = weight
            if self.bias is not None and bias is not None:
                self.bias[rows] = bias

    def turn(self) -> Ids:
        """Return the rows whose turn it is, ascending, and pass the turn on: those to be had from elsewhere."""
        with self._building:
            self.look_ups += 1
            return self._turns.next_turn()

    def rehash(self, turn: Ids) -> None:
        """Hash the rows of a turn anew, and, up to the limit, those that have moved farthest since they were hashed."""
        with self._building:
            if self._index is not None:
                rows = self._turns.with_moved(turn)
                bias = None if self.bias is None else self.bias[rows]
                self._index.refresh(rows, bias=bias, threads=self.threads)
                self._hashed_at[rows] = self.look_ups

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
            self._turns.all_hashed()
        return self._index


def _lengths(rows: Floats) -> Floats:
    """Return the length of each row."""
    found: Floats = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return found
