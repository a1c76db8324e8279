"""The mathematics of a step over chosen classes, wherever it runs: at a shard, or at a worker that pulled the rows.

Rows are copies: what a gradient is computed from is what the logits were computed from, however late it comes.
"""

import numpy as np
import numpy.typing as npt

from manyclass._backend import core
from manyclass._validation import Ids
from manyclass.distributed.messages import Floats

Doubles = npt.NDArray[np.float64]


class SharedLogits:
    """Logits of examples over rows that all of them share, and their gradients.

    x: (examples, features); weight, bias: (classes, …). log_weights: (classes,), log of how many classes each stands
    for, but an example's own positive always counts once. examples, columns, shares: who wants which class by how much.
    """

    def __init__(
        self,
        x: Floats,
        weight: Floats,
        bias: Floats | None,
        log_weights: Doubles,
        examples: Ids,
        columns: Ids,
        shares: Floats,
    ) -> None:
        self.x, self.weight, self.own, self.shares = x, weight, (examples, columns), shares
        logits: Floats = x @ weight.T
        if bias is not None:
            logits += bias
        self.target_logits = _sums(examples, shares * logits[self.own], len(x))
        of_positives = logits[self.own]
        logits += log_weights.astype(np.float32)
        logits[self.own] = of_positives
        self.logits = logits  # of all that a class stands for

    def log_sums(self) -> Floats:
        """Return the log of the sum of e^logit over these classes, (examples,); -inf where there is no class."""
        return log_sum_exp(self.logits)

    def gradients(self, log_normalizers: Floats, scale: float) -> Floats:
        """Return the loss's gradient of the logits, (examples, classes).

        log_normalizers: over all classes, of this part and of all others; infinite for an example without positives,
        which moves nothing.
        """
        found: Floats = np.exp(self.logits - log_normalizers[:, None])
        np.subtract.at(found, self.own, self.shares)
        found *= np.float32(scale)
        return found

    def input_gradients(self, gradients: Floats) -> Floats:
        """Return what these classes add to the inputs' gradient."""
        found: Floats = gradients @ self.weight
        return found

    def row_gradients(self, gradients: Floats) -> tuple[Floats, Floats]:
        """Return the gradients of rows and biases."""
        return gradients.T @ self.x, gradients.sum(0)


class OwnLogits:
    """Logits of each example over rows of its own. columns: (examples, width) into weight, negative where absent."""

    def __init__(self, x: Floats, weight: Floats, bias: Floats | None, columns: Ids, threads: int = 1) -> None:
        self.x, self.weight, self.threads = x, weight, threads
        self.chosen = core().ChosenRows(np.ascontiguousarray(columns))
        self.logits: Floats = np.empty(columns.shape, np.float32)
        self.chosen.products(weight, bias, x, self.logits, threads)

    @property
    def columns(self) -> Ids:
        """The columns that any example has, ascending: those that get gradients."""
        found: Ids = self.chosen.rows
        return found

    def input_gradients(self, gradients: Floats) -> Floats:
        """Return the inputs' gradient, given that of the logits."""
        out: Floats = np.empty(self.x.shape, np.float32)
        self.chosen.input_gradients(gradients, self.weight, out, self.threads)
        return out

    def row_gradients(self, gradients: Floats) -> tuple[Floats, Floats]:
        """Return the gradients of the rows and biases of `columns`."""
        count = len(self.columns)
        rows, sums = np.empty((count, self.x.shape[1]), np.float32), np.empty(count, np.float32)
        self.chosen.row_gradients(gradients, self.x, rows, sums, self.threads)
        return rows, sums


def own_softmax(logits: Floats, shares: Floats, scale: float) -> tuple[float, Floats]:
    """Return the summed loss and the gradient of logits (examples, width), -inf where absent.

    shares: of the target, of the same shape, zero for all that is no positive. Examples without any have no loss.
    """
    mass = shares.sum(1)
    normalizers = log_sum_exp(logits)
    with np.errstate(invalid="ignore"):
        of_targets = np.where(shares > 0, shares * logits, 0).sum(1)
        losses = np.where(mass > 0, mass * normalizers - of_targets, 0)
    gradients = np.exp(logits - np.where(np.isfinite(normalizers), normalizers, 0)[:, None]) * mass[:, None] - shares
    return float(losses.sum()), (gradients * scale).astype(np.float32)


def log_sum_exp(logits: Floats) -> Floats:
    """Return log(sum(e^logits)) along the second axis; -inf of nothing."""
    largest = logits.max(1, initial=-np.inf)
    finite = np.where(np.isfinite(largest), largest, 0).astype(np.float32)
    with np.errstate(divide="ignore"):
        found: Floats = np.log(np.exp(logits - finite[:, None]).sum(1)) + finite
    return found


def _sums(places: Ids, values: Floats, count: int) -> Floats:
    """Return the sums of values by place."""
    return np.bincount(places, values, count).astype(np.float32)
