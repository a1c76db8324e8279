"""Distributions that random classes are drawn from: which class a place in [0, 1) is, and how likely each one is."""

import math
from typing import Protocol

import torch
from torch import Tensor

from manyclass.torch.removed_classes import RemovedClasses
from manyclass.torch.target_counts import TargetCounts

UNIFORM_SHARE = 0.5  # of the draws from counts: a class that was never met is drawn too, and weighs at most twice


class Distribution(Protocol):
    """What a sampler draws from."""

    def at(self, places: Tensor) -> Tensor:
        """Return the class at each place in [0, 1), float64; negative where nothing is drawn."""

    def log_probability(self, classes: Tensor) -> Tensor:
        """Return the log probability, float64, that one draw gives each class."""

    def possible(self) -> Tensor:
        """Return the classes that can be drawn, ascending."""


class Uniform:
    """All classes alike, but for those removed: what is drawn are ranks, so that gaps change nothing."""

    def __init__(self, num_classes: int, removed: RemovedClasses) -> None:
        self.num_classes, self.removed = num_classes, removed

    @property
    def left(self) -> int:
        """How many classes there are."""
        return self.num_classes - len(self.removed)

    def at(self, places: Tensor) -> Tensor:
        return self.removed.ids_of((places * self.left).long().clamp_(0, self.left - 1))

    def log_probability(self, classes: Tensor) -> Tensor:
        return torch.full(classes.shape, -math.log(self.left), dtype=torch.float64)

    def possible(self) -> Tensor:
        return self.removed.ids_of(torch.arange(self.left))


class LogUniform:
    """P(c) = log((c+2)/(c+1)) / log(classes+1): about how words occur, classes numbered from the most frequent on."""

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def at(self, places: Tensor) -> Tensor:
        ids = (places * math.log(self.num_classes + 1)).exp().long() - 1
        return ids.clamp_(0, self.num_classes - 1)  # rounding may lead one too far

    def log_probability(self, classes: Tensor) -> Tensor:
        return torch.log1p(1 / (classes.double() + 1)).log() - math.log(math.log(self.num_classes + 1))

    def possible(self) -> Tensor:
        return torch.arange(self.num_classes)


class ByFrequency:
    """In proportion to given frequencies (classes,), float64; a class of frequency 0 is never drawn."""

    def __init__(self, frequencies: Tensor) -> None:
        self.frequencies = frequencies
        self._cumulated = frequencies.cumsum(0)

    def at(self, places: Tensor) -> Tensor:
        ids = torch.searchsorted(self._cumulated, places * self._cumulated[-1], right=True)
        return ids.clamp_(0, len(self.frequencies) - 1)

    def log_probability(self, classes: Tensor) -> Tensor:
        # Of the sums, because it is these that a draw meets.
        before = torch.where(classes > 0, self._cumulated[classes - 1], 0)
        return ((self._cumulated[classes] - before) / self._cumulated[-1]).log()

    def possible(self) -> Tensor:
        return self.frequencies.nonzero()[:, 0]


class Counted:
    """Half of the draws uniform, half in proportion to how often classes were targets lately."""

    def __init__(self, uniform: Uniform, counts: TargetCounts) -> None:
        self.uniform, self.counts = uniform, counts

    @property
    def _uniform_share(self) -> float:
        return UNIFORM_SHARE if self.counts.known else 1.0

    def at(self, places: Tensor) -> Tensor:
        share = self._uniform_share
        uniform = self.uniform.at(places / share)
        if share == 1:
            return uniform
        return torch.where(places < share, uniform, self.counts.at((places - share).clamp_min(0) / (1 - share)))

    def log_probability(self, classes: Tensor) -> Tensor:
        share = self._uniform_share
        lately = self.counts.counts[classes].double() / max(1, self.counts.known)
        return (share / self.uniform.left + (1 - share) * lately).log()

    def possible(self) -> Tensor:
        return self.uniform.possible()
