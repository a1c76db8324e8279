"""Heads with one row per class, made from an nn.Linear and turned back into one."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from manyclass.errors import InputTypeError

Head = TypeVar("Head", bound=nn.Module)


def from_linear(make: Callable[..., Head], linear: nn.Linear, settings: dict[str, Any]) -> Head:
    """Return a head of the layer's size, type and device with a copy of its weight and bias."""
    if not isinstance(linear, nn.Linear):
        raise InputTypeError(f"linear is a {type(linear).__name__}; give an nn.Linear")
    like = {"bias": linear.bias is not None, "device": linear.weight.device, "dtype": linear.weight.dtype}
    head = make(linear.in_features, linear.out_features, **(like | settings))
    _copy(linear.weight, linear.bias, head)
    return head


def to_linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return an nn.Linear with a copy of the weight and bias."""
    classes, features = weight.shape
    linear = nn.Linear(features, classes, bias=bias is not None, device=weight.device, dtype=weight.dtype)
    _copy(weight, bias, linear)
    return linear


@torch.no_grad()
def _copy(weight: Tensor, bias: Tensor | None, into: Any) -> None:
    into.weight.copy_(weight)
    if bias is not None:
        into.bias.copy_(bias)
