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
        """Return how many candidates to look up in every share where `candidates` of all classes are wanted.

        The even part, and five standard deviations more, as classes are dealt out without looking at them.
        """
        part = candidates / self.ranks
        return min(candidates, self.most_rows, candidates if self.ranks == 1 else math.ceil(part + 5 * part**0.5))
