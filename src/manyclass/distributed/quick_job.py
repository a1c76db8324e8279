"""The job of `manyclass train --quick`, and a model for your own: the demo's task, tell incomplete pictures apart."""

import torch
from torch import Tensor, nn

from manyclass.distributed import HeadSettings, Job, ServerRule

FEATURES, HIDDEN, BATCH = 64, 128, 256


class Pictures:
    """Every class is a point, and an example is its point with half of the features missing, and noise.

    Classes are met as unequally often as words are. A batch is a function of its number.
    """

    def __init__(self, classes: int, features: int = FEATURES) -> None:
        self.centres = torch.randn(classes, features, generator=torch.Generator().manual_seed(0))
        shares = 1 / (torch.arange(classes, dtype=torch.float64) + 10)
        self.cumulated = (shares / shares.sum()).cumsum(0)

    def batch(self, number: int, count: int = BATCH) -> tuple[Tensor, Tensor]:
        """Return inputs (count, features) and class ids (count,)."""
        generator = torch.Generator().manual_seed(number)
        places = torch.rand(count, generator=generator, dtype=torch.float64)
        labels = torch.searchsorted(self.cumulated, places).clamp_(max=len(self.centres) - 1)
        seen = torch.rand(count, self.centres.shape[1], generator=generator) < 0.5
        noise = 0.5 * torch.randn(count, self.centres.shape[1], generator=generator)
        return self.centres[labels] * seen + noise, labels


def trunk() -> nn.Module:
    """Return the network below the classes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.BatchNorm1d(HIDDEN))


def job(quick: bool = False) -> Job:
    """Return the job: 100,000 classes, or 20,000 for a first try."""
    classes = 20_000 if quick else 100_000
    pictures = Pictures(classes)
    return Job(
        trunk=trunk,
        batches=pictures.batch,
        head=HeadSettings(classes=classes, features=HIDDEN, rule=ServerRule(kind="adagrad", lr=0.1)),
        trunk_rule=ServerRule(kind="adagrad", lr=0.05),
        steps=600 if quick else 4000,
        test=lambda: [pictures.batch(10**9, 1000)],  # a number that no training batch has
        learned=0.4 if quick else None,
    )
