"""Batches of distorted pictures; each is a function of its number, the same for every output layer that is compared."""

import functools

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from experiments.imagenet21k.distortion import distort
from experiments.imagenet21k.images import Images

Numbers = npt.NDArray[np.int64]
TEST_SEED = 1_000_000_007  # the test pictures of all runs are distorted alike
CHUNK = 500  # pictures that pass through a network at once when nothing is learnt


class Batches:
    """Step → (pictures, classes): every training picture once per epoch, in a random order, distorted anew."""

    def __init__(self, images: Images, size: int, seed: int) -> None:
        self.images, self.size, self.seed = images, size, seed
        self._train = images.train
        self._order = functools.lru_cache(2)(self._shuffled)

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        epochs, places = np.divmod(np.arange(step * self.size, (step + 1) * self.size), len(self._train))
        chosen = [self._order(int(epoch))[places[epochs == epoch]] for epoch in np.unique(epochs)]
        return pictures(self.images, np.concatenate(chosen), self.seed + step)

    def _shuffled(self, epoch: int) -> Numbers:
        return np.random.default_rng((self.seed, epoch)).permutation(self._train)


def pictures(images: Images, numbers: Numbers, seed: int) -> tuple[Tensor, Tensor]:
    """Return these pictures, distorted as the seed says, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    distorted = distort(torch.from_numpy(images.pixels[numbers]), generator)
    return distorted, torch.from_numpy(images.labels[numbers].astype(np.int64))


def held_out(images: Images, count: int) -> Numbers:
    """Return `count` of the held-out pictures, or all, in an order that mixes classes and styles."""
    return np.random.default_rng(0).permutation(images.test)[:count]


def test_batches(images: Images, count: int) -> list[tuple[Tensor, Tensor]]:
    """Return held-out pictures with their classes, always distorted alike."""
    numbers = held_out(images, count)
    starts = range(0, len(numbers), CHUNK)
    return [pictures(images, numbers[start : start + CHUNK], TEST_SEED + start) for start in starts]
