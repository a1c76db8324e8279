"""Which classes a training step re-hashes: a slice of all in turn (paper, round robin), and those that just moved."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from manyclass._validation import Ids, check_count
from manyclass.torch.room_to_grow import grown

MOST_PULLED = 32  # steps whose pulls are kept apart


class RefreshSchedule:
    """Whose turn it is, and how old the entries of an index are.

    Every step re-hashes at most `limit` classes: first a slice of all classes in turn, so that each is visited once in
    `period` steps (the paper's round robin), then, with `touched_first`, rows that the last step changed, those it
    pulled farthest first. These have at least half of the limit, if there are that many: where 2·classes/limit is more
    than `period`, a round takes that many steps.
    """

    def __init__(self, *, period: int, limit: int, touched_first: bool) -> None:
        self.period = check_count("refresh_steps", period)
        self.limit = check_count("refresh_limit", limit)
        self.touched_first = touched_first
        self.cursor = 0  # next class of the round
        self.step = 0
        self.hashed_at: npt.NDArray[np.int32] = np.zeros(0, np.int32)  # step at which each class was last hashed
        self.touched: Ids = np.empty(0, np.int64)  # classes that moved and are not hashed since, most urgent first
        self.moves_wait = False  # whether rows have moved since the last share was handed out
        self.pulled: list[tuple[Tensor, Tensor]] = []  # of the steps since rows last moved: classes, how far they pull
        self._marked: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)  # a class each; all False between two uses

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "hashed_at": np.zeros(0, np.int32),
            "_marked": np.zeros(0, np.bool_),
        }  # the index itself is built anew where it is needed

    def fresh(self) -> "RefreshSchedule":
        """Return a schedule of the same settings at its beginning."""
        return RefreshSchedule(period=self.period, limit=self.limit, touched_first=self.touched_first)

    def all_hashed(self, classes: int) -> None:
        """Note that every class was hashed now."""
        self.hashed_at = np.full(classes, self.step, np.int32)
        self.touched, self.pulled = np.empty(0, np.int64), []

    def more_hashed(self, count: int) -> None:
        """Note that so many new classes were hashed now."""
        new = torch.full((count,), self.step, dtype=torch.int32)
        self.hashed_at = grown(torch.from_numpy(self.hashed_at), new).numpy()

    def hashed(self, ids: Ids) -> None:
        """Note that these classes were hashed now."""
        self.hashed_at[ids] = self.step

    def next_step(self, classes: int) -> Ids:
        """Begin a step and return the classes to re-hash in it, distinct and ascending."""
        self.step += 1
        limit = min(self.limit, classes)
        turn = min(limit, -(-classes // self.period))
        turn = min(turn, -(-self.limit // 2)) if self.touched_first else turn
        touched = self.touched[: limit - turn] if self.touched_first else self.touched[:0]
        self.touched, self.moves_wait = self.touched[len(touched) :], False
        in_turn = (self.cursor + np.arange(turn)) % classes
        self.cursor = int((self.cursor + turn) % classes)
        return np.unique(np.concatenate([in_turn, touched]))

    def note_pull(self, classes: Tensor, pull: Tensor) -> None:
        """Remember which classes a step will change, distinct and ascending, and how far it pulls each."""
        self.pulled.append((classes, pull))
        if len(self.pulled) > MOST_PULLED:  # rows that never move, of a frozen head for instance, must not pile up
            self.pulled = [self._summed_pull()]

    def _summed_pull(self) -> tuple[Tensor, Tensor]:
        """Return the distinct classes of the steps since rows last moved, and how far those pull each together."""
        if len(self.pulled) == 1:
            return self.pulled[0]
        classes, places = torch.cat([classes for classes, _ in self.pulled]).unique(return_inverse=True)
        pulls = torch.cat([pull for _, pull in self.pulled])
        return classes, torch.zeros(len(classes), dtype=pulls.dtype).index_add_(0, places, pulls)

    def moved(self, ids: Tensor | None) -> None:
        """Take note that rows have moved, by the gradients of all steps since they last did; None: any of them.

        Those that the steps pulled farthest are re-hashed first. What waited from an earlier move waits no longer; but
        moves with no share of re-hashing between them wait together, the latest first.
        """
        if not self.pulled:
            if ids is not None and len(ids):  # the bias after the weight, or a gradient from elsewhere
                self.touched = np.concatenate([self.touched, self._without(ids.numpy(), self.touched)])
            return
        classes, pull = self._summed_pull()
        order = pull.topk(len(pull)).indices
        earlier = self.touched[: self.limit] if self.moves_wait else self.touched[:0]
        latest = classes[order].numpy()
        self.touched = np.concatenate([latest, self._without(earlier, latest)])
        if ids is not None and len(ids) > len(classes):  # rows that only others pulled: other processes, a tied weight
            self.touched = np.concatenate([self.touched, self._without(ids.numpy(), self.touched)])
        self.pulled, self.moves_wait = [], True

    def _without(self, ids: Ids, others: Ids) -> Ids:
        """Return those of distinct ids, in their order, that are not among the others. Asked at each step: no sort."""
        size = 1 + int(max(ids.max(initial=-1), others.max(initial=-1)))
        if len(self._marked) < size:
            self._marked = np.zeros(max(size, len(self.hashed_at)), np.bool_)
        self._marked[others] = True
        left = ids[~self._marked[ids]]
        self._marked[others] = False
        return left

    def age(self) -> tuple[float, int]:
        """Return mean and largest age of the entries, in steps."""
        ages = self.step - self.hashed_at
        return (float(ages.mean()), int(ages.max())) if len(ages) else (0.0, 0)
