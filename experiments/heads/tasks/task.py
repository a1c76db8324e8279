"""What a task is: batches that are functions of their number, examples to judge by, and the network below the head."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from manyclass.training.metrics import Accuracy, Metrics

EMBEDDING_SCALE = 0.02  # of new embeddings: small, so that the first steps tell


@dataclass(frozen=True)
class Examples:
    """Inputs of the trunk and what is right. excluded: (n, m) classes that are no answers, padded with -1."""

    inputs: Tensor
    targets: Tensor  # (n,) or (n, p), padded with -1
    excluded: Tensor | None = None

    def parts(self, size: int) -> Iterator["Examples"]:
        """Yield them in order, so many at a time."""
        for begin in range(0, len(self.inputs), size):
            part = slice(begin, begin + size)
            excluded = None if self.excluded is None else self.excluded[part]
            yield Examples(self.inputs[part], self.targets[part], excluded)


class Task(ABC):
    """A problem with very many classes. Its data is a function of numbers: the same for every head, and every time."""

    classes: int
    features: int  # of what the head reads
    optimizer: Literal["sgd", "adagrad"] = "sgd"
    frequencies: Tensor | None = None  # shares of the classes among the targets, float64; None: all alike

    @abstractmethod
    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        """Return training batch number `step`: inputs of the trunk, and class ids (size,) or (size, positives)."""

    @abstractmethod
    def validation(self, count: int) -> Examples:
        """Return at most so many examples to choose settings by: neither trained on nor tested on."""

    @abstractmethod
    def test(self, count: int) -> Examples:
        """Return at most so many examples to judge by."""

    def tests_at_the_end(self) -> dict[str, Examples]:
        """Return by name what the end of a run is judged by beside `test`."""
        return {}

    @abstractmethod
    def trunk(self) -> nn.Module:
        """Return a new network below the head; torch's generator decides its weights."""

    def metrics(self) -> Metrics:
        """Return by what an answer is judged; the first is the one of the figures."""
        return Metrics([Accuracy()])


def embedded_bag(things: int, features: int) -> nn.Module:
    """Return the mean of embeddings of (examples, n) numbers, where 0 is none, normalised over the batch."""
    bag = nn.EmbeddingBag(things, features, mode="mean", sparse=True, padding_idx=0)
    nn.init.normal_(bag.weight, std=EMBEDDING_SCALE)
    with torch.no_grad():
        bag.weight[0] = 0
    return nn.Sequential(bag, nn.BatchNorm1d(features))
