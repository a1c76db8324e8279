"""Videos of the user's own: a folder of video files, or of folders with frames; each is one class.

Files are decoded by PyAV, the extra `[video]`. Frames at even distances over the first five minutes are kept in the
cache; what cannot be decoded is refused with its name before anything is kept.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.datasets.missing import MissingDataError
from experiments.frame.whole_folder import whole_folder
from experiments.video_id.camera import Ids
from manyclass.errors import CorruptFileError, InputError
from manyclass.identification.pictures import Pixels, read_square, square
from manyclass.training.progress import Show

FILMS = {".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".mpg", ".mpeg"}
PICTURES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm"}
SECONDS = 300.0  # the paper: the first five minutes of each video


@dataclass(frozen=True)
class Films:
    """Decoded videos. pixels: uint8 (classes, frames, side, side, 3), in the order of time."""

    pixels: Pixels
    names: list[str]
    source: str = "films"

    @property
    def classes(self) -> int:
        """How many videos there are."""
        return len(self.pixels)

    @property
    def frames(self) -> int:
        """Frames of each."""
        return int(self.pixels.shape[1])

    @property
    def side(self) -> int:
        """Pixels of a frame each way."""
        return int(self.pixels.shape[2])

    def pictures(self, ids: Ids, frames: Ids) -> Tensor:
        """Return frames as float32 (n, 3, side, side) from 0 to 1."""
        return torch.from_numpy(self.pixels[ids, frames]).permute(0, 3, 1, 2).float().div_(255)

    def name(self, number: int) -> str:
        """Return the name of the file or folder."""
        return self.names[number]


def found_films(folder: Path) -> list[Path]:
    """Return what a folder has as videos, by name: files that are films, and folders with pictures in them."""
    if not folder.is_dir():
        raise MissingDataError(f"--data {folder} is no folder", "give one with video files or with folders of frames")
    found = sorted(
        path for path in folder.iterdir() if path.suffix.lower() in FILMS or (path.is_dir() and _pictures_in(path))
    )
    if len(found) < 2:
        raise InputError(
            f"{folder} has {len(found)} videos; give a folder with two or more: {', '.join(sorted(FILMS))}, or folders "
            "with frames"
        )
    return found


def open_films(folder: Path, cache: Path, *, frames: int, side: int, show: Show) -> Films:
    """Return the videos of a folder; they are decoded into the cache the first time."""
    paths = found_films(folder)
    kept = cache / "films"
    if not kept.exists():
        with whole_folder(kept) as unfinished:
            shape = (len(paths), frames, side, side, 3)
            pixels = np.lib.format.open_memmap(unfinished / "pixels.npy", "w+", np.uint8, shape)
            for number, path in enumerate(paths):
                pixels[number] = frames_of(path, frames, side)
                show((number + 1) / len(paths), path.name)
            pixels.flush()
            (unfinished / "names.json").write_text(json.dumps([path.name for path in paths]), encoding="utf-8")
    names = json.loads((kept / "names.json").read_text(encoding="utf-8"))
    if names != [path.name for path in paths]:
        raise InputError(f"{folder} has other videos than when they were decoded; choose another --out")
    return Films(np.load(kept / "pixels.npy", mmap_mode="r"), names)


def frames_of(path: Path, count: int, side: int) -> Pixels:
    """Return so many frames of a video at even distances in time, uint8 (count, side, side, 3)."""
    if path.is_dir():
        pictures = _pictures_in(path)
        if len(pictures) < 2:
            raise InputError(f"{path} has a single frame; a video has two or more: take the folder out")
        chosen = [pictures[place] for place in even_places(len(pictures), count)]
        return np.stack([read_square(picture, side) for picture in chosen])
    decoded = list(_decoded(path, side))
    if len(decoded) < 2:
        raise CorruptFileError(f"{path} has {len(decoded)} frames that can be decoded; take it out of the folder")
    return np.stack([decoded[place] for place in even_places(len(decoded), count)])


def even_places(there: int, wanted: int) -> list[int]:
    """Return which of the frames that are there are taken: spread evenly, the two halves of a video apart.

    The first half of what is wanted comes from the first half of what is there; where there are few, some come twice.
    """
    half, wanted_half = max(1, there // 2), max(1, wanted // 2)
    first = [place * half // wanted_half for place in range(wanted_half)]
    rest = there - half
    second = [half + place * rest // (wanted - wanted_half) for place in range(wanted - wanted_half)]
    return first + [min(place, there - 1) for place in second]


def _pictures_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in PICTURES)


def _decoded(path: Path, side: int) -> Iterator[Pixels]:
    """Yield the frames of a file, each as a small square."""
    try:
        import av
    except ModuleNotFoundError:
        raise MissingDataError(f"{path.name} needs PyAV to be decoded", "pip install '.[video]'") from None
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise CorruptFileError(f"{path} has no pictures; take it out of the folder")
            for frame in container.decode(video=0):
                if frame.time is not None and frame.time > SECONDS:
                    return
                yield square(frame.to_image(), side)
    except av.error.FFmpegError as problem:
        raise CorruptFileError(f"{path} cannot be decoded ({problem}); take it out of the folder") from problem
