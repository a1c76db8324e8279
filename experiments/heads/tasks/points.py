"""Three tasks of one kind: a class is a point; an example shows half of its features, with noise."""

from typing import Literal

import torch
from torch import Tensor, nn

from experiments.datasets import wordnet
from experiments.demo.task import Identification, trunk
from experiments.heads.tasks.task import Examples, Task

FEATURES, HIDDEN, SKEW = 64, 128, 1.0  # of the demo
OWN_NOISE = 0.6  # how far a class lies from the centre of its family, where families lie 1 from each other
VALIDATION = -2  # the number of the batch that settings are chosen by; -1 is the test


class PointsTask(Task):
    """Identification of noisy, incomplete points, through one hidden layer of rectified units with BatchNorm."""

    def __init__(self, points: Identification, optimizer: Literal["sgd", "adagrad"] = "sgd") -> None:
        self.points, self.optimizer = points, optimizer
        self.classes, self.features = len(points.centres), HIDDEN
        self.frequencies = points.frequencies if points.skew else None

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        return self.points.batch(step, size)

    def validation(self, count: int) -> Examples:
        return Examples(*self.points.batch(VALIDATION, count))

    def test(self, count: int) -> Examples:
        return Examples(*self.points.test(count))

    def trunk(self) -> nn.Module:
        return trunk(self.points.centres.shape[1], HIDDEN)


def demo(classes: int, seed: int) -> PointsTask:
    """Return the task of the experiment demo: random points, classes as unequal as words."""
    return PointsTask(Identification.random(classes, FEATURES, seed, SKEW))


def families(classes: int, in_families: int, seed: int) -> PointsTask:
    """Return the demo's task, but the points lie in families: most of a class's rivals are known beforehand."""
    centres = family_centres(classes, in_families, seed)
    return PointsTask(Identification(centres, skew=SKEW, seed=seed))


def family_centres(classes: int, in_families: int, seed: int) -> Tensor:
    """Return points (classes, features): class c belongs to family c % in_families, so that each has frequent ones."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(in_families, FEATURES, generator=generator)
    return centres[torch.arange(classes) % in_families] + OWN_NOISE * torch.randn(
        classes, FEATURES, generator=generator
    )


def glosses(classes: int, seed: int) -> PointsTask:
    """Return embeddings of WordNet's glosses as points, spread over all of them, scaled to unit variance."""
    rows = wordnet.wordnet().rows
    centres = torch.from_numpy(rows[:: len(rows) // classes][:classes].copy())
    # A class is met a few times in a run: with Adagrad already its first example moves its row.
    return PointsTask(Identification(centres / centres.std(), seed=seed), "adagrad")


def made_glosses(classes: int, seed: int) -> PointsTask:
    """Return random points as wide as glosses."""
    return PointsTask(Identification.random(classes, wordnet.WIDTH, seed), "adagrad")
