"""The specification of a step's list of classes: drawn ones and given ones together, ascending."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int32]


class Chances(NamedTuple):
    """What the chance of a class to be in a step follows from; torch/tail_and_targets.py says why.

    known: targets that are counted. alike: times that each class counts as met beforehand. new_share: of the targets
    that are of classes not met before. classes_left: that are not removed. others: targets of the other examples.
    draws: uniform ones.
    """

    known: float
    alike: float
    new_share: float
    classes_left: float
    others: float
    draws: float

    def shares(self, met: npt.ArrayLike) -> Doubles:
        """Return how likely the next target is of a class, for classes that were met so often."""
        known = (np.asarray(met) + self.alike) / (self.known + self.alike * self.classes_left)
        shares: Doubles = (1 - self.new_share) * known + self.new_share / self.classes_left
        return shares

    def of_classes(self, met: npt.ArrayLike) -> Doubles:
        """Return how likely a class is in a step, for classes that were met so often."""
        absent = self.others * _log_of_rest(self.shares(met)) + self.draws * _log_of_rest(1 / self.classes_left)
        return -np.expm1(absent)


def _log_of_rest(share: npt.ArrayLike) -> Doubles:
    """Return log(1 - share), also of a share that rounds to one."""
    return np.log1p(-np.minimum(share, 1 - 2.0**-40))


def counted_ids(draws: Ids, members: Ids) -> tuple[Ids, Ids]:
    """Return the distinct ids that were drawn, ascending, and how often each was.

    Draws number the ids that are not among `members`, distinct and ascending; negative ones are left out.
    """
    distinct, times = np.unique(draws[draws >= 0], return_counts=True)
    outsiders_before = members - np.arange(len(members))  # each member
    return distinct + np.searchsorted(outsiders_before, distinct, side="right"), times


def merged_classes(given: Ids, log_weight: float, drawn: Ids, drawn_log_weights: Doubles) -> tuple[Ids, Doubles]:
    """Return given ids, negative for none, and drawn ones, distinct and ascending, as one list with log weights.

    Given ones have one log weight, unless they are drawn, too: drawn ones keep theirs.
    """
    ids = np.union1d(given[given >= 0], drawn)
    log_weights = np.full(len(ids), log_weight)
    log_weights[np.searchsorted(ids, drawn)] = drawn_log_weights
    return ids, log_weights


def sampled_classes(targets: Ids, draws: Ids, counts: Counts, chances: Chances) -> tuple[Ids, Doubles]:
    """Return targets and draws, negative for none, as one list, with log(1 / chance) of each class.

    counts: of every id, how often it was a target lately.
    """
    ids = np.union1d(targets[targets >= 0], draws[draws >= 0])
    return ids, -np.log(chances.of_classes(counts[ids]))


def count_targets(targets: Ids, counts: Counts, ring: Counts, place: int) -> tuple[int, int, int]:
    """Count targets, and write them to the ring from `place` on; what they overwrite there counts no more.

    Return how often they were counted before in all, how many were not, and the ordered pairs of equal ones.
    """
    before = counts[targets]
    _, times = np.unique(targets, return_counts=True)
    places = (place + np.arange(len(targets))) % len(ring)
    old = ring[places]
    np.add.at(counts, targets, 1)
    np.subtract.at(counts, old[old >= 0], 1)
    ring[places] = targets
    return int(before.sum()), int((before == 0).sum()), int((times * (times - 1)).sum())
