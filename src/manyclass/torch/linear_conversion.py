"""Heads with one row per class, made from an nn.Linear and turned back into one. The weights are shared, not copied."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor, nn

from manyclass.errors import InputTypeError

Head = TypeVar("Head", bound=nn.Module)


def from_linear(make: Callable[..., Head], linear: nn.Linear, settings: dict[str, Any]) -> Head:
    """Return a head of the layer's size over its own weight and bias."""
    if not isinstance(linear, nn.Linear):
        raise InputTypeError(f"linear is a {type(linear).__name__}; pass an nn.Linear")
    head = make(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta", **settings)
    head.weight, head.bias = linear.weight, linear.bias
    return head


def to_linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return an nn.Linear over this weight and bias."""
    classes, features = weight.shape
    linear = nn.Linear(features, classes, bias=bias is not None, device="meta")
    linear.weight, linear.bias = weight, bias  # type: ignore[assignment]
    return linear
