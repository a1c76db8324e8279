"""Heads with one row per class, made from an nn.Linear and turned back into one. The weights are shared, not copied."""

from typing import Any, Self, cast

from torch import Tensor, nn

from manyclass.errors import InputTypeError


class FromLinear:
    """Mixed into a head whose `weight` and `bias` are those of an nn.Linear."""

    weight: Any
    bias: Any

    @classmethod
    def from_linear(cls, linear: nn.Linear, **settings: Any) -> Self:
        """Return a head over the layer's own weight and bias: shared with it, not copied.

        linear: the layer, trained or not. settings: arguments of the head beside sizes, bias, device and dtype.
        """
        if not isinstance(linear, nn.Linear):
            raise InputTypeError(f"linear is a {type(linear).__name__}; pass an nn.Linear")
        sizes = linear.in_features, linear.out_features
        head = cast(Any, cls)(*sizes, bias=linear.bias is not None, device="meta", **settings)
        head.weight, head.bias = linear.weight, linear.bias
        return cast(Self, head)

    def to_linear(self) -> nn.Linear:
        """Return an nn.Linear that shares weight and bias."""
        return linear_over(self.weight, self.bias)


def linear_over(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return an nn.Linear over this weight (classes, features) and bias (classes,)."""
    classes, features = weight.shape
    linear = nn.Linear(features, classes, bias=bias is not None, device="meta")
    linear.weight, linear.bias = weight, bias  # type: ignore[assignment]
    return linear
