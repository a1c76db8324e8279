"""What an answer is worth beside the exact one: label accuracy kept, same winner, recall."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from manyclass.peers.peer import Floats, Ids


class Problem(Protocol):
    """Rows (classes, features), perhaps a bias (classes,), and queries with the class each belongs to."""

    @property
    def rows(self) -> Floats: ...
    @property
    def bias(self) -> Floats | None: ...
    @property
    def queries(self) -> Floats: ...
    @property
    def labels(self) -> Ids: ...


@dataclass(frozen=True)
class ExactAnswer:
    """The exact top-10 of every query (queries, 10), best first, and how often the best one is the label."""

    top10: Ids
    accuracy: float

    @property
    def top1(self) -> Ids:
        """Return the exact winner of every query, int64 (queries,)."""
        return self.top10[:, 0]


def same_logit(problem: Problem, found: Ids, wanted: Ids) -> npt.NDArray[np.bool_]:
    """Return, per query, whether the class found is the class wanted or ties with it up to rounding.

    WordNet has a thousand glosses that occur twice; which of two equal rows comes first says nothing.
    """
    same = np.asarray(found == wanted)
    other = np.flatnonzero(~same & (found >= 0))  # -1 where a search found nothing
    found_logits, wanted_logits = (_logits_of(problem, other, ids[other]) for ids in (found, wanted))
    same[other] = np.abs(found_logits - wanted_logits) <= 1e-6 * (1 + np.abs(wanted_logits))
    return same


def judge(found: Ids, problem: Problem, exact: ExactAnswer) -> dict[str, Any]:
    """Return label accuracy kept, agreement with the exact winner, and recall@10 of ids (queries, 10)."""
    accuracy = float(np.mean(same_logit(problem, found[:, 0], problem.labels)))
    shared = (found[:, :, None] == exact.top10[:, None, :]).any(axis=1)
    return {
        "queries": len(found),
        "accuracy": accuracy,
        "exact_accuracy": exact.accuracy,
        "accuracy_kept": accuracy_kept(accuracy, exact.accuracy),
        "agreement": float(np.mean(same_logit(problem, found[:, 0], exact.top1))),
        "recall_at_10": float(np.mean(shared)),
    }


def accuracy_kept(accuracy: float, exact_accuracy: float) -> float | None:
    """Return the share of the exact accuracy; None where the exact layer is never right and there is none to keep."""
    return accuracy / exact_accuracy if exact_accuracy else None


def _logits_of(problem: Problem, positions: Ids, classes: Ids) -> npt.NDArray[np.float64]:
    queries, rows = problem.queries[positions], problem.rows[classes]
    logits: npt.NDArray[np.float64] = np.einsum("qf,qf->q", queries, rows, dtype=np.float64)
    return logits if problem.bias is None else logits + problem.bias[classes]
