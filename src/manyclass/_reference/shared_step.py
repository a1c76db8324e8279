"""The specification of a training step in which all examples compute the same classes: losses and gradients."""

import numpy as np
import numpy.typing as npt

from manyclass._reference.row_rounding import widened
from manyclass._reference.row_update import Rows, update_rows
from manyclass._row_rule import RowRule

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


class SharedStep:
    """One step: ids (classes,), ascending; positives (examples, width), each among the ids, negative where absent.

    logit = (input·row + bias) · scale. A class that is one of an example's own positives counts once; any other
    counts e^log_weight times, which may be zero times. Targets: `shares` of the own positives, and `spread` of every
    other class.
    """

    def __init__(self, ids: Ids, positives: Ids) -> None:
        self.ids = ids
        self.present = positives >= 0
        self.places = np.searchsorted(ids, np.maximum(positives, 0)).clip(0, max(len(ids) - 1, 0))
        if len(ids) and (ids[0] < 0 or (np.diff(ids) <= 0).any()):
            raise ValueError("ids must be ascending and not negative")
        if self.present.any() and not (len(ids) and (ids[self.places] == positives)[self.present].all()):
            raise ValueError("a positive is not among the ids")

    def losses(
        self,
        weight: Rows,
        bias: Floats | None,
        input: Floats,
        scale: float,
        log_weights: Floats,
        spread: Floats | None,
        shares: Floats,
        logistic: bool,
        gradients_follow: bool,
        losses: Floats,
        pull: Floats,
        tail_variance: Floats,
        threads: int,
    ) -> None:
        """Write each example's loss, how far each class is pulled, and the squared probabilities of the tail.

        pull: the examples' probabilities, and 1 for each positive. tail_variance: of classes with log_weight > 0.
        """
        self.scale, self.rows = scale, widened(weight[self.ids])
        examples = np.arange(len(input))[:, None].repeat(self.places.shape[1], 1)[self.present]
        own = examples, self.places[self.present]  # the pairs (example, positive), as an index
        logits = input @ self.rows.T + (0 if bias is None else bias[self.ids])
        logits = logits * np.float32(scale)
        counts = np.exp(log_weights.astype(np.float64))[None].repeat(len(input), 0)
        targets = np.zeros_like(counts) if spread is None else spread.astype(np.float64)[None].repeat(len(input), 0)
        tail = (log_weights > 0)[None].repeat(len(input), 0)
        counts[own], targets[own], tail[own] = 1, shares[self.present], False
        if logistic:
            share = counts * np.exp(-np.logaddexp(0, -logits.astype(np.float64)))
            losses[...] = (counts * np.logaddexp(0, logits)).sum(1) - (targets * logits).sum(1)
            self.gradient = (share - targets).astype(np.float32)
        else:
            largest = np.where(counts > 0, logits, -np.inf).max(1, initial=-np.inf, keepdims=True)
            values = counts * np.exp(np.minimum(logits - largest, 0), dtype=np.float64)
            share, mass = values / values.sum(1, keepdims=True), targets.sum(1)
            losses[...] = mass * (largest[:, 0] + np.log(values.sum(1))) - (targets * logits).sum(1)
            self.gradient = (mass[:, None] * share - targets).astype(np.float32)
        pull[...] = share.sum(0) + np.bincount(own[1], minlength=len(self.ids))
        tail_variance[...] = (np.where(tail, share, 0) ** 2).sum(1)

    def input_gradients(self, gradient: Floats, out: Floats, threads: int) -> None:
        """Write the inputs' gradients, given those of the losses."""
        out[...] = (gradient[:, None] * self.gradient) @ self.rows * np.float32(self.scale)

    def row_gradients(self, gradient: Floats, input: Floats, out: Floats, sums: Floats, threads: int) -> None:
        """Write the gradients of the classes' rows, and of their biases."""
        of_logits = gradient[:, None] * self.gradient * np.float32(self.scale)
        out[...], sums[...] = of_logits.T @ input, of_logits.sum(0)

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
        """Apply every row's gradient to the row by an optimizer's rule; write the gradients of the biases."""
        rows = np.empty((len(self.ids), input.shape[1]), np.float32)
        self.row_gradients(gradient, input, rows, sums, threads)
        update_rows(rule, weight, first, second, self.ids, rows, threads)
