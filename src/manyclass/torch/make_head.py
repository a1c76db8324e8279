"""Heads by name, so that a training script or an experiment takes any of them."""

from collections.abc import Callable
from typing import Any

from manyclass.errors import ConfigError
from manyclass.torch.candidate_softmax import CandidateSoftmax
from manyclass.torch.full_softmax import FullSoftmax
from manyclass.torch.head import OutputHead
from manyclass.torch.hierarchical_softmax import HierarchicalSoftmax
from manyclass.torch.sampled_softmax import SampledSoftmax
from manyclass.torch.wta_softmax import WTASoftmax

HEADS: dict[str, Callable[..., OutputHead]] = {
    "candidate": CandidateSoftmax,
    "wta": WTASoftmax,
    "full": FullSoftmax,
    "sampled": SampledSoftmax,
    "hierarchical": HierarchicalSoftmax,
}


def make_head(name: str, in_features: int, num_classes: int, **settings: Any) -> OutputHead:
    """Return a new head: "candidate", "wta", "full", "sampled" or "hierarchical"; settings are those of its class."""
    if name not in HEADS:
        raise ConfigError(f"head {name!r} is unknown; choose one of {', '.join(HEADS)}")
    return HEADS[name](in_features, num_classes, **settings)
