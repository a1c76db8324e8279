"""Softmax (or logistic) over all classes: exact, dense, and as slow as the number of classes. The first baseline."""

import math
from typing import Any, Self

import torch
from torch import Tensor, nn

from manyclass.errors import ConfigError
from manyclass.torch import all_classes as exact
from manyclass.torch import linear_conversion as linear_layer
from manyclass.torch.head import OutputHead, Reduction, TopK


class FullSoftmax(OutputHead):
    """`nn.Linear` and its loss over all classes as one head; `weight` and `bias` are named and start as Linear's.

    loss: "softmax", cross entropy (against the uniform distribution over several positives); or "logistic", binary
    cross entropy summed over all classes. Gradients are dense; training holds (examples, classes) logits.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        *,
        loss: str = "softmax",
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, num_classes, ignore_index=ignore_index, reduction=reduction)
        if loss not in ("softmax", "logistic"):
            raise ConfigError(f"loss={loss!r} is unknown; choose 'softmax' or 'logistic'")
        self.loss = loss
        self.weight = nn.Parameter(torch.empty(num_classes, in_features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(num_classes, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters as nn.Linear does: uniform within ±1/√in_features."""
        bound = 1 / math.sqrt(self.in_features)
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    @classmethod
    def from_linear(cls, linear: nn.Linear, **settings: Any) -> Self:
        """Return a head over the layer's own weight and bias: shared with it, not copied."""
        return linear_layer.from_linear(cls, linear, settings)

    def to_linear(self) -> nn.Linear:
        """Return an nn.Linear that shares weight and bias."""
        return linear_layer.to_linear(self.weight, self.bias)

    def _losses(self, input: Tensor, positives: Tensor) -> Tensor:
        return exact.losses(input, self.weight, self.bias, positives, logistic=self.loss == "logistic")

    def _topk(self, input: Tensor, k: int) -> TopK:
        return exact.topk(input, self.weight, self.bias, k, logistic=self.loss == "logistic")

    def _log_prob(self, input: Tensor, classes: Tensor | None) -> Tensor:
        return exact.log_prob(input, self.weight, self.bias, classes, logistic=self.loss == "logistic")
