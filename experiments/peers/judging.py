"""What an answer is worth beside the exact one: label accuracy kept, same winner, recall."""

from typing import Any

import numpy as np

from experiments.frame.records import Record
from experiments.peers.peer import Ids
from experiments.peers.problem import Problem

ACCURACY, WINNER = "accuracy_kept", "agreement"  # the two measures of quality: of the labels, of the exact winners


def judge(found: Ids, problem: Problem) -> dict[str, Any]:
    """Return label accuracy kept, agreement with the exact winner, and recall@10 of ids (queries, 10)."""
    exact, exact_accuracy = problem.exact.classes, problem.exact_accuracy
    accuracy = problem.accuracy(found[:, 0])
    shared = (found[:, :, None] == exact[:, None, :]).any(axis=1)
    return {
        "queries": len(found),
        "accuracy": accuracy,
        "exact_accuracy": exact_accuracy,
        "accuracy_kept": accuracy_kept(accuracy, exact_accuracy),
        "agreement": float(np.mean(problem.same_logit(found[:, 0], exact[:, 0]))),
        "recall_at_10": float(np.mean(shared)),
    }


def accuracy_kept(accuracy: float, exact_accuracy: float) -> float | None:
    """Return the share of the exact accuracy; None where the exact layer is never right and there is none to keep."""
    return accuracy / exact_accuracy if exact_accuracy else None


def quality(found: Record, measure: str = ACCURACY) -> float:
    """Return what a setting keeps; nothing where the exact layer is never right."""
    return float(found[measure] or 0.0)
