"""How often each class was a target lately: counted while a head trains, for its sampler and for the start of its bias.

The last targets themselves are kept, the oldest forgotten first. That makes a step's counting as cheap as its batch is
long, whatever the number of classes, and drawing cheap too: a target drawn at random from those kept is a class drawn
in proportion to its count.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from manyclass._backend import core
from manyclass.errors import InputError

FOR_DRAWS = 1 << 20  # targets that a sampler remembers: 4 MB
FOR_A_START = 1 << 17  # targets behind the start of a bias: half a megabyte


class TargetCounts(nn.Module):
    """The last targets of training and how often each class is among them; part of the state dict.

    remembered: how many targets are kept.
    Not a buffer of the module: what is derived from it must follow, and each process counts its own examples.
    """

    def __init__(self, num_classes: int, remembered: int = FOR_DRAWS) -> None:
        super().__init__()
        self.num_classes = num_classes
        self._ring = torch.full((remembered,), -1, dtype=torch.int32, device="cpu")  # also under torch.device("meta")
        self.forget()

    def forget(self) -> None:
        """Start again."""
        self.targets, self.examples = 0, 0  # that were counted in all
        self._gone = 0  # of the targets that are kept: those whose class is gone
        self._ring.fill_(-1)
        # of the targets that are remembered
        self.counts = torch.zeros(self.num_classes, dtype=torch.int32, device="cpu")

    @property
    def remembered(self) -> int:
        """How many targets are kept at most."""
        return len(self._ring)

    @property
    def known(self) -> int:
        """How many targets are kept now."""
        return min(self.targets, self.remembered)

    @property
    def known_here(self) -> int:
        """Of how many of them the class is still there: what `counts` add up to."""
        return self.known - self._gone

    def add(self, positives: Tensor) -> tuple[int, int, int]:
        """Count the targets of a batch, (examples, n), -1 where there is none.

        Return how often they had been counted in all, how many had not, and the ordered pairs of equal ones, of those
        that are kept.
        """
        ids = positives.numpy()
        new = ids.reshape(-1)
        if len(new) and new.min() < 0:
            new = new[new >= 0]
        before = self.known
        self.examples += len(ids)
        self.targets += len(new)
        kept = new[max(0, len(new) - self.remembered) :]
        place = (self.targets - len(kept)) % self.remembered
        if self._gone and len(kept):
            overwritten = np.arange(place, place + len(kept)) % self.remembered
            self._gone -= int((self._ring.numpy()[overwritten[overwritten < before]] < 0).sum())
        return core().count_targets(kept, self.counts.numpy(), self._ring.numpy(), place)  # type: ignore[no-any-return]

    def at(self, places: Tensor) -> Tensor:
        """Return the targets at places in [0, 1) of all that are kept; -1 for one whose class is gone."""
        return self._ring[(places * self.known).long().clamp_max_(self.known - 1)].long()

    def of_first(self, targets: int) -> Tensor:
        """Return how often each class is among the first targets, while those are still kept."""
        first = self._ring[:targets]
        return torch.bincount(first[first >= 0], minlength=self.num_classes)

    def add_classes(self, count: int) -> None:
        """Make room for more classes, not met yet."""
        self.num_classes += count
        self.counts = torch.cat([self.counts, self.counts.new_zeros(count)])

    def keep_classes(self, kept: Tensor) -> None:
        """Give the classes kept, ascending, the ids from 0 on; the others are gone."""
        new_ids = torch.full((self.num_classes + 1,), -1, dtype=torch.int32)  # the last place takes the absent (-1)
        new_ids[kept] = torch.arange(len(kept), dtype=torch.int32)
        self._ring, self.counts, self.num_classes = new_ids[self._ring.long()], self.counts[kept], len(kept)
        self._count_gone()

    def forget_classes(self, ids: Tensor) -> None:
        """Take the targets of these classes out of the counts; their ids stay."""
        if not int(self.counts[ids].sum()):
            return
        self.counts[ids] = 0
        stays = torch.ones(self.num_classes + 1, dtype=torch.bool)  # the last place is for the absent (-1)
        stays[ids] = False
        self._ring = self._ring.masked_fill(~stays[self._ring.long()], -1)
        self._count_gone()

    def _count_gone(self) -> None:
        self._gone = self.known - int(self.counts.sum(dtype=torch.int64))

    def get_extra_state(self) -> Tensor:
        """Return the targets kept and how many there were, for the state dict."""
        return torch.cat([self._ring.long(), torch.tensor([self.targets, self.examples])])

    def set_extra_state(self, state: Tensor) -> None:
        """Go on counting from where this state was taken."""
        if state.dtype != torch.int64 or state.shape != (self.remembered + 2,):
            wrong = f"{state.dtype} {tuple(state.shape)}"
            raise InputError(
                f"target_counts is {wrong}; expected int64 ({self.remembered + 2},): another prior, sampler?"
            )
        state = state.cpu()
        ring, (targets, examples) = state[:-2], state[-2:].tolist()
        in_range = (ring >= -1) & (ring < self.num_classes)
        if not in_range.all() or targets < 0 or examples < 0 or (ring[min(targets, len(ring)) :] >= 0).any():
            raise InputError(
                f"target_counts holds ids beyond the {self.num_classes} classes of the head, or is damaged"
            )
        self._ring, self.targets, self.examples = ring.to(torch.int32), targets, examples
        self.counts = self.of_first(self.remembered).to(torch.int32)
        self._count_gone()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        missing: list[str] = rest[2]
        if f"{prefix}_extra_state" in missing:  # that of an nn.Linear: counts go on as they were
            missing.remove(f"{prefix}_extra_state")
