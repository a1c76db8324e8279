"""A folder of images by class: with ImageNet-21K on disk, the same command runs the real thing.

Expected: DIR/train/CLASS/* and DIR/test/CLASS/*, or DIR/CLASS/*, of which every second picture is held out: the paper
halves its data too.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from experiments.imagenet21k.images import SIDE, Collection, Picture, Pixels
from manyclass.errors import FileError

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
SPLITS = ("train", "test")


def collect(folder: Path) -> Collection:
    """Return the pictures below a folder; their classes are the names of the folders they lie in."""
    if not folder.is_dir():
        raise FileError(f"--data {folder} is not a folder; give one with a folder of images for every class")
    split = all((folder / name).is_dir() for name in SPLITS)
    roots = [folder / name for name in SPLITS] if split else [folder]
    names = sorted({path.name for root in roots for path in root.iterdir() if path.is_dir()})
    files = [(path, label, part) for part, root in enumerate(roots) for label, name in enumerate(names)
             for path in sorted((root / name).glob("*")) if path.suffix.lower() in SUFFIXES]  # fmt: skip
    if not files:
        raise FileError(f"--data {folder} holds no images; expected {folder}/CLASS/picture.jpg, or train/ and test/")
    if not split:
        files = [(path, label, number % 2) for number, (path, label, _) in enumerate(files)]

    def pictures() -> Iterator[Picture]:
        for path, label, part in files:
            yield _read(path), label, part

    return Collection("folder", names, list(SPLITS), held_out=[1], at_most=len(files), pictures=pictures)


def _read(path: Path) -> Pixels:
    """Return one picture in grey: its shorter side scaled to SIDE, the middle cut out."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            return np.asarray(ImageOps.fit(picture.convert("L"), (SIDE, SIDE)), np.uint8)
    except (OSError, UnidentifiedImageError) as problem:
        raise FileError(f"{path} cannot be read as an image ({problem}); repair or remove it") from problem
