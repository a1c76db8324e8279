"""Who has which class where several share them: dealt out like cards, class c to share c % count as its row c // count.

So frequent classes are spread evenly where ids are sorted by frequency, neighbours are apart, ascending ids are
ascending rows, and the rows of one share are a strided slice of all: another number of shares is another stride.
"""

import math
from typing import NamedTuple


class ClassShares(NamedTuple):
    """One share of all classes: a number of so many."""

    classes: int
    rank: int
    ranks: int

    @property
    def rows(self) -> int:
        """How many classes this share has."""
        return self.rows_of(self.rank)

    @property
    def most_rows(self) -> int:
        """How many classes any share has at most."""
        return self.rows_of(0)

    def rows_of(self, rank: int) -> int:
        """Return how many classes a share has."""
        return len(range(rank, self.classes, self.ranks))

    def candidates_each(self, candidates: int) -> int:
        """Return how many candidates to look up in every share where `candidates` of all classes are wanted."""
        return min(self.most_rows, candidates_each(candidates, self.ranks))


def candidates_each(candidates: int, shares: int) -> int:
    """Return how many candidates each share gives so that it almost never cuts off one of the best of all of them.

    Classes are dealt out without looking at them, so the number of the best that a share has is about Poisson: five
    standard deviations above the even part are enough for all but a few of a million examples.
    """
    part = candidates / shares
    return min(candidates, candidates if shares == 1 else math.ceil(part + 5 * part**0.5))
