"""What breaks things while a job runs: killed and paused processes, by a plan that a seed gives."""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

KINDS = {"kill shard": 4, "kill worker": 4, "pause shard": 1, "pause worker": 2}
PAUSES = (0.5, 6.0)  # seconds; the longer ones outlive the lease


class Nemesis:
    """Strikes once in a while, from a thread of its own.

    processes: returns the process numbers of shards and of workers as they are now. every: mean seconds between two
    faults. faults: how many in all. others: further kinds, by name, with a weight and what to do.
    """

    def __init__(
        self,
        processes: Callable[[], dict[str, list[int]]],
        *,
        every: float,
        faults: int,
        seed: int = 0,
        others: dict[str, tuple[int, Callable[[], bool]]] | None = None,
    ) -> None:
        self.processes, self.every, self.faults, self.others = processes, every, faults, others or {}
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.failure: Exception | None = None  # of the nemesis itself: it strikes no more
        self._killed: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._strike_on, name="nemesis", daemon=True)

    def __enter__(self) -> "Nemesis":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()

    @property
    def finished(self) -> bool:
        """Whether all faults have happened."""
        return sum(self.done.values()) >= self.faults

    def _strike_on(self) -> None:
        weights = KINDS | {name: weight for name, (weight, _) in self.others.items()}
        try:
            while not self._over.wait(self.random.uniform(0.5, 1.5) * self.every) and not self.finished:
                kind = self.random.choices(list(weights), list(weights.values()))[0]
                if self.others[kind][1]() if kind in self.others else self._strike(kind):
                    self.done[kind] += 1
        except Exception as failure:  # a thread would die without a word
            self.failure = failure

    def _strike(self, kind: str) -> bool:
        """Do one thing to one process; returns whether there was one that nobody had killed yet."""
        what, _, whom = kind.partition(" ")
        found = [process for process in self.processes().get(whom, []) if process not in self._killed]
        if not found:
            return False
        victim = self.random.choice(found)
        try:
            if what == "kill":
                os.kill(victim, signal.SIGKILL)
                self._killed.add(victim)  # until it is reaped, a second kill would succeed, too, and break nothing
                return True
            os.kill(victim, signal.SIGSTOP)
        except ProcessLookupError:
            return False
        self._over.wait(self.random.uniform(*PAUSES))
        try:
            os.kill(victim, signal.SIGCONT)
        except ProcessLookupError:
            return True  # somebody else killed it meanwhile
        return True
