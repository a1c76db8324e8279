"""How close an index comes to the exact answer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._row_types import as_floats
from manyclass._validation import Floats, Ids

CHUNK = 16_384  # rows scored at a time


@dataclass(frozen=True)
class Quality:
    """What an index keeps of the exact answer, over the queries it was given.

    label_accuracy_kept is the figure that matters to users: accuracy of the approximate best class divided by that of
    the exact best class. Without labels it is None and `agreement` stands in for it.
    """

    queries: int
    candidates: int
    recall: float  # share of the exact top k that the search returned
    agreement: float  # share of queries whose best class is the exact one
    missed_mass: float  # mean softmax probability, under the exact layer, outside the candidates
    label_accuracy: float | None = None
    exact_label_accuracy: float | None = None

    @property
    def label_accuracy_kept(self) -> float | None:
        if self.label_accuracy is None or not self.exact_label_accuracy:
            return None
        return self.label_accuracy / self.exact_label_accuracy

    @property
    def kept(self) -> float:
        """Label accuracy kept, or agreement where there are no labels."""
        kept = self.label_accuracy_kept
        return self.agreement if kept is None else kept


@dataclass(frozen=True)
class ExactAnswer:
    """Exact best classes of some queries: ids and logits (queries, k), and log of the sum of exp of all logits."""

    classes: Ids
    logits: Floats
    normalizer: npt.NDArray[np.float64]


def exact_answer(
    rows: npt.NDArray[Any],
    bias: Floats,
    queries: Floats,
    k: int,
    removed: npt.NDArray[np.uint8] | None = None,
) -> ExactAnswer:
    """Return the exact top k, ties to the lowest id, a chunk of rows at a time. Cost: queries × classes × features."""
    count = len(queries)
    best = np.full((count, k), -1, np.int64)
    best_logits = np.full((count, k), -np.inf, np.float32)
    normalizer = np.full(count, -np.inf)
    for begin in range(0, len(rows), CHUNK):
        chunk = as_floats(rows[begin : begin + CHUNK])
        logits = queries @ chunk.T + bias[begin : begin + len(chunk)]
        if removed is not None and len(removed):
            logits[:, removed[begin : begin + len(chunk)] == 1] = -np.inf
        highest = np.maximum(logits.max(axis=1), np.float32(-3e38))
        with np.errstate(divide="ignore", invalid="ignore"):  # all classes of the chunk may be removed
            summed = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1, dtype=np.float64))
            normalizer = np.where(summed > -np.inf, np.logaddexp(normalizer, summed), normalizer)
        best, best_logits = _merged(best, best_logits, logits, begin)
    best[~np.isfinite(best_logits)] = -1
    return ExactAnswer(best, best_logits, normalizer)


def exact_best(rows: npt.NDArray[Any], bias: Floats | None, queries: Floats, k: int) -> Ids:
    """Return the exact top k alone, (queries, k), -1 where there is none: a fraction of the time of `exact_answer`."""
    best = np.full((len(queries), k), -1, np.int64)
    best_logits = np.full((len(queries), k), -np.inf, np.float32)
    for begin in range(0, len(rows), CHUNK):
        chunk = as_floats(rows[begin : begin + CHUNK])
        with np.errstate(over="ignore", invalid="ignore"):
            logits = queries @ chunk.T
            if bias is not None:
                logits += bias[begin : begin + len(chunk)]
        best, best_logits = _merged(best, best_logits, logits, begin)
    best[~np.isfinite(best_logits)] = -1
    return best


def _merged(best: Ids, best_logits: Floats, logits: Floats, begin: int) -> tuple[Ids, Floats]:
    """Return the best ids and logits so far (queries, k) after those of one more chunk of classes, from id `begin`."""
    k, width = best.shape[1], logits.shape[1]
    floor = best_logits[:, -1:]
    if begin and floor.min() > -np.inf:  # few are better than the worst that is kept: look at those alone
        query, column = np.nonzero(logits > floor)
        queries = np.concatenate([np.repeat(np.arange(len(best)), k), query])
        ids = np.concatenate([best.ravel(), column + begin])
        values = np.concatenate([best_logits.ravel(), logits[query, column]])
        order = np.lexsort((ids, -values, queries))
        starts = np.searchsorted(queries[order], np.arange(len(best)))
        kept = order[starts[:, None] + np.arange(k)]
        return ids[kept], values[kept]
    top = np.argpartition(-logits, min(k, width) - 1, axis=1)[:, :k] if width > k else None
    columns = np.broadcast_to(np.arange(width), logits.shape) if top is None else top
    joined = np.concatenate([best, columns + begin], axis=1)
    joined_logits = np.concatenate([best_logits, np.take_along_axis(logits, columns, 1)], axis=1)
    order = np.lexsort((joined, -joined_logits), axis=1)[:, :k]
    return np.take_along_axis(joined, order, 1), np.take_along_axis(joined_logits, order, 1)


def compare(found: Ids, candidate_logits: Floats, exact: ExactAnswer, candidates: int, labels: Ids | None) -> Quality:
    """Return the quality of found classes (queries, k) and of the candidates' logits against the exact answer."""
    count, k = found.shape
    wanted = exact.classes[:, :k]
    present = wanted >= 0
    hits = (found[:, :, None] == wanted[:, None, :]) & present[:, None, :]
    with np.errstate(divide="ignore", invalid="ignore"):  # -inf minus -inf where there is no class at all
        covered = np.exp(candidate_logits.astype(np.float64) - exact.normalizer[:, None]).sum(axis=1)
    answered = exact.normalizer > -np.inf
    accuracies: tuple[float, float] | tuple[None, None] = (None, None)
    if labels is not None:
        accuracies = (_share(found[:, 0] == labels), _share(wanted[:, 0] == labels))
    return Quality(
        queries=count,
        candidates=candidates,
        recall=float(hits.sum() / present.sum()) if present.any() else 1.0,
        agreement=_share(found[:, 0] == wanted[:, 0]),
        missed_mass=float(np.clip(1 - covered[answered], 0, 1).mean()) if answered.any() else 0.0,
        label_accuracy=accuracies[0],
        exact_label_accuracy=accuracies[1],
    )


def _share(flags: npt.NDArray[np.bool_]) -> float:
    return float(flags.mean()) if len(flags) else 1.0
