"""Which classes of a shard a step computes: members stand for themselves, random ones for all the others."""

from typing import NamedTuple

import numpy as np

from manyclass._backend import core
from manyclass._validation import Ids
from manyclass._windows_and_signs import random_words
from manyclass.distributed.steps.step_math import Doubles

STREAM = 5_000_000  # of random words, apart from those of an index and of the placement


class ChosenClasses(NamedTuple):
    """Rows of a shard, ascending, and the log of how many classes each stands for."""

    rows: Ids
    log_weights: Doubles


def tail_seed(seed: int, worker: int, shard: int) -> int:
    """Return the seed of the random classes that a worker computes of a shard: nobody draws as another does."""
    return seed + (worker + 1 << 32) + (shard + 1 << 48)


def with_tail(members: Ids, classes: int, tail: int, seed: int, ticket: int) -> ChosenClasses:
    """Return members and `tail` draws from a shard's other rows, each of which stands for its share of them.

    members: rows, in any order, negative for none. The same seed and ticket draw the same. A shard draws from its own
    rows alone: shares of the tail that follow the shards' sizes make one stratified sample of all classes.
    """
    none = np.empty(0, np.int64)
    distinct, _ = core().counted_ids(np.ascontiguousarray(members, np.int64), none)
    outside = classes - len(distinct)
    if not tail or not outside:
        return ChosenClasses(distinct, np.zeros(len(distinct)))
    words = random_words(seed, STREAM + ticket, tail)
    draws = (words % np.uint64(outside)).astype(np.int64)
    drawn, times = core().counted_ids(draws, distinct)
    log_weights = np.log(times * (outside / tail))
    return ChosenClasses(*core().merged_classes(distinct, 0.0, drawn, log_weights))


def share_of_tail(tail: int, shard: int, shards: int) -> int:
    """Return how many of the random classes a shard draws: all shards together draw `tail`, and each at least one."""
    return max(1, (shard + 1) * tail // shards - shard * tail // shards) if tail else 0
