"""What a search returns, for NumPy arrays (`ClassIndex.search`) and torch tensors (`head.topk`) alike."""

from dataclasses import dataclass
from typing import Generic, TypeVar

_Array = TypeVar("_Array")


@dataclass(frozen=True)
class TopK(Generic[_Array]):
    """The best classes of each query, best first; -1, with a log_prob and logit of -inf, where fewer were found.

    classes: int64 (count, k), or (k,) for a single query: class ids.
    log_probs: floats of the same shape. Over the candidates, as in the paper, unless a head was asked otherwise:
        softmax normalised over them, or log sigmoid of each logit.
    logits: floats of the same shape: exact logits; None from a head that has none (hierarchical softmax).
    """

    classes: _Array
    log_probs: _Array
    logits: _Array | None = None
