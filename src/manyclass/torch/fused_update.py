"""Rows that move inside backward: gradients go to a row optimizer at once, or summed over several passes."""

from typing import Any

import torch
from torch import Tensor

from manyclass.torch.row_products import sparse_rows


class FusedUpdate:
    """Hands row gradients to an optimizer inside backward; with every > 1, the sum of that many backward passes."""

    def __init__(self, optimizer: Any, every: int) -> None:
        self.optimizer = optimizer
        self.every = every
        self.waiting: dict[Tensor, list[Tensor]] = {}  # by parameter: sparse gradients of earlier passes

    def forget(self) -> None:
        """Drop the gradients that wait."""
        self.waiting.clear()

    def begin_step(self, parameter: Tensor) -> Any:
        """Return rule and states for native code that moves the rows itself; None while gradients are collected."""
        return self.optimizer.begin_step(parameter) if self.every == 1 else None

    def update_rows(self, parameter: Tensor, ids: Tensor, gradient: Tensor) -> None:
        """Apply the gradient, or keep it until its turn."""
        if self.every > 1:
            waiting = self.waiting.setdefault(parameter, [])
            waiting.append(sparse_rows(ids, gradient, parameter))
            if len(waiting) < self.every:
                return
            total = _sum(waiting)
            waiting.clear()
            ids, gradient = total.indices()[0], total.values()
        self.optimizer.update_rows(parameter, ids, gradient)


def _sum(parts: list[Tensor]) -> Tensor:
    ids = torch.cat([part.indices() for part in parts], 1)
    values = torch.cat([part.values() for part in parts])
    return torch.sparse_coo_tensor(ids, values, parts[0].shape, check_invariants=False).coalesce()
