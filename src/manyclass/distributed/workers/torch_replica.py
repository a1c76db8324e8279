"""A replica of a trunk that is a torch module: the only file of a worker that needs torch.

Every step computes with tensors of its own, so that its way back is that of its way there, however many steps are under
way and whatever was fetched meanwhile.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from manyclass.distributed.messages import Arrays, Floats
from manyclass.distributed.workers.worker import Forward
from manyclass.errors import InputError

Batch = tuple[Tensor, Tensor]


class TorchReplica:
    """trunk: a module of its own for each replica, in training mode; batches: a function of the batch's number."""

    def __init__(self, trunk: nn.Module, batches: Callable[[int], Batch]) -> None:
        self.trunk, self.batches = trunk.train(), batches
        self._values = {name: part.detach() for name, part in trunk.named_parameters()}
        self._buffers = {name: part.detach() for name, part in trunk.named_buffers()}

    def forward(self, number: int) -> Forward:
        """Return batch number `number` after the trunk."""
        input, target = self.batches(number)
        leaves = {name: part.detach().requires_grad_() for name, part in self._values.items()}
        buffers = {name: part.clone() for name, part in self._buffers.items()}  # the trunk writes into these
        with torch.enable_grad():
            features = torch.func.functional_call(self.trunk, {**leaves, **buffers}, (input,))
        self._buffers = buffers
        if features.dim() != 2 or len(features) != len(target):
            raise InputError(
                f"the trunk made {tuple(features.shape)} of {len(target)} examples; it has to make (examples, features)"
            )
        return Forward(features.detach().float().contiguous().numpy(), target.numpy(), (features, leaves))

    def backward(self, forward: Forward, gradient: Floats) -> dict[str, Floats]:
        """Return the gradients of the trunk's parameters."""
        features, leaves = forward.kept
        if not features.requires_grad:  # a trunk without parameters
            return {}
        given = torch.from_numpy(np.ascontiguousarray(gradient)).to(features.dtype)
        found = torch.autograd.grad(features, list(leaves.values()), given, allow_unused=True)
        return {
            name: part.detach().float().contiguous().numpy()
            for name, part in zip(leaves, found, strict=True)
            if part is not None
        }

    def load(self, values: dict[str, Floats], buffers: Arrays) -> None:
        """Take over parameters, and buffers where there are any."""
        known = dict(self.trunk.named_parameters())
        self._values = {name: torch.tensor(part, dtype=known[name].dtype) for name, part in values.items()}
        self._buffers |= {name: torch.tensor(part) for name, part in buffers.items()}

    def buffers(self) -> Arrays:
        """Return the trunk's buffers as the last batch left them."""
        return {name: part.numpy() for name, part in self._buffers.items()}


def trunk_arrays(trunk: nn.Module) -> tuple[dict[str, Floats], Arrays]:
    """Return parameters and buffers of a trunk by name, as its server starts with them."""
    values = {name: part.detach().float().numpy().copy() for name, part in trunk.named_parameters()}
    return values, {name: part.detach().numpy().copy() for name, part in trunk.named_buffers()}


def load_trunk(trunk: nn.Module, values: dict[str, Floats], buffers: Arrays) -> None:
    """Write parameters and buffers of a server into a module."""
    with torch.no_grad():
        for name, part in trunk.named_parameters():
            part.copy_(torch.tensor(values[name]))
        for name, buffer in trunk.named_buffers():
            buffer.copy_(torch.tensor(buffers[name]))
