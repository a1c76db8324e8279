"""Pictures from files, as squares of a few pixels; a file that is none gets a sentence. Needs Pillow."""

import os
import struct
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass.errors import ConfigError, FileError, InputError, InputTypeError

ENDINGS = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"}
Pixels = npt.NDArray[np.uint8]


def square(picture: Any, side: int) -> Pixels:
    """Return the middle square of a picture of Pillow as uint8 (side, side, 3)."""
    from PIL import ImageOps

    return np.asarray(ImageOps.fit(picture.convert("RGB"), (side, side)))


def read_square(picture: Any, side: int) -> Pixels:
    """Return the middle square of a picture as uint8 (side, side, 3).

    picture: a path, a picture of Pillow, or an array uint8 (height, width, 3).
    """
    image = pillow()
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
            raise InputTypeError(
                f"picture is {picture.dtype} of shape {picture.shape}; give uint8 (height, width, 3) or a path"
            )
        return square(image.fromarray(picture), side)
    if isinstance(picture, image.Image):
        return square(picture, side)
    if not isinstance(picture, str | os.PathLike):
        raise InputTypeError(f"picture is a {type(picture).__name__}; give a path, an array or a picture of Pillow")
    broken = (OSError, ValueError, SyntaxError, EOFError, struct.error, image.DecompressionBombError)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", image.DecompressionBombWarning)
            with image.open(picture) as opened:
                return square(opened, side)
    except FileNotFoundError:
        raise FileError(f"{os.fspath(picture)} is not there; give the path of a picture") from None
    except (*broken, image.DecompressionBombWarning) as problem:
        reason = str(problem).partition("\n")[0][:120] or type(problem).__name__
        raise FileError(
            f"{os.fspath(picture)} cannot be read as a picture ({reason}); give a PNG, JPEG or WebP file"
        ) from None


def listed_pictures(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return the pictures that are meant: a file is itself, a folder the pictures in it by name."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(entry for entry in path.iterdir() if entry.suffix.lower() in ENDINGS)
        if not inside:
            raise InputError(f"{path} has no pictures; give a folder with some ({', '.join(sorted(ENDINGS))}) or files")
        found += inside
    return found


def pillow() -> ModuleType:
    """Return Pillow's module of pictures; the first time loads it."""
    try:
        import PIL.Image
    except ModuleNotFoundError:
        raise ConfigError(
            "pictures are read by Pillow, which is not installed; pip install 'manyclass[identify]'"
        ) from None
    return PIL.Image
