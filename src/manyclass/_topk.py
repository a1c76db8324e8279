"""The answer of a search or of a head: the best classes of each input."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Array = TypeVar("Array")  # NumPy arrays from an index, torch tensors from a head


@dataclass(frozen=True, kw_only=True)
class TopK(Generic[Array]):
    """The best classes of each input, best first; -1 (logit and log probability -inf) where fewer were found.

    classes: (..., k) ids, int64.
    log_probs: (..., k). From an index over the candidates, as in the paper: softmax normalised over them, or log
        sigmoid of each logit. A head normalises as it was told.
    logits: (..., k) exact logits; None from a head that has none (hierarchical softmax).
    """

    classes: Array
    log_probs: Array
    logits: Array | None = None
