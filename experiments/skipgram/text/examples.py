"""Batches of words with their neighbours: functions of their number, made by native code on a thread of their own.

A word with all its neighbours is one example with several positives. A batch takes short segments from all over the
text, so that its words are not all of one article, in an order that every epoch shuffles anew; frequent words are left
out by chance (Mikolov et al. 2013), and every word takes the neighbours in a window of a random size.
"""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from experiments.skipgram.text.numbered_text import Words
from manyclass._backend import core
from manyclass._validation import check_count
from manyclass._windows_and_signs import permutation, random_words
from manyclass.errors import InputError

KEPT_ALWAYS = 0xFFFFFFFF
Made = TypeVar("Made")


@dataclass(frozen=True)
class Batch:
    """words: (n,) of each example, its place in `distinct`, ascending numbers. neighbours: (n, 2·window), or -1."""

    distinct: Tensor
    words: Tensor
    neighbours: Tensor

    def __len__(self) -> int:
        return len(self.words)

    @property
    def pairs(self) -> int:
        """Pairs of a word and one of its neighbours."""
        return int((self.neighbours >= 0).sum())


@dataclass(frozen=True)
class Examples:
    """The examples of a text. keep: of each word how often it stays, see `kept_share`; length: words of a segment."""

    text: Words
    keep: npt.NDArray[np.float64]
    window: int = 5
    segments: int = 32  # of a batch
    length: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("window", self.window)
        if len(self.text) < 2:
            raise InputError(f"the text has {len(self.text)} words; there must be two to be neighbours: give more text")

    @property
    def batches(self) -> int:
        """Batches of an epoch; what is left over after the last whole one waits for the next epoch's order."""
        return max(1, -(-len(self.text) // self.length) // self.segments)

    @cached_property
    def _thresholds(self) -> Words:
        return np.floor(self.keep * KEPT_ALWAYS).astype(np.uint32)

    def batch(self, number: int) -> Batch:
        """Return batch `number`, counted through all epochs: the same whenever it is asked for."""
        epoch, place = divmod(number, self.batches)
        order = shuffled(self.seed, epoch, -(-len(self.text) // self.length))
        begins = order[place * self.segments : (place + 1) * self.segments].astype(np.int64) * self.length
        return self.of_segments(begins, epoch)

    def of_segments(self, begins: npt.NDArray[np.int64], epoch: int = 0) -> Batch:
        """Return the examples of segments of `length` words, as they are in an epoch."""
        length = min(self.length, len(self.text))
        rows = len(begins) * length
        centres, neighbours = np.empty(rows, np.int64), np.empty((rows, 2 * self.window), np.int64)
        key = int(random_words(self.seed, 3_000_000 + epoch, 1)[0])
        made = core().skip_gram_examples(
            self.text, self._thresholds, begins, length, self.window, key, centres, neighbours
        )
        distinct, words = np.unique(centres[:made], return_inverse=True)
        return Batch(torch.from_numpy(distinct), torch.from_numpy(words), torch.from_numpy(neighbours[:made]))


def kept_share(counts: npt.NDArray[np.int64], sample: float) -> npt.NDArray[np.float64]:
    """Return how often each word stays, as word2vec's program has it: √(t/f) + t/f for one of frequency f above t."""
    if not sample:
        return np.ones(len(counts))
    relative = sample * counts.sum() / np.maximum(counts, 1)
    shares: npt.NDArray[np.float64] = np.minimum(1.0, np.sqrt(relative) + relative)
    return shares


@lru_cache(maxsize=2)
def shuffled(seed: int, epoch: int, segments: int) -> npt.NDArray[np.uint32]:
    """Return the order of the segments in an epoch."""
    return permutation(seed, 4_000_000 + epoch, segments)


def made_ahead(make: Callable[[int], Made], first: int = 0, depth: int = 4) -> Generator[Made, None, None]:
    """Yield make(first), make(first + 1), …, the next few of them made meanwhile on a thread."""
    maker = ThreadPoolExecutor(1, "examples")
    try:
        waiting = deque(maker.submit(make, first + ahead) for ahead in range(depth))
        while True:
            first += 1
            made = waiting.popleft().result()
            waiting.append(maker.submit(make, first + depth - 1))
            yield made
    finally:
        maker.shutdown(wait=True, cancel_futures=True)
