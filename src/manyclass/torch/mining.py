"""When candidates are looked up, and for which examples: as often as it is worth, and what was found is remembered.

Looking candidates up for every example takes longer than all the rest of a step. Early in training it is for nothing:
the probability is spread so thinly that random classes teach as much as any, and where a few classes are met all the
time, the batch's targets hold most of what an example may be mistaken for. So the meter reads now and then, exactly,
how noisy a step would be without candidates, and they are looked up as often as that is worth. Each class keeps what
was found for an example of it, for the next ones.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from manyclass._validation import Ids, check_count

WORTH_ALL = 0.4  # noise of the normaliser, from which on candidates are looked up as often as they may
ROUNDING = 1e-9  # ten times a tenth is a little less than one
MEMORY = 0.5  # share of the last readings in the next


class Mining:
    """How a head with shared classes finds the hard ones.

    examples: looked up at a time. every: steps from one time to the next, at least. candidates: retrieved for each.
    remembered: how many of them a class keeps.
    """

    def __init__(self, *, examples: int, every: int, candidates: int, remembered: int) -> None:
        self.examples = check_count("mined_examples", examples, low=0)
        self.every = check_count("mined_every", every)
        self.candidates = check_count("mined_candidates", candidates)
        self.remembered = check_count("remembered", remembered, low=0)
        self.noise: float | None = None  # of a step without candidates, 0 to 1; None: never read, and it is worth it
        self._lists: npt.NDArray[np.uint32] = np.zeros((0, self.remembered), np.uint32)  # id + 1; 0: nothing yet
        self._looked_up: npt.NDArray[np.int32] = np.zeros(0, np.int32)  # number of the look-up; 0: never
        self._count = 0  # of look-ups
        self._due = 0.0  # when it reaches 1, it is time for the next

    def __deepcopy__(self, memo: Any) -> "Mining":
        other = Mining(examples=self.examples, every=self.every, candidates=self.candidates, remembered=self.remembered)
        other.restore(self.tensors(), self.settings(), len(self._lists))
        return other

    @property
    def knows_any(self) -> bool:
        """Whether anything was ever looked up."""
        return self._count > 0

    def note_noise(self, noise: float) -> None:
        """Take in a reading of how noisy a step would be without candidates."""
        self.noise = noise if self.noise is None else MEMORY * self.noise + (1 - MEMORY) * noise

    def worth(self) -> float:
        """Return how often candidates are looked up, as a share of the steps."""
        return (1.0 if self.noise is None else min(1.0, self.noise / WORTH_ALL)) / self.every

    def due(self) -> bool:
        """Begin a step, and return whether it is one that looks candidates up."""
        self._due += self.worth()
        if not self.examples or self._due < 1 - ROUNDING:
            return False
        self._due = 0.0
        return True

    def chosen(self, positives: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """Return the examples to look up, ascending, and the class of each that will remember what is found.

        All, where they are few enough; otherwise at most one of each class. Of every two, one is of a class whose list
        is oldest (none: older than any), so that each class gets its turn; the other of any class, places of the batch
        in turn, so that what is frequent stays fresh.
        """
        self._make_room(classes)
        ids = positives.numpy()
        looked_up = np.where(ids >= 0, self._looked_up[ids], np.iinfo(np.int32).max)
        keys = ids[np.arange(len(ids)), looked_up.argmin(1)]
        if self.examples >= len(ids):
            return torch.arange(len(ids)), torch.from_numpy(keys)
        distinct = np.sort(np.unique(keys, return_index=True)[1])  # the first example of each class
        count = min(self.examples, len(distinct))
        by_age = distinct[np.argsort(looked_up.min(1)[distinct], kind="stable")[: (count + 1) // 2]]
        others = np.setdiff1d(distinct, by_age)
        in_turn = np.roll(others, -(self._count * count) % max(1, len(others)))[: count - len(by_age)]
        examples = np.sort(np.concatenate([by_age, in_turn]))
        return torch.from_numpy(examples), torch.from_numpy(keys[examples])

    def remember(self, keys: Tensor, found: Tensor) -> None:
        """Keep what was found, (n, ranks), likeliest first and -1 where absent, for the class of each example."""
        self._count += 1
        kept = found.numpy()[:, : self.remembered] + 1
        self._lists[keys.numpy(), : kept.shape[1]] = kept.astype(np.uint32)
        self._looked_up[keys.numpy()] = self._count

    def recalled(self, positives: Tensor, classes: int) -> Tensor:
        """Return what is remembered for the classes of these examples: of each example's freshest class, flat."""
        if not self.knows_any:
            return torch.empty(0, dtype=torch.int64)
        self._make_room(classes)
        ids = positives.numpy()
        looked_up = np.where(ids >= 0, self._looked_up[ids], -1)
        keys = np.unique(ids[np.arange(len(ids)), looked_up.argmax(1)])
        found = self._lists[keys].reshape(-1)
        return torch.from_numpy(found[found > 0].astype(np.int64) - 1)

    def forget(self) -> None:
        """Forget all lists: classes have other numbers now."""
        self._lists, self._looked_up = self._lists[:0], self._looked_up[:0]

    def settings(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, as JSON would."""
        return {"noise": self.noise, "look_ups": self._count, "due": self._due}

    def tensors(self) -> dict[str, Tensor]:
        """Return the lists of those classes that have one."""
        known: Ids = np.flatnonzero(self._looked_up)
        parts = {"classes": known, "lists": self._lists[known], "looked_up": self._looked_up[known]}
        return {name: torch.from_numpy(part) for name, part in parts.items()}

    def restore(self, tensors: dict[str, Tensor], settings: dict[str, Any], classes: int) -> None:
        """Take over what `tensors` and `settings` gave."""
        self.forget()
        self._make_room(classes)
        known, lists = tensors["classes"].numpy(), tensors["lists"].numpy()[:, : self.remembered]
        self._lists[known, : lists.shape[1]] = lists
        self._looked_up[known] = tensors["looked_up"].numpy()
        noise = settings.get("noise")  # older checkpoints have another reading: it is taken anew
        self.noise, self._due = None if noise is None else float(noise), float(settings["due"])
        self._count = int(settings["look_ups"])

    def _make_room(self, classes: int) -> None:
        """Have a list for every class; those that were never written to take no memory."""
        missing = classes - len(self._looked_up)
        if missing > 0:
            lists, looked_up = np.zeros((classes, self.remembered), np.uint32), np.zeros(classes, np.int32)
            lists[: len(self._lists)], looked_up[: len(self._looked_up)] = self._lists, self._looked_up
            self._lists, self._looked_up = lists, looked_up
