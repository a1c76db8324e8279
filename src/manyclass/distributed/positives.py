"""The targets of a batch as pairs of example and class, split over the shards that own them."""

import numpy as np
import numpy.typing as npt

from manyclass._validation import Ids
from manyclass.distributed.messages import Floats, Positives
from manyclass.distributed.placement import Placement
from manyclass.errors import InputError


class Targets:
    """Distinct (example, class) pairs of a batch; the positives of an example share its target evenly.

    given: (examples,) or (examples, n) class ids, negative where there is none.
    """

    def __init__(self, given: npt.ArrayLike, classes: int) -> None:
        table = np.asarray(given, np.int64)
        table = table[:, None] if table.ndim == 1 else table
        if table.size and int(table.max()) >= classes:
            raise InputError(f"a target is class {int(table.max())}; classes are from 0 to {classes - 1}")
        examples, columns = np.nonzero(table >= 0)
        keys = np.unique(examples * np.int64(classes) + table[examples, columns])  # a class given twice counts once
        self.count = len(table)
        self.examples: Ids = keys // classes
        self.classes: Ids = keys % classes
        counts = np.bincount(self.examples, minlength=self.count)
        self.shares: Floats = (1 / counts[self.examples]).astype(np.float32)
        self.present: npt.NDArray[np.bool_] = counts > 0  # examples that say anything

    def split(self, placement: Placement) -> list[Positives]:
        """Return for every shard its pairs."""
        return [
            Positives(self.examples[places].astype(np.uint32), rows.astype(np.uint32), self.shares[places])
            for places, rows in placement.split(self.classes)
        ]


def as_table(examples: Ids, values: Ids, count: int, absent: int = -1) -> tuple[Ids, tuple[Ids, Ids]]:
    """Return values as a table with a line per example, `absent` where it has fewer; and where each value is in it."""
    counts = np.bincount(examples, minlength=count)
    ranks = np.empty(len(examples), np.int64)
    order = np.argsort(examples, kind="stable")
    ranks[order] = np.arange(len(examples)) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.full((count, int(counts.max(initial=0))), absent, np.int64)
    table[examples, ranks] = values
    return table, (examples, ranks)


def without(found: Ids, own: Ids) -> Ids:
    """Return candidates (examples, n) with -1 for those that the example has among its own (examples, p) already."""
    return np.where((found[:, :, None] == own[:, None, :]).any(2), -1, found)
