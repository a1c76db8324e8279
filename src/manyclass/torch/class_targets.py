"""What an example should say: its positives, with the label smoothing and class weights that CrossEntropyLoss has."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyclass.errors import ConfigError, InputError, InputTypeError


class Targets(NamedTuple):
    """The targets of a batch over some classes; softmax losses are the cross entropy with them, times their sum.

    positives: (examples, n) ids, -1 where absent. shares: (examples, n), what each of them gets, 0 where absent.
    spread: (classes,), or (examples, classes) for each example's own ones, what every class gets that is not one of
        the example's positives; None: nothing.
    """

    positives: Tensor
    shares: Tensor
    spread: Tensor | None = None


def even_targets(positives: Tensor, logistic: bool = False) -> Targets:
    """Return the targets of examples whose positives share evenly; logistic: all of them are wanted whole."""
    if positives.shape[1] == 1:
        return Targets(positives, torch.ones(positives.shape, dtype=torch.float64))
    present = (positives >= 0).double()
    return Targets(positives, present if logistic else present / present.sum(1, keepdim=True))


def weighted_targets(
    positives: Tensor,
    smoothing: float,
    class_weight: Tensor | None,
    classes_left: int,
    ids: Tensor,
    log_weights: Tensor | None = None,
) -> Targets:
    """Return the targets of `torch.nn.functional.cross_entropy` with these settings, over the classes `ids`.

    classes_left: over how many the smoothing is spread. ids: (n,), or (examples, n) of each its own, -1 where absent.
    log_weights: (n,), of how many classes each one stands, so that a sample stands for all; None: each for itself.
    """
    even = even_targets(positives)
    each = smoothing / classes_left
    shares = (even.shares * (1 - smoothing) + each).masked_fill(positives < 0, 0)
    if class_weight is not None:
        shares = shares * class_weight[positives.clamp(min=0)]
    if not smoothing:
        return Targets(positives, shares)
    spread = torch.full(ids.shape, each, dtype=torch.float64).masked_fill(ids < 0, 0)
    if log_weights is not None:
        spread = spread * log_weights.exp()
    if class_weight is not None:
        spread = spread * class_weight[ids.clamp(min=0)]
    return Targets(positives, shares, spread)


def checked_smoothing(value: Any) -> float:
    """Return a label smoothing after a check."""
    if isinstance(value, bool) or not isinstance(value, float | int) or not 0 <= value <= 1:
        raise ConfigError(f"label_smoothing={value!r} is not a number from 0 to 1; try 0.1, or 0.0 for none")
    return float(value)


def checked_class_weight(weight: Any, num_classes: int) -> Tensor:
    """Return a copy of class weights after checks, in float64 or float32."""
    if not isinstance(weight, Tensor) or weight.is_complex() or weight.dtype == torch.bool:
        kind = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise InputTypeError(f"class_weight is {kind}; give a tensor of numbers, one per class")
    if weight.shape != (num_classes,):
        raise InputError(f"class_weight has shape {tuple(weight.shape)}; expected ({num_classes},): one per class")
    values = weight.detach().to("cpu", torch.float64 if weight.dtype == torch.float64 else torch.float32, copy=True)
    wrong = ~(values.isfinite() & (values >= 0))
    if wrong.any():
        at = int(wrong.nonzero()[0])
        raise InputError(f"class_weight[{at}]={values[at].item()}; weights are finite and at least 0: replace it")
    return values
