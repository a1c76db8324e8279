"""Class ids by the row: which of them stand among others."""

import torch
from torch import Tensor


def among(ids: Tensor, others: Tensor) -> Tensor:
    """Return where ids (rows, n) are among the others of their row (rows, m); memory grows with n + m."""
    if not others.shape[1]:
        return torch.zeros_like(ids, dtype=torch.bool)
    ordered = others.sort(1).values
    places = torch.searchsorted(ordered, ids.contiguous()).clamp_max_(ordered.shape[1] - 1)
    return ordered.gather(1, places) == ids


def first_places(ids: Tensor) -> Tensor:
    """Return in which column each of the ids (rows, n) stands first in its row."""
    ordered, columns = ids.sort(dim=1, stable=True)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    numbers = torch.arange(ids.shape[1]).expand_as(ids)
    start = numbers.masked_fill(~starts, 0).cummax(1).values if ids.shape[1] else numbers
    return torch.empty_like(columns).scatter_(1, columns, columns.gather(1, start))
