"""Softmax (or logistic) over all classes: exact, dense, and as slow as the number of classes. The first baseline."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from manyclass._topk import TopK
from manyclass.torch import all_classes
from manyclass.torch.head import Output, Reduction, checked_output
from manyclass.torch.linear_conversion import FromLinear
from manyclass.torch.memory_budget import check_memory
from manyclass.torch.priors import HeadWithPrior, PriorSetting


class FullSoftmax(FromLinear, HeadWithPrior):
    """`nn.Linear` and its loss over all classes as one head; `weight` and `bias` are named and start as Linear's.

    Gradients are dense; training holds (examples, classes) logits.

    in_features, num_classes: sizes of the layer.
    bias: bool = True. One number per class beside its row.
    output: "softmax" (default), cross entropy, against the uniform distribution over several positives; or "logistic",
        binary cross entropy summed over all classes.
    prior: where the bias starts: None (default), a number, counts, Prior(counts, examples) or "counted", see
        HeadWithPrior.
    ignore_index: int = -100. Targets with this value do not count.
    reduction: "mean" (default), "sum" or "none", as in torch.
    label_smoothing, class_weight: float = 0.0, tensor (num_classes,) = None. Of softmax, as in CrossEntropyLoss, where
        the latter is called `weight`.
    device, dtype: of the parameters, as for nn.Linear.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        *,
        output: Output = "softmax",
        prior: PriorSetting = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_features, num_classes, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing,
            class_weight=class_weight,
        )  # fmt: skip
        self.output = checked_output(output, label_smoothing, class_weight)
        self._prepare_prior(prior, self.output, bias=bias)
        if torch.empty(0, device=device).device.type == "cpu":
            kind = torch.get_default_dtype() if dtype is None else dtype
            check_memory("FullSoftmax", (self.num_classes, self.in_features), kind, {"bias": bias, "index": False})
        self.weight = nn.Parameter(torch.empty(num_classes, in_features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(num_classes, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters as nn.Linear does, uniform within ±1/√in_features; the bias starts at the prior."""
        bound = 1 / math.sqrt(self.in_features)
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)
        self._set_bias_start()

    def _nothing(self, flat: Tensor) -> Tensor:
        nothing = super()._nothing(flat)
        for parameter in (self.weight, self.bias):  # an input without gradient must not stop a plain training loop
            nothing = nothing if parameter is None else nothing + parameter[:0].sum()
        return nothing

    def _losses(self, input: Tensor, positives: Tensor) -> Tensor:
        targets = self._targets(positives) if self._weighs_targets else None
        logistic = self.output == "logistic"
        return all_classes.losses(input, self.weight, self.bias, positives, logistic=logistic, targets=targets)

    def _topk(self, input: Tensor, k: int) -> TopK[Tensor]:
        return all_classes.topk(input, self.weight, self.bias, k, logistic=self.output == "logistic")

    def _log_prob(self, input: Tensor, classes: Tensor | None) -> Tensor:
        return all_classes.log_prob(input, self.weight, self.bias, classes, logistic=self.output == "logistic")
