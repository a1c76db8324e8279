"""What a user wants of an index that configures itself."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from manyclass._self_configuration.plans import MOST_CANDIDATES
from manyclass._self_configuration.prices import Optimize
from manyclass._validation import check_count
from manyclass.config import check_target
from manyclass.errors import InputError, InputTypeError

# The share found of the queries to choose on must exceed the target: the best of many settings owes some of its share
# to chance, and other queries shall reach the target too. By so many standard errors, and so much of the way to one.
CAUTION = 1.5
MOST_OF_THE_WAY = 2 / 3


@dataclass(frozen=True)
class Wishes:
    """What a user wants of an index."""

    target: float = 0.99
    metric: Literal["top1", "recall"] = "top1"
    k: int = 10
    optimize: Optimize = "batch"
    memory: int | None = None

    def needed(self, queries: int) -> float:
        """Return the share that must be found of so many queries for the target to be met on others too."""
        error = float(np.sqrt(self.target * (1 - self.target) / max(1, queries)))
        return self.target + min(CAUTION * error, MOST_OF_THE_WAY * (1 - self.target))

    @property
    def columns(self) -> int:
        """How many of the best classes of each query shall be found."""
        return 1 if self.metric == "top1" else self.k

    @property
    def least(self) -> int:
        """Fewest candidates that a search may ask for."""
        return max(self.k, 1)

    @property
    def most(self) -> int:
        return max(MOST_CANDIDATES, 3 * self.k)


def checked_wishes(target: Any, metric: Any, k: Any, optimize: Any, memory: Any) -> Wishes:
    """Return what was asked for, or raise: each argument as in `ClassIndex.build`."""
    check_target(target)
    for name, value, known in (("metric", metric, ("top1", "recall")), ("optimize", optimize, ("batch", "single"))):
        if not isinstance(value, str):
            raise InputTypeError(f"{name} is a {type(value).__name__}; give {known[0]!r} or {known[1]!r}")
        if value not in known:
            raise InputError(f"{name}={value!r} is not known; give {known[0]!r} or {known[1]!r}")
    limit = None if memory is None else check_count("memory", memory)
    return Wishes(float(target), metric, check_count("k", k), optimize, limit)
