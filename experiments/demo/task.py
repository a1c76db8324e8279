"""A task made on the spot: tell which of very many things an incomplete, noisy picture shows."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from manyclass._validation import check_count
from manyclass.errors import ConfigError


@dataclass(frozen=True)
class Identification:
    """Every class is a point; an example is its point with half of the features missing, and noise.

    skew: class number r occurs in proportion to 1/(r + 10)^skew; 0: all alike, 1: as words do.
    Batches are functions of their number: the same for every head that is compared, and for a resumed run.
    """

    centres: Tensor  # (classes, features)
    noise: float = 0.5
    skew: float = 0.0
    seed: int = 0

    @classmethod
    def random(cls, classes: int, features: int, seed: int = 0, skew: float = 0.0) -> "Identification":
        """Return a task of random points."""
        generator = torch.Generator().manual_seed(seed)
        shape = check_count("classes", classes), check_count("features", features)
        return cls(torch.randn(*shape, generator=generator), skew=skew, seed=seed)

    @cached_property
    def frequencies(self) -> Tensor:
        """The share of each class among the examples, float64."""
        weights = (torch.arange(len(self.centres), dtype=torch.float64) + 10) ** -self.skew
        return weights / weights.sum()

    @cached_property
    def _cumulated(self) -> Tensor:
        return self.frequencies.cumsum(0)

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        """Return training batch number `step`: inputs (size, features) and class ids (size,)."""
        return self._draw(step, size)

    def test(self, size: int) -> tuple[Tensor, Tensor]:
        """Return examples that no training batch has."""
        return self._draw(-1, size)

    def _draw(self, number: int, size: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed((self.seed + 1) * 1_000_003 + number)
        places = torch.rand(size, generator=generator, dtype=torch.float64) * self._cumulated[-1]
        labels = torch.searchsorted(self._cumulated, places, right=True).clamp_(max=len(self.centres) - 1)
        points = self.centres[labels]
        seen = torch.rand(points.shape, generator=generator) < 0.5
        return points * seen + self.noise * torch.randn(points.shape, generator=generator), labels


def trunk(features: int, hidden: int, kind: str = "normalized") -> nn.Sequential:
    """Return the network below the head: one hidden layer of rectified units, plain or normalised over the batch."""
    if kind not in ("plain", "normalized"):
        raise ConfigError(f"kind={kind!r} is unknown; choose 'plain' or 'normalized'")
    layers: list[nn.Module] = [nn.Linear(features, hidden), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.BatchNorm1d(hidden)] if kind == "normalized" else []))
