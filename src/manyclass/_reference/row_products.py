"""The specification of training's products: logits of chosen rows per example, and their gradients."""

import numpy as np
import numpy.typing as npt

from manyclass._reference.row_rounding import widened
from manyclass._reference.row_update import Rows, update_rows
from manyclass._row_rule import RowRule

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


class ChosenRows:
    """Which rows each example chose: ids (examples, width), negative where there is none."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self.rows: Ids = np.unique(ids[ids >= 0])

    def products(self, weight: Rows, bias: Floats | None, input: Floats, out: Floats, threads: int) -> None:
        """Write weight[id]·input + bias[id] for every (example, row) pair, -inf where there is none."""
        present = np.maximum(self.ids, 0)
        logits = np.einsum("ekd,ed->ek", widened(weight[present]), input)
        logits = logits if bias is None else logits + bias[present]
        out[...] = np.where(self.ids >= 0, logits, -np.inf)

    def row_gradients(self, gradient: Floats, input: Floats, out: Floats, sums: Floats, threads: int) -> None:
        """Write, for every distinct row, the sum of gradient·input over its pairs, and of the gradient alone."""
        for at, row in enumerate(self.rows):
            share = np.where(self.ids == row, gradient, 0).sum(1)
            out[at], sums[at] = share @ input, share.sum()

    def update_rows(
        self,
        gradient: Floats,
        input: Floats,
        rule: RowRule,
        weight: Rows,
        first: Rows | None,
        second: Rows | None,
        sums: Floats,
        threads: int,
    ) -> None:
        """Apply every row's gradient to the row by an optimizer's rule; write the sums of the gradients alone."""
        rows = np.empty((len(self.rows), input.shape[1]), np.float32)
        self.row_gradients(gradient, input, rows, sums, threads)
        update_rows(rule, weight, first, second, self.rows, rows, threads)

    def input_gradients(self, gradient: Floats, weight: Rows, out: Floats, threads: int) -> None:
        """Write, for every example, the sum of gradient·row over its pairs."""
        present = np.where(self.ids >= 0, gradient, 0)
        out[...] = np.einsum("ek,ekd->ed", present, widened(weight[np.maximum(self.ids, 0)]))
