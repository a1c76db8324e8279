"""Heads with one row per class, made from an nn.Linear and turned back into one. The weights are shared, not copied."""

from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from manyclass._self_configuration.query_sample import checked_sample
from manyclass.errors import InputError, InputTypeError


class FromLinear:
    """Mixed into a head whose `weight` and `bias` are those of an nn.Linear."""

    weight: Any
    bias: Any

    @classmethod
    def from_linear(cls, linear: nn.Linear, *, queries: Any = None, **settings: Any) -> Self:
        """Return a head over the layer's own weight and bias: shared with it, not copied.

        linear: the layer, trained or not.
        queries: floats (count, in_features), array or tensor = None. A sample of real inputs: the head's index is
            balanced with them, measured and configured once, as `ClassIndex.build(queries=...)` does; `candidates` is
            what that found to be enough, unless you set it. Builds to come keep the settings and the sample.
        settings: arguments of the head beside sizes, bias, device and dtype.
        """
        if not isinstance(linear, nn.Linear):
            raise InputTypeError(f"linear is a {type(linear).__name__}; pass an nn.Linear")
        if settings.get("prior") is not None:
            raise InputError("prior is where a bias starts, and the layer brings its own; leave it out")
        sizes = linear.in_features, linear.out_features
        head = cast(Any, cls)(*sizes, bias=linear.bias is not None, device="meta", **settings)
        head.weight, head.bias = linear.weight, linear.bias
        if queries is not None:
            _learn(head, queries, settings)
        return cast(Self, head)

    def to_linear(self) -> nn.Linear:
        """Return an nn.Linear that shares weight and bias; a float32 bias of 16-bit rows is rounded, not shared."""
        return linear_over(self.weight, self.bias)


def _learn(head: Any, queries: Any, settings: dict[str, Any]) -> None:
    """Configure the head's index by a sample of inputs, once."""
    if not hasattr(head, "index"):
        raise InputError(f"queries are given, and {type(head).__name__} has no index to fit to them; leave them out")
    if settings.get("config") is not None:
        raise InputError("queries are given to choose a config, and so is a config; leave one of them out")
    values = queries.detach().float().cpu().numpy() if isinstance(queries, Tensor) else queries
    sample = checked_sample("queries", values, head.in_features)
    with torch.no_grad():
        candidates = head.index.learn(head.prepared(torch.from_numpy(sample)).float().numpy(), head.weight, head.bias)
    if "candidates" not in settings:
        head.candidates = candidates


def folded(
    weight: Tensor, bias: Tensor | None, mean: Tensor | None, temperature: float
) -> tuple[Tensor, Tensor | None]:
    """Return rows and biases of a plain layer with the logits of these less a mean, by a temperature."""
    if mean is not None:
        of_mean = weight @ mean.to(weight.dtype)
        bias = -of_mean if bias is None else bias - of_mean
    if temperature != 1:
        weight, bias = weight / temperature, None if bias is None else bias / temperature
    return weight, bias


def linear_over(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return an nn.Linear over this weight (classes, features) and bias (classes,), in the weight's type."""
    if bias is not None and bias.dtype != weight.dtype:
        bias = nn.Parameter(bias.detach().to(weight.dtype))
    classes, features = weight.shape
    linear = nn.Linear(features, classes, bias=bias is not None, device="meta")
    linear.weight, linear.bias = weight, bias  # type: ignore[assignment]
    return linear
