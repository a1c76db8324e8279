"""The specification of a step's list of classes: drawn ones and given ones together, ascending."""

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]


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
