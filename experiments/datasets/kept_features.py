"""What a trained network makes of pictures, kept in 16 bits: the experiment imagenet21k writes it, others open it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Halves = npt.NDArray[np.float16]
Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
NAMES = ("train", "train_labels", "test", "test_labels", "mean", "scale")  # of the files
CHUNK = 500  # held-out examples in a batch


@dataclass(frozen=True)
class Features:
    """Inputs of the output layer for training and for testing, with their classes.

    mean and scale are those by which the network standardizes its features before the output layer.
    """

    train: Halves  # (examples, features)
    train_labels: Ids
    test: Halves
    test_labels: Ids
    mean: Floats  # (features,)
    scale: Floats

    def standardized(self, features: Halves) -> Tensor:
        """Return features as an output layer is trained on them, float32."""
        return torch.from_numpy((np.asarray(features, np.float32) - self.mean) * self.scale)

    def examples(self, split: Literal["train", "test"], numbers: Ids) -> tuple[Tensor, Tensor]:
        """Return standardized features and classes of some examples."""
        kept, labels = getattr(self, split), getattr(self, f"{split}_labels")
        return self.standardized(kept[numbers]), torch.from_numpy(labels[numbers].astype(np.int64))

    def tests(self, count: int) -> list[tuple[Tensor, Tensor]]:
        """Return held-out examples in batches, `count` in all."""
        numbers = np.arange(min(count, len(self.test)))
        return [self.examples("test", part) for part in np.split(numbers, range(CHUNK, len(numbers), CHUNK))]

    def folded(self, rows: Floats, bias: Floats) -> tuple[Floats, Floats]:
        """Return the rows and the bias that give on features as they are what the given ones give on standardized."""
        scaled: Floats = rows * self.scale
        return scaled, (bias - scaled @ self.mean).astype(np.float32)


class FeatureBatches:
    """Step → (features, classes), every training example once per epoch, in the same random order every time."""

    def __init__(self, features: Features, size: int, seed: int) -> None:
        self.features, self.size = features, size
        self.order = np.random.default_rng(seed).permutation(len(features.train))

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        places = np.arange(step * self.size, (step + 1) * self.size) % len(self.order)
        return self.features.examples("train", np.sort(self.order[places]))  # reads the file from front to back


def read_features(folder: Path) -> Features:
    """Return what the files of a folder hold, as memory maps."""
    return Features(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in NAMES))
