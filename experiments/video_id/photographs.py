"""Videos of photographs: every picture of a set is one video, seen by a camera that moves over it.

The pictures come from mosaics, 2048 × 2048 pixels of 64 × 64 tiles, mosaic-00.webp and so on, with a table
index.tsv.xz of one line for each picture that begins with its number.
"""

import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.datasets.missing import MissingDataError
from experiments.frame.whole_folder import whole_folder
from experiments.video_id.camera import Ids, views
from experiments.video_id.scenes import pixel_places
from manyclass.errors import CorruptFileError
from manyclass.training.progress import Show

TILE, ACROSS = 32, 64  # pixels of a tile, tiles in a row of a mosaic
PER_MOSAIC = ACROSS * ACROSS
HOW_TO_GET = (
    "resize the pictures of Tiny-ImageNet-200 to 32 × 32, pack them row by row into mosaics of 64 × 64 tiles called "
    "mosaic-00.webp and so on, list them in index.tsv.xz, and give the folder as --data"
)


@dataclass(frozen=True)
class Photographs:
    """Pictures with a moving camera. tiles: uint8 (classes, 32, 32, 3); names: of the pictures."""

    tiles: npt.NDArray[np.uint8]
    names: list[str]
    frames: int
    side: int
    seed: int = 0
    motion: float = 1.0
    source: str = "photographs"

    @property
    def classes(self) -> int:
        """How many videos there are."""
        return len(self.tiles)

    def pictures(self, ids: Ids, frames: Ids) -> Tensor:
        """Return frames as float32 (n, 3, side, side) from 0 to 1; beyond its edge a picture is mirrored."""
        moments = ((frames + 0.5) / self.frames).astype(np.float32)
        seen = views(self.seed, ids, moments, self.motion)
        grid = torch.stack(pixel_places(seen, self.side), dim=-1).view(len(ids), self.side, self.side, 2)
        tiles = torch.from_numpy(self.tiles[ids]).permute(0, 3, 1, 2).float().div_(255)
        sampled = F.grid_sample(tiles, grid, padding_mode="reflection", align_corners=False)
        return sampled.mul_(torch.from_numpy(seen.light)[:, None, None, None]).clamp_(0, 1)

    def name(self, number: int) -> str:
        """Return what a picture's file was called."""
        return self.names[number]


def has_mosaics(folder: Path) -> bool:
    """Return whether a folder is one of mosaics."""
    return (folder / "mosaic-00.webp").exists() or (folder / "index.tsv.xz").exists()


def read_names(folder: Path) -> list[str]:
    """Return the names of the pictures by number."""
    path = folder / "index.tsv.xz"
    if not path.exists():
        raise MissingDataError(f"{path} is not there", HOW_TO_GET)
    try:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            rows = [line.rstrip("\n").split("\t") for line in lines]
        numbers = [int(row[0]) for row in rows]
    except (OSError, lzma.LZMAError, EOFError, ValueError, IndexError) as problem:
        raise CorruptFileError(f"{path} cannot be read ({problem}); make it again: {HOW_TO_GET}") from problem
    if numbers != list(range(len(rows))):
        raise CorruptFileError(f"{path} does not number its lines from 0 on; make it again: {HOW_TO_GET}")
    return [row[-1] for row in rows]


def read_tiles(path: Path) -> npt.NDArray[np.uint8]:
    """Return the tiles of one mosaic, uint8 (4096, 32, 32, 3)."""
    from PIL import Image

    try:
        with Image.open(path) as mosaic:
            pixels = np.asarray(mosaic.convert("RGB"))
    except OSError as problem:
        raise MissingDataError(f"{path} cannot be read ({problem})", HOW_TO_GET) from problem
    if pixels.shape != (ACROSS * TILE, ACROSS * TILE, 3):
        raise CorruptFileError(f"{path} is {pixels.shape[1]} × {pixels.shape[0]} pixels, not 2048 × 2048; {HOW_TO_GET}")
    return pixels.reshape(ACROSS, TILE, ACROSS, TILE, 3).swapaxes(1, 2).reshape(PER_MOSAIC, TILE, TILE, 3)


def open_photographs(folder: Path, cache: Path, *, frames: int, side: int, seed: int, show: Show) -> Photographs:
    """Return the pictures of a folder of mosaics; they are unpacked into the cache the first time."""
    names = read_names(folder)
    kept = cache / "photographs"
    if not kept.exists():
        with whole_folder(kept) as unfinished:
            shape = (len(names), TILE, TILE, 3)
            tiles = np.lib.format.open_memmap(unfinished / "tiles.npy", "w+", np.uint8, shape)
            for start in range(0, len(names), PER_MOSAIC):
                some = read_tiles(folder / f"mosaic-{start // PER_MOSAIC:02d}.webp")
                tiles[start : start + PER_MOSAIC] = some[: len(names) - start]
                show(min(start + PER_MOSAIC, len(names)) / len(names), "photographs")
            tiles.flush()
    return Photographs(np.load(kept / "tiles.npy", mmap_mode="r"), names, frames, side, seed)
