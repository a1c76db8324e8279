"""Labelled pictures: kept in a folder of memory maps, distorted at random, and handed out in batches.

Drawn or read once (see sources.py), then opened in no time. A batch is a function of its number, the same for every
output layer that is compared.
"""

import functools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.frame.whole_folder import whole_folder
from experiments.imagenet21k.sources import SIDE, Collection, Pixels
from manyclass.errors import CorruptFileError, InputError

TURN, STRETCH, SHEAR, SHIFT = 0.12, 0.15, 0.12, 0.08  # of a distortion: radians; shares of the size, both ways
NOISE, CONTRAST = 0.12, 0.4
TEST_SEED = 1_000_000_007  # the test pictures of all runs are distorted alike
CHUNK = 500  # pictures that pass through a network at once when nothing is learnt

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Images:
    """Pictures with their classes, told apart by style: whole styles are held out for testing.

    pixels uint8 (pictures, SIDE, SIDE), 0 is background; labels int32 and styles int16 (pictures,).
    """

    source: str
    pixels: Pixels
    labels: npt.NDArray[np.int32]
    styles: npt.NDArray[np.int16]
    class_names: list[str]
    style_names: list[str]
    held_out: list[int]  # styles that are only for testing

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @property
    def test(self) -> Numbers:
        """Numbers of the pictures for testing."""
        return np.flatnonzero(np.isin(self.styles, self.held_out))

    @property
    def train(self) -> Numbers:
        """Numbers of the pictures for training."""
        return np.flatnonzero(~np.isin(self.styles, self.held_out))

    def every(self, step: int) -> "Images":
        """Return the pictures of every `step`-th class alone, numbered anew."""
        kept = np.flatnonzero(self.labels % step == 0)
        fewer = {name: getattr(self, name)[kept] for name in ("pixels", "styles")}
        labels = (self.labels[kept] // step).astype(np.int32)
        return replace(self, labels=labels, class_names=self.class_names[::step], **fewer)

    def facts(self) -> dict[str, Any]:
        """Return what a record says of the data."""
        names = {split: [self.style_names[style] for style in np.unique(self.styles[numbers])]
                 for split, numbers in (("train", self.train), ("test", self.test))}  # fmt: skip
        return {
            "source": self.source,
            "classes": self.classes,
            "side": SIDE,
            "train_images": len(self.train),
            "test_images": len(self.test),
            "train_styles": names["train"] if len(names["train"]) <= 100 else [],
            "test_styles": names["test"] if len(names["test"]) <= 100 else [],
        }


def open_images(folder: Path, collect: Callable[[], Collection], show: Callable[[float, str], None]) -> Images:
    """Return the images of a folder; if it is not there yet, collect them into it first.

    show(share done, text). The folder appears whole or not at all.
    """
    if not folder.exists():
        _write(folder, collect(), show)
    try:
        card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("pixels", "labels", "styles")}
        return Images(**card, **arrays)
    except (OSError, ValueError, TypeError, EOFError) as problem:
        raise CorruptFileError(f"{folder} cannot be read ({problem}); remove the folder, it is made anew") from problem


def _write(folder: Path, collection: Collection, show: Callable[[float, str], None]) -> None:
    """Fill a folder that a killed process does not leave half full."""
    with whole_folder(folder) as unfinished:
        labels, styles = [], []
        with (unfinished / "pixels.raw").open("wb") as raw:
            for pixels, label, style in collection.pictures():
                raw.write(pixels.tobytes())
                labels.append(label)
                styles.append(style)
                if len(labels) % 512 == 0:
                    show(len(labels) / max(1, collection.at_most), collection.style_names[style])
        if not labels:
            raise InputError(f"{collection.source}: no picture was found; look at the folder or the fonts")
        _as_npy(unfinished, len(labels))
        np.save(unfinished / "labels.npy", np.array(labels, np.int32))
        np.save(unfinished / "styles.npy", np.array(styles, np.int16))
        card = {name: getattr(collection, name) for name in ("source", "class_names", "style_names", "held_out")}
        (unfinished / "card.json").write_text(json.dumps(card), encoding="utf-8")


def _as_npy(folder: Path, count: int) -> None:
    """Put NumPy's header before the raw pixels, whose number was not known while they were written."""
    with (folder / "pixels.npy").open("wb") as file, (folder / "pixels.raw").open("rb") as raw:
        header = {"descr": "|u1", "fortran_order": False, "shape": (count, SIDE, SIDE)}
        np.lib.format.write_array_header_1_0(file, header)
        shutil.copyfileobj(raw, file, 1 << 24)
    (folder / "pixels.raw").unlink()


# Distortion


def distort(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Return float32 (n, 1, side, side) from uint8 pictures (n, side, side): distorted, then normalized."""
    count = len(pixels)

    def between(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(count, *shape, generator=generator)

    pictures = F.grid_sample(
        pixels.unsqueeze(1).float() / 255, _grids(between, pixels.shape[-1]), padding_mode="border", align_corners=False
    )
    sharp = between(0.3, 1.0, 1, 1, 1)
    pictures = sharp * pictures + (1 - sharp) * F.avg_pool2d(pictures, 3, 1, 1)
    light = between(1 - CONTRAST, 1 + CONTRAST, 1, 1, 1)
    noise = between(0, NOISE, 1, 1, 1) * torch.randn(pictures.shape, generator=generator)
    return normalized(light * pictures + noise)


def normalized(pictures: Tensor) -> Tensor:
    """Return pictures with mean 0 and variance 1 each: how bright one is says nothing of its class."""
    variance, mean = torch.var_mean(pictures, dim=(1, 2, 3), keepdim=True, correction=0)
    return (pictures - mean) * (variance + 1e-4).rsqrt()


def _grids(between, side: int) -> Tensor:  # type: ignore[no-untyped-def]
    turn, shear = between(-TURN, TURN), between(-SHEAR, SHEAR)
    width, height = between(1 - STRETCH, 1 + STRETCH), between(1 - STRETCH, 1 + STRETCH)
    cos, sin = turn.cos(), turn.sin()
    rows = [cos * width, (shear - sin) * height, between(-SHIFT, SHIFT), sin * width, cos * height,
            between(-SHIFT, SHIFT)]  # fmt: skip
    return F.affine_grid(torch.stack(rows, 1).view(-1, 2, 3), [len(turn), 1, side, side], align_corners=False)


# Batches


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


def held_out_batches(images: Images, count: int) -> list[tuple[Tensor, Tensor]]:
    """Return held-out pictures with their classes, always distorted alike."""
    numbers = held_out(images, count)
    starts = range(0, len(numbers), CHUNK)
    return [pictures(images, numbers[start : start + CHUNK], TEST_SEED + start) for start in starts]
