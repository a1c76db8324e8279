"""Clipping of gradients by their norm, sparse ones included, which torch's own function refuses."""

from collections.abc import Iterable

import torch
from torch import Tensor

from manyclass.errors import InputError


@torch.no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale gradients in place so that their common norm is at most max_norm; return the norm they had.

    parameters: those of a model, or one. A sparse gradient counts with the rows it has, as its dense form would.
    max_norm: float, above 0. norm_type: float = 2.0; inf: the largest element.
    error_if_nonfinite: bool = False. Raise where the norm is NaN or infinite, instead of scaling by it.
    """
    if not max_norm > 0:
        raise InputError(f"max_norm={max_norm!r} is not above 0; try 1.0")
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    values = [_values(parameter) for parameter in listed if parameter.grad is not None]
    values = [value for value in values if value.numel()]  # of a batch without targets: no rows, and no largest element
    if not values:
        return torch.tensor(0.0)
    norms = torch.stack([torch.linalg.vector_norm(value, norm_type).float().cpu() for value in values])
    total: Tensor = torch.linalg.vector_norm(norms, norm_type)
    if error_if_nonfinite and not total.isfinite():
        raise InputError(f"the gradients' norm is {float(total)}; look for NaN in the loss, or lower the rate")
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for value in values:
        value.mul_(scale.to(value.device, value.dtype))
    return total


def _values(parameter: Tensor) -> Tensor:
    """Return what a gradient holds, each row once."""
    gradient = parameter.grad
    assert gradient is not None
    if gradient.is_sparse:
        if not gradient.is_coalesced():
            parameter.grad = gradient = gradient.coalesce()
        return gradient._values()
    return gradient
