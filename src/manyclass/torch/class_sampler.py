"""Random classes from a known distribution, for losses that look at a sample of the classes."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from manyclass._backend import core
from manyclass.errors import ConfigError, InputError, InputTypeError
from manyclass.torch.removed_classes import RemovedClasses


class Drawn(NamedTuple):
    """Classes drawn with replacement: each once, ascending, and log(times drawn / times expected) of each."""

    classes: Tensor  # (n,) int64
    log_weights: Tensor  # (n,) float64


class ClassSampler:
    """Draws classes with replacement from a generator of its own.

    distribution: "uniform"; "log_uniform", P(c) = log((c+2)/(c+1)) / log(classes+1), which is close to how often words
    occur when classes are numbered from the most frequent on; or a tensor of frequencies (classes,), at least 0: a
    class of frequency 0 is never drawn.
    removed: classes that are never drawn; of "uniform" only.
    """

    def __init__(
        self,
        num_classes: int,
        distribution: str | Tensor = "uniform",
        seed: int = 0,
        removed: RemovedClasses | None = None,
    ) -> None:
        self.num_classes = num_classes
        self.removed = RemovedClasses() if removed is None else removed
        self.generator = torch.Generator().manual_seed(seed)
        self.name = distribution if isinstance(distribution, str) else "frequencies"
        self._cumulated: Tensor | None = None
        if isinstance(distribution, Tensor):
            self._cumulated = _checked_frequencies(distribution, num_classes).cumsum(0)
        elif distribution not in ("uniform", "log_uniform"):
            raise ConfigError(
                f"sampler={distribution!r} is unknown; choose 'uniform', 'log_uniform' or give a tensor of frequencies"
            )

    @property
    def _left(self) -> int:
        return self.num_classes - len(self.removed)

    def draw(self, count: int) -> Drawn:
        """Return `count` classes drawn with replacement, equal ones together."""
        places = torch.rand(count, generator=self.generator, dtype=torch.float64)
        if self._cumulated is not None:
            ids = torch.searchsorted(self._cumulated, places * self._cumulated[-1], right=True)
        elif self.name == "uniform":
            ids = self.removed.ids_of((places * self._left).long().clamp_(0, self._left - 1))
        else:
            ids = (places * math.log(self.num_classes + 1)).exp().long() - 1
        ids = ids.clamp_(0, self.num_classes - 1)  # rounding may lead one too far
        classes, times = _counted(ids, ids[:0])
        return Drawn(classes, times.double().log_() - math.log(count) - self.log_probability(classes))

    def draw_outside(self, members: Tensor, count: int) -> Drawn:
        """Return `count` draws, with replacement and all alike, from the classes that are not members.

        members: (n,) distinct, ascending, none of them removed. Each class drawn stands for (classes outside) /
        count others per draw.
        """
        outside = self._left - members.shape[0]
        if outside == 0 or count == 0:
            return Drawn(members[:0], torch.empty(0, dtype=torch.float64))
        drawn = torch.randint(outside, (count,), generator=self.generator)
        ranks, times = _counted(drawn, self.removed.ranks_of(members))
        return Drawn(self.removed.ids_of(ranks), (times.double() * (outside / count)).log_())

    def log_probability(self, classes: Tensor) -> Tensor:
        """Return the log probability, float64, that one draw gives each class."""
        if self._cumulated is not None:
            before = torch.where(classes > 0, self._cumulated[classes - 1], 0)
            return ((self._cumulated[classes] - before) / self._cumulated[-1]).log()
        if self.name == "uniform":
            return torch.full(classes.shape, -math.log(self._left), dtype=torch.float64)
        return torch.log1p(1 / (classes.double() + 1)).log() - math.log(math.log(self.num_classes + 1))


def _counted(draws: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ids, ascending, that draws among those that are not members give, and how often."""
    distinct, times = core().counted_ids(draws.numpy(), members.numpy())
    return torch.from_numpy(distinct), torch.from_numpy(times)


def already_there(ids: Tensor, drawn: Tensor) -> Tensor:
    """Return where a drawn class is one of an example's own, (examples, draws).

    ids: (examples, n), negative where there is none; drawn: (draws,) distinct and ascending.
    """
    places = torch.searchsorted(drawn, ids).clamp_max(len(drawn) - 1)
    places = torch.where(drawn[places] == ids, places, len(drawn))  # not drawn: a column that is cut off
    hits = torch.zeros(len(ids), len(drawn) + 1, dtype=torch.bool, device=drawn.device)
    return hits.scatter_(1, places, True)[:, :-1]


def _checked_frequencies(frequencies: Tensor, num_classes: int) -> Tensor:
    """Return frequencies as float64 after checks."""
    if frequencies.is_complex() or frequencies.dtype == torch.bool:
        raise InputTypeError(f"sampler has dtype {frequencies.dtype}; frequencies are whole numbers or floats")
    if frequencies.shape != (num_classes,):
        raise InputError(f"sampler has shape {tuple(frequencies.shape)}; expected ({num_classes},): one per class")
    values = frequencies.detach().cpu().double()
    wrong = ~(values.isfinite() & (values >= 0))
    if wrong.any():
        at = int(wrong.nonzero()[0])
        raise InputError(f"sampler[{at}]={values[at].item()}; frequencies are finite and at least 0: replace it")
    if not values.sum() > 0:
        raise InputError("sampler holds only zeros, so no class can be drawn; give one frequency above 0")
    return values
