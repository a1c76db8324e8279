"""The coordinator: who works, under which incarnation, on which batches, and who has to wait for whom.

It holds no weights. Times are given to it, so that a simulation may give its own. Workers that are silent for longer
than their lease are given up: their batches go to others, nobody waits for them, and should they come back, servers
refuse what they push until they join anew. Slow ones are not silent: `alive` is called beside their work.
"""

import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from manyclass._validation import check_count
from manyclass.distributed.messages import FencedError
from manyclass.distributed.staleness import Staleness

EPOCH_BITS = 16  # incarnations of a worker in one run of the job
PATIENCE = 0.02  # seconds until a worker that has to wait asks again


class Assignment(NamedTuple):
    """Batches to work on; or seconds to wait before asking again; or the end.

    accepted: those reported as finished that were not before; what an answer that got lost had accepted is not in it.
    """

    numbers: list[int]
    wait: float = 0.0
    stop: bool = False
    accepted: tuple[int, ...] = ()


class Fence(NamedTuple):
    """Servers are to refuse this worker's incarnations below the given one."""

    worker: int
    incarnation: int


@dataclass
class _Member:
    incarnation: int
    heard: float
    clock: int
    working_on: set[int] = field(default_factory=set)


class Coordinator:
    """Deals out the batches 0 … batches - 1, each to be finished once.

    lease: seconds without a word after which a worker is given up. block: batches that are dealt out at a time. epoch:
    how often the job was started before (`JobFolder.new_epoch`), so that no incarnation is ever given out twice.
    """

    def __init__(
        self, batches: int, *, staleness: Staleness | None = None, lease: float = 30.0, block: int = 4, epoch: int = 0
    ) -> None:
        self.batches = check_count("batches", batches)
        self.staleness, self.lease = staleness or Staleness(), lease
        self.block = 1 if self.staleness.lead is not None else check_count("block", block)
        self.epoch = check_count("epoch", epoch, low=0)
        self._members: dict[int, _Member] = {}
        self._incarnations: dict[int, int] = {}
        self._next, self._returned = 0, set[int]()
        self._done_through, self._done = 0, set[int]()  # all below the first are finished, and these
        self._lock = threading.Lock()

    @property
    def finished(self) -> int:
        """How many batches are finished."""
        return self._done_through + len(self._done)

    @property
    def over(self) -> bool:
        """Whether all are."""
        return self.finished >= self.batches

    @property
    def workers(self) -> list[int]:
        """Who works."""
        with self._lock:
            return sorted(self._members)

    def join(self, worker: int, now: float) -> int:
        """Return the incarnation under which a worker is to push; an earlier one of the same number is out."""
        with self._lock:
            self._remove(worker)
            incarnation = max(self._incarnations.get(worker, 0), self.epoch << EPOCH_BITS) + 1
            self._incarnations[worker] = incarnation
            clock = min((member.clock for member in self._members.values()), default=0)
            self._members[worker] = _Member(incarnation, now, clock)
            return incarnation

    def next(
        self, worker: int, incarnation: int, finished: list[int], now: float, holding: list[int] | None = None
    ) -> Assignment:
        """Take note of finished batches and return what to do next. FencedError: the worker was given up.

        holding: what the worker has to do still; what it was dealt and does not hold, an answer that got lost, is dealt
        out again. None: answers do not get lost.
        """
        with self._lock:
            member = self._heard(worker, incarnation, now)
            member.clock += len(member.working_on & set(finished))
            member.working_on -= set(finished)
            if holding is not None:
                self._returned |= member.working_on - set(holding)
                member.working_on &= set(holding)
            accepted = self._note_done(finished)
            if self.over:
                return Assignment([], stop=True, accepted=accepted)
            if self.staleness.must_wait(member.clock + len(member.working_on), self._slowest()):
                return Assignment([], wait=PATIENCE, accepted=accepted)
            numbers = self._dealt()
            member.working_on |= set(numbers)
            return Assignment(numbers, 0.0 if numbers else PATIENCE, accepted=accepted)

    def alive(self, worker: int, incarnation: int, now: float) -> None:
        """Take note that a worker lives, however long its step takes. FencedError: it was given up."""
        with self._lock:
            self._heard(worker, incarnation, now)

    def leave(self, worker: int, incarnation: int) -> None:
        """Let a worker go that says so."""
        with self._lock:
            if worker in self._members and self._members[worker].incarnation == incarnation:
                self._remove(worker)

    def give_up(self, worker: int) -> Fence | None:
        """Let a worker go that is known to be dead; returns what servers are to be told."""
        with self._lock:
            if worker not in self._members:
                return None
            self._remove(worker)
            return Fence(worker, self._incarnations[worker] + 1)

    def expire(self, now: float) -> list[Fence]:
        """Let all go whose lease is over; returns what servers are to be told."""
        with self._lock:
            late = [worker for worker, member in self._members.items() if now - member.heard > self.lease]
        return [fence for worker in late if (fence := self.give_up(worker)) is not None]

    def saved(self) -> dict[str, Any]:
        """Return what a manifest keeps."""
        with self._lock:
            return {
                "batches": self.batches,
                "done_through": self._done_through,
                "done": sorted(self._done),
                "incarnations": {str(worker): number for worker, number in self._incarnations.items()},
            }

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on where a manifest says; whoever worked then has to join anew."""
        with self._lock:
            self._members.clear()
            self._done_through, self._done = int(saved["done_through"]), set(saved["done"])
            self._next, self._returned = self._done_through, set()
            self._incarnations = {int(worker): int(number) for worker, number in saved["incarnations"].items()}

    def _dealt(self) -> list[int]:
        numbers = sorted(self._returned)[: self.block]
        self._returned -= set(numbers)
        while len(numbers) < self.block and self._next < self.batches:
            if self._next >= self._done_through and self._next not in self._done:
                numbers.append(self._next)
            self._next += 1
        return numbers

    def _heard(self, worker: int, incarnation: int, now: float) -> _Member:
        member = self._members.get(worker)
        if member is None or member.incarnation != incarnation:
            raise FencedError(f"worker {worker}, incarnation {incarnation}, was given up; join again")
        member.heard = now
        return member

    def _note_done(self, finished: list[int]) -> tuple[int, ...]:
        """Take down what is finished, and return what was not before."""
        accepted = tuple(sorted({number for number in finished if number >= self._done_through} - self._done))
        self._done |= set(accepted)
        while self._done_through in self._done:
            self._done.remove(self._done_through)
            self._done_through += 1
        return accepted

    def _slowest(self) -> int:
        """Return the steps finished by the slowest of those that have something to do."""
        return min(member.clock for member in self._members.values())

    def _remove(self, worker: int) -> None:
        member = self._members.pop(worker, None)
        if member is not None:
            self._returned |= member.working_on
