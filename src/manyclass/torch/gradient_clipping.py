"""Clipping of gradients by their norm, sparse ones included, which torch's own function refuses."""

from collections.abc import Iterable

import torch
from torch import Tensor

from manyclass.errors import InputError
from manyclass.torch.ranks import Ranks, Said, ranks_of


@torch.no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale gradients in place so that their common norm is at most max_norm; return the norm they had.

    parameters: those of a model, or one. A sparse gradient counts with the rows it has, as its dense form would.
    max_norm: float, above 0. norm_type: float = 2.0; inf: the largest element.
    error_if_nonfinite: bool = False. Raise where the norm is NaN or infinite, instead of scaling by it.

    Rows of a ShardedSoftmax count with those of all ranks, each of which calls this: so they scale alike what all have.
    """
    if not max_norm > 0:
        raise InputError(f"max_norm={max_norm!r} is not above 0; try 1.0")
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    parts: dict[Ranks | None, list[Tensor]] = {}
    for parameter in listed:
        part = parts.setdefault(ranks_of(parameter), [])
        if parameter.grad is not None and (value := _values(parameter)).numel():  # no targets: no rows
            part.append(value)
    norms = [_of_all_ranks(_norm(values, norm_type), ranks) for ranks, values in parts.items()]
    total: Tensor = torch.linalg.vector_norm(torch.cat(norms), norm_type) if norms else torch.tensor(0.0)
    values = [value for part in parts.values() for value in part]
    if error_if_nonfinite and not total.isfinite():
        raise InputError(f"the gradients' norm is {float(total)}; look for NaN in the loss, or lower the rate")
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for value in values:
        value.mul_(scale.to(value.device, value.dtype))
    return total


def _norm(values: list[Tensor], norm_type: float) -> Tensor:
    """Return the common norm, (1,)."""
    norms = [torch.linalg.vector_norm(value, norm_type).float().cpu() for value in values]
    return torch.linalg.vector_norm(torch.stack(norms), norm_type)[None] if norms else torch.zeros(1)


def _of_all_ranks(norm: Tensor, ranks: Ranks | None) -> Tensor:
    if ranks is None:
        return norm
    ranks.meet("clip gradients", Said)
    return ranks.all_gather(norm, "clip gradients").reshape(-1)


def _values(parameter: Tensor) -> Tensor:
    """Return what a gradient holds, each row once."""
    gradient = parameter.grad
    assert gradient is not None
    if gradient.is_sparse:
        if not gradient.is_coalesced():
            parameter.grad = gradient = gradient.coalesce()
        return gradient._values()
    return gradient
