"""Shards without rows and workers without a network below: they say what is said in a run, with arrays of zeros.

For layers that do not fit into this machine: number, size and order of all messages are those of the real classes.
"""

from dataclasses import dataclass

import numpy as np

from manyclass.distributed.messages import Applied, ApplyShared, Arrays, Floats, Outcome, ScoreShared, SharedScores
from manyclass.distributed.workers.worker import Forward


class HollowShard:
    """Answers as a shard does; counts versions, so that staleness is what it would be."""

    def __init__(self) -> None:
        self.version = 0
        self._scored: dict[tuple[int, int], tuple[int, Floats]] = {}  # (worker, ticket) → version, inputs

    def score_shared(self, asked: ScoreShared) -> SharedScores:
        """Return sums of nothing, for as many examples."""
        self._scored[asked.worker, asked.ticket] = self.version, asked.x
        zeros = np.zeros(len(asked.x), np.float32)
        classes = len(asked.positives.rows) + len(asked.mined) * asked.wanted + asked.tail
        return SharedScores(self.version, classes, zeros, zeros)

    def apply_shared(self, push: ApplyShared) -> Applied:
        """Return a gradient as large as the real one."""
        read_at, x = self._scored.pop((push.sender.worker, push.ticket))
        staleness, self.version = self.version - read_at, self.version + 1
        return Applied(self.version, Outcome.APPLIED, staleness, x)


@dataclass
class HollowReplica:
    """A network below that computes nothing. x: its output at every step; targets: class ids of a batch."""

    x: Floats
    classes: int
    trunk: dict[str, Floats]
    seed: int = 0

    def forward(self, number: int) -> Forward:
        """Return zeros, and random targets."""
        chance = np.random.default_rng([self.seed, number])
        return Forward(self.x, chance.integers(self.classes, size=len(self.x)), None)

    def backward(self, forward: Forward, gradient: Floats) -> dict[str, Floats]:
        """Return gradients of nothing."""
        return self.trunk

    def load(self, values: dict[str, Floats], buffers: Arrays) -> None:
        """Take nothing over."""

    def buffers(self) -> Arrays:
        """There are none."""
        return {}
