"""Classes that were taken out of a head while the others keep their ids: which they are, and how to count past them."""

import numpy as np
import torch
from torch import Tensor


class RemovedClasses:
    """Ids of removed classes, ascending. Never changes: `with_` returns another.

    Those that are left have a rank, their id in a head without the gaps. Drawing ranks instead of ids makes a head with
    gaps draw what one without them draws.
    """

    def __init__(self, ascending: Tensor | None = None) -> None:
        self.ids = torch.empty(0, dtype=torch.int64, device="cpu") if ascending is None else ascending
        self._left_before = self.ids - torch.arange(len(self.ids), device="cpu")  # classes left below each

    def __len__(self) -> int:
        return len(self.ids)

    def with_(self, ids: Tensor) -> "RemovedClasses":
        """Return these and more, in any order: put into their places, as there may be millions and one comes."""
        new = ids.detach().to("cpu", torch.int64).unique()
        new = new[~self.holds(new)]
        places = torch.searchsorted(self.ids, new)
        return RemovedClasses(torch.from_numpy(np.insert(self.ids.numpy(), places.numpy(), new.numpy())))

    def holds(self, ids: Tensor) -> Tensor:
        """Return which of these ids, of any shape, are removed."""
        if not len(self.ids):
            return torch.zeros_like(ids, dtype=torch.bool)
        return self.ids[torch.searchsorted(self.ids, ids.contiguous()).clamp_max(len(self.ids) - 1)] == ids

    def ids_of(self, ranks: Tensor) -> Tensor:
        """Return the ids of classes that are left, by their ranks."""
        return ranks + torch.searchsorted(self._left_before, ranks, right=True) if len(self.ids) else ranks

    def ranks_of(self, ids: Tensor) -> Tensor:
        """Return the ranks of classes that are left, by their ids."""
        return ids - torch.searchsorted(self.ids, ids) if len(self.ids) else ids
