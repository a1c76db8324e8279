"""The output layers that are compared, by the names that records and figures use."""

from collections.abc import Callable
from functools import partial
from typing import Any

import manyclass.torch as mct

MakeHead = Callable[..., mct.OutputHead]  # of features, classes, and settings

HEADS: dict[str, MakeHead] = {
    "full": mct.FullSoftmax,
    "candidate": mct.CandidateSoftmax,
    "own candidates": partial(mct.CandidateSoftmax, shared=False),
    "wta": mct.WTASoftmax,  # the paper's literal rule
    "hierarchical": mct.HierarchicalSoftmax,
    "sampled": mct.SampledSoftmax,
}


def make(name: str, features: int, classes: int, **settings: Any) -> mct.OutputHead:
    """Return a new output layer."""
    return HEADS[name](features, classes, **settings)
