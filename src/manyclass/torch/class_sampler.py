"""Random classes from a known distribution, for losses that look at a sample of the classes."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from manyclass._backend import core
from manyclass.errors import ConfigError
from manyclass.torch.class_distributions import ByFrequency, Counted, Distribution, LogUniform, Uniform
from manyclass.torch.class_frequencies import checked_frequencies, smoothed
from manyclass.torch.removed_classes import RemovedClasses
from manyclass.torch.target_counts import TargetCounts

MOST_PER_SAMPLE = 4  # draws from all classes, at most, for each one that is wanted outside a set


class Drawn(NamedTuple):
    """Classes that stand for others: each once, ascending, and log(times drawn / times expected) of each."""

    classes: Tensor  # (n,) int64
    log_weights: Tensor  # (n,) float64


class ClassSampler:
    """Draws classes with replacement from a generator of its own.

    distribution: "uniform"; "log_uniform", P(c) = log((c+2)/(c+1)) / log(classes+1), which is close to how often words
    occur when classes are numbered from the most frequent on; a tensor of frequencies (classes,), at least 0: a class
    of frequency 0 is never drawn; or "counted": half uniform, half as often as `counts` has met each class.
    removed: classes that are never drawn.
    Whatever is drawn, the sum over the classes drawn of weight · f(class) is, in the mean, that over all classes.
    """

    def __init__(
        self,
        num_classes: int,
        distribution: str | Tensor = "uniform",
        seed: int = 0,
        removed: RemovedClasses | None = None,
        counts: TargetCounts | None = None,
        argument: str = "sampler",
    ) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.name = distribution if isinstance(distribution, str) else "frequencies"
        self._uniform = Uniform(num_classes, RemovedClasses() if removed is None else removed)
        self.distribution: Distribution = self._uniform
        if isinstance(distribution, Tensor):
            self.distribution = ByFrequency(checked_frequencies(argument, distribution, num_classes))
        elif distribution == "log_uniform":
            self.distribution = LogUniform(num_classes)
        elif distribution == "counted":
            self.distribution = Counted(self._uniform, TargetCounts(num_classes) if counts is None else counts)
        elif distribution != "uniform":
            raise ConfigError(
                f"{argument}={distribution!r} is unknown; choose 'uniform', 'log_uniform', 'counted' or give a tensor "
                "of frequencies"
            )

    @property
    def num_classes(self) -> int:
        """Ids that there are, those of removed classes included."""
        return self._uniform.num_classes

    @property
    def classes_left(self) -> int:
        """Classes that are not removed."""
        return self._uniform.left

    @property
    def removed(self) -> RemovedClasses:
        """Classes that are never drawn."""
        return self._uniform.removed

    @removed.setter
    def removed(self, removed: RemovedClasses) -> None:
        self._uniform.removed = removed

    def add_classes(self, count: int) -> None:
        """Take new classes in; those that frequencies were given without are as likely as one that was never met."""
        self._uniform.num_classes += count
        if isinstance(self.distribution, LogUniform):
            self.distribution = LogUniform(self.num_classes)
        elif isinstance(self.distribution, ByFrequency):
            given = self.distribution.frequencies
            unmet = smoothed(torch.cat([given, given.new_zeros(1)]))[-1]
            self.distribution = ByFrequency(torch.cat([given, unmet.expand(count)]))

    def keep_classes(self, kept: Tensor) -> None:
        """Give the classes kept, ascending, the ids from 0 on; the others, the removed ones, are gone."""
        self._uniform.num_classes, self._uniform.removed = len(kept), RemovedClasses()
        if isinstance(self.distribution, LogUniform):
            self.distribution = LogUniform(self.num_classes)
        elif isinstance(self.distribution, ByFrequency):
            self.distribution = ByFrequency(self.distribution.frequencies[kept])

    def draw(self, count: int) -> Drawn:
        """Return `count` classes drawn with replacement, equal ones together."""
        ids = self.draw_ids(count)
        classes, times = _counted(ids, ids[:0])
        return Drawn(classes, times.double().log_() - math.log(count) - self.log_probability(classes))

    def draw_ids(self, count: int) -> Tensor:
        """Return `count` classes drawn with replacement, as they come."""
        places = torch.rand(count, generator=self.generator, dtype=torch.float64)
        ids = self.distribution.at(places)
        if self.distribution is self._uniform:
            return ids
        return ids[(ids >= 0) & ~self.removed.holds(ids)]  # a draw of what is gone is no draw of another

    def all_or_drawn(self, count: int) -> Drawn:
        """Return `count` draws; or, where there are no more classes, each that can be drawn, for itself alone."""
        if count < self.num_classes:
            return self.draw(count)
        classes = self.distribution.possible()
        classes = classes[~self.removed.holds(classes)]
        return Drawn(classes, torch.zeros(len(classes), dtype=torch.float64))

    def draw_outside(self, members: Tensor, count: int) -> Drawn:
        """Return about `count` draws, with replacement, from the classes that are not members.

        members: (n,) distinct, ascending, none of them removed. Uniform draws are exactly `count`, and each class drawn
        stands for (classes outside) / count others per draw. Others are drawn from all classes, as many as leave
        `count` in the mean when the members among them are dropped.
        """
        outside = self._uniform.left - len(members)
        if outside == 0 or count == 0:
            return Drawn(members[:0], torch.empty(0, dtype=torch.float64))
        if self.distribution is not self._uniform:
            share = 1 - float(self.log_probability(members).exp().sum())
            drawn = self.draw(math.ceil(count / max(share, 1 / MOST_PER_SAMPLE)))
            there = already_there(members[None], drawn.classes)[0]
            return Drawn(drawn.classes[~there], drawn.log_weights[~there])
        ranks = torch.randint(outside, (count,), generator=self.generator)
        ranks, times = _counted(ranks, self.removed.ranks_of(members))
        return Drawn(self.removed.ids_of(ranks), (times.double() * (outside / count)).log_())

    def log_probability(self, classes: Tensor) -> Tensor:
        """Return the log probability, float64, that one draw gives each class."""
        return self.distribution.log_probability(classes)


def _counted(draws: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ids, ascending, that draws among those that are not members give, and how often."""
    distinct, times = core().counted_ids(draws.numpy(), members.numpy())
    return torch.from_numpy(distinct), torch.from_numpy(times)


def already_there(ids: Tensor, drawn: Tensor) -> Tensor:
    """Return where a drawn class is one of an example's own, (examples, draws).

    ids: (examples, n), negative where there is none; drawn: (draws,) distinct and ascending.
    """
    if not len(drawn):
        return torch.zeros(len(ids), 0, dtype=torch.bool, device=drawn.device)
    places = torch.searchsorted(drawn, ids).clamp_max(len(drawn) - 1)
    places = torch.where(drawn[places] == ids, places, len(drawn))  # not drawn: a column that is cut off
    hits = torch.zeros(len(ids), len(drawn) + 1, dtype=torch.bool, device=drawn.device)
    return hits.scatter_(1, places, True)[:, :-1]
