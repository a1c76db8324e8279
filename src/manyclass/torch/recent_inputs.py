"""A sample of a head's own inputs, kept while it trains: what its index is balanced with whenever it is built."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from manyclass.errors import FileError

PER_STEP = 16  # examples of a batch that are kept
SELDOM = 8  # once there are as many as are kept, only one batch in so many is looked at: a sample need not be of today
ENOUGH = 256  # inputs from which on they tell more than stand-ins
MOST, MOST_NUMBERS = 2048, 1 << 22  # inputs, and numbers in all of them: 16 MB


class RecentInputs:
    """The newest inputs, as rows are multiplied with them; the oldest are forgotten first."""

    def __init__(self, features: int) -> None:
        self._ring: npt.NDArray[np.float32] = np.zeros((min(MOST, max(ENOUGH, MOST_NUMBERS // features)), features),
                                                       np.float32)  # fmt: skip
        self.count = 0  # kept in all so far

    def note(self, x: Tensor, step: int) -> None:
        """Keep some examples of batch number `step`, (examples, features), spread over it; none that is not finite."""
        if self.count >= len(self._ring) and step % SELDOM:
            return
        some = x[:: -(-len(x) // PER_STEP)] if len(x) else x
        values = some.float().numpy()
        if not np.isfinite(values).all():
            return
        place = self.count % len(self._ring)
        self._ring[place : place + len(values)] = values[: len(self._ring) - place]
        self._ring[: max(0, place + len(values) - len(self._ring))] = values[len(self._ring) - place :]
        self.count += len(values)

    def sample(self) -> npt.NDArray[np.float32] | None:
        """Return the inputs that are kept, or None where they are too few, or all equal, to tell anything."""
        kept = self._ring[: self.count]
        return None if len(kept) < ENOUGH or (kept == kept[0]).all() else kept

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint keeps."""
        return {"inputs": torch.from_numpy(self._ring[: self.count].copy())}

    def restore(self, tensors: dict[str, Tensor], count: Any) -> None:
        """Take over what `tensors` gave, and `count`."""
        kept = tensors["inputs"]
        expected = min(int(count), len(self._ring)), self._ring.shape[1]
        if kept.shape != expected or not kept.isfinite().all():
            raise FileError(f"the saved inputs are {tuple(kept.shape)}; expected {expected} of them, finite: damaged?")
        self._ring[: len(kept)] = kept.float().numpy()
        self.count = int(count)
