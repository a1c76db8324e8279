"""Labelled pictures in a folder of memory maps: drawn or read once, then opened in no time."""

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.frame.whole_folder import whole_folder
from manyclass.errors import CorruptFileError, InputError

SIDE = 64  # pixels; the network's input is SIDE × SIDE, one channel

Pixels = npt.NDArray[np.uint8]
Picture = tuple[Pixels, int, int]  # (SIDE, SIDE), class, style


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
    def test(self) -> npt.NDArray[np.int64]:
        """Numbers of the pictures for testing."""
        return np.flatnonzero(np.isin(self.styles, self.held_out))

    @property
    def train(self) -> npt.NDArray[np.int64]:
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


@dataclass(frozen=True)
class Collection:
    """What a source offers before anything is drawn."""

    source: str
    class_names: list[str]
    style_names: list[str]
    held_out: list[int]
    at_most: int  # pictures
    pictures: Callable[[], Iterable[Picture]]


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
