"""The output layers that are compared, by the names that records and figures use."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from torch import Tensor

import manyclass.torch as mct

MakeHead = Callable[..., mct.OutputHead]  # of features, classes, and settings

HEADS: dict[str, MakeHead] = {
    "full": mct.FullSoftmax,
    "candidate": mct.CandidateSoftmax,
    "own candidates": partial(mct.CandidateSoftmax, shared=False),
    "wta": mct.WTASoftmax,  # the paper's literal rule
    "hierarchical": mct.HierarchicalSoftmax,
    "sampled": mct.SampledSoftmax,
    "sampled 2048": partial(mct.SampledSoftmax, samples=2048),
    "sampled by frequency": mct.SampledSoftmax,
    "sampled 2048 by frequency": partial(mct.SampledSoftmax, samples=2048),
    "in-batch": partial(mct.SampledSoftmax, sampler="in_batch"),
}
# Trained on every task, see runs_on, in the order of their runs. Two run at a time and share a cache: those whose times
# are compared are light heads beside light ones, and full softmax, which fills it, comes last.
ON_TASKS = ("candidate", "in-batch", "sampled", "sampled by frequency", "hierarchical", "sampled 2048",
            "sampled 2048 by frequency", "wta", "full")  # fmt: skip


def make(name: str, features: int, classes: int, **settings: Any) -> mct.OutputHead:
    """Return a new output layer."""
    return HEADS[name](features, classes, **settings)


def runs_on(heads: Iterable[str], *, full: bool, skewed: bool) -> list[str]:
    """Return which of these heads a task compares: full softmax if it can afford it, frequencies if they differ."""
    return [
        head
        for head in ON_TASKS
        if head in heads and (full or head != "full") and (skewed or not head.endswith("by frequency"))
    ]


def told_frequencies(name: str, frequencies: Tensor | None) -> dict[str, Any]:
    """Return what a head is given beside its sizes: all come as they are, but two know how often classes occur.

    A tree over the true frequencies is the best case of a tree. frequencies: shares (classes,); None: all alike.
    """
    if frequencies is None:
        return {}
    if name == "hierarchical":
        return {"counts": (frequencies * 1e9).long()}
    return {"sampler": frequencies.float()} if name.endswith("by frequency") else {}
