"""Which shard owns which class: classes are shuffled by a seed, and each shard owns a range of the shuffled order.

Shuffled, so that popular classes, which often have neighbouring ids, do not meet on one shard, and so that each shard
holds about its share of the best classes of any input. A range, so that another number of shards is another way to
cut the same order. The shuffle is a Feistel network over the ids: computed, never stored, whatever the number of
classes; numbers it throws past the last class are thrown again until they fall among the classes.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manyclass._validation import Ids, check_count
from manyclass._windows_and_signs import random_words, splitmix
from manyclass.errors import ConfigError

ROUNDS = 4
STREAM = 4_000_000  # of random words, apart from those of an index

Words = npt.NDArray[np.uint64]


class Owned(NamedTuple):
    """Ids of one shard: their places in what was asked for, and the rows that they have there."""

    places: Ids
    rows: Ids


@dataclass(frozen=True)
class Placement:
    """Where classes are. classes: how many; shards: how many own them; seed: of the shuffle."""

    classes: int
    shards: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("classes", self.classes)
        check_count("shards", self.shards)
        check_count("seed", self.seed, low=0)
        if self.shards > self.classes:
            raise ConfigError(f"shards={self.shards} is more than classes={self.classes}; give at most one per class")

    @cached_property
    def starts(self) -> Ids:
        """The first position of each shard, and the number of classes: (shards + 1,)."""
        return np.arange(self.shards + 1, dtype=np.int64) * self.classes // self.shards

    def size(self, shard: int) -> int:
        """Return how many classes a shard owns."""
        return int(self.starts[shard + 1] - self.starts[shard])

    def locate(self, ids: npt.ArrayLike) -> tuple[Ids, Ids]:
        """Return the shard of each class, and its row there."""
        positions = self.positions(ids)
        shards = np.searchsorted(self.starts, positions, side="right") - 1
        return shards, positions - self.starts[shards]

    def split(self, ids: Ids) -> list[Owned]:
        """Return for every shard which of these classes it owns; ids (n,), none negative."""
        shards, rows = self.locate(ids)
        order = np.argsort(shards, kind="stable")
        cuts = np.searchsorted(shards[order], np.arange(1, self.shards))
        return [Owned(places, rows[places]) for places in np.split(order, cuts)]

    def ids(self, shard: int, rows: npt.ArrayLike) -> Ids:
        """Return the classes that rows of a shard belong to; negative rows stay as they are."""
        wanted = np.asarray(rows, np.int64)
        found = self._unshuffled(np.maximum(wanted, 0) + self.starts[shard])
        return np.where(wanted < 0, wanted, found)

    def positions(self, ids: npt.ArrayLike) -> Ids:
        """Return the place of each class in the shuffled order."""
        return self._walk(np.asarray(ids, np.int64), reverse=False)

    def _unshuffled(self, positions: Ids) -> Ids:
        return self._walk(positions, reverse=True)

    @cached_property
    def _half(self) -> int:
        """Bits of one half of a number that can hold every class."""
        return max(1, -(-(self.classes - 1).bit_length() // 2))

    @cached_property
    def _keys(self) -> Words:
        return random_words(self.seed, STREAM, ROUNDS)

    def _walk(self, numbers: Ids, reverse: bool) -> Ids:
        found = self._network(numbers.astype(np.uint64), reverse)
        outside = found >= np.uint64(self.classes)
        while outside.any():  # fewer than three in four at worst, so that this ends soon
            found[outside] = self._network(found[outside], reverse)
            outside = found >= np.uint64(self.classes)
        return found.astype(np.int64)

    def _network(self, numbers: Words, reverse: bool) -> Words:
        half, mask = np.uint64(self._half), np.uint64((1 << self._half) - 1)
        left, right = numbers >> half, numbers & mask
        for key in self._keys[::-1] if reverse else self._keys:
            if reverse:
                left, right = right ^ (splitmix(left ^ key) & mask), left
            else:
                left, right = right, left ^ (splitmix(right ^ key) & mask)
        return (left << half) | right
