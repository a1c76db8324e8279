"""Videos as all stages see them: a frame is a function of the video's number and its own.

The first half of a video's frames is for training, the second for evaluation.
"""

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from experiments.datasets.missing import MissingDataError
from experiments.video_id.camera import Ids
from experiments.video_id.films import open_films
from experiments.video_id.photographs import HOW_TO_GET, has_mosaics, open_photographs
from experiments.video_id.scenes import Scenes
from manyclass.training.progress import Show

SHEET_VIDEOS, SHEET_FRAMES = 6, 6  # of the contact sheet: videos, frames of each half
SHEET_QUALITY = 80


class Videos(Protocol):
    """What every source of videos gives."""

    @property
    def source(self) -> str: ...
    @property
    def classes(self) -> int: ...
    @property
    def frames(self) -> int: ...
    @property
    def side(self) -> int: ...

    def pictures(self, ids: Ids, frames: Ids) -> Tensor:
        """Return frames as float32 (n, 3, side, side) from 0 to 1."""

    def name(self, number: int) -> str:
        """Return what a video is called."""


@dataclass(frozen=True)
class Every:
    """Every so many-th video of others, numbered anew."""

    videos: Videos
    step: int

    @property
    def source(self) -> str:
        return self.videos.source

    @property
    def classes(self) -> int:
        return -(-self.videos.classes // self.step)

    @property
    def frames(self) -> int:
        return self.videos.frames

    @property
    def side(self) -> int:
        return self.videos.side

    def pictures(self, ids: Ids, frames: Ids) -> Tensor:
        return self.videos.pictures(ids * self.step, frames)

    def name(self, number: int) -> str:
        return self.videos.name(number * self.step)


def fewer(videos: Videos, classes: int) -> Videos:
    """Return at most about so many of the videos, spread over all of them."""
    return videos if classes >= videos.classes else Every(videos, -(-videos.classes // classes))


def open_videos(
    data: Path | None,
    cache: Path,
    *,
    scenes: int,
    frames: int,
    side: int,
    seed: int,
    show: Show,
) -> Videos:
    """Return the videos of a folder, of mosaics or of films; without one, so many made scenes."""
    if data is None:
        return Scenes(scenes, frames, side, seed)
    if not data.is_dir():
        raise MissingDataError(f"--data {data} is no folder", f"give one of videos; or {HOW_TO_GET}")
    if has_mosaics(data):
        return open_photographs(data, cache, frames=frames, side=side, seed=seed, show=show)
    return open_films(data, cache, frames=frames, side=side, show=show)


def training_frames(videos: Videos) -> int:
    """Return how many of a video's frames are for training: the first half."""
    return videos.frames // 2


def evaluation_examples(videos: Videos, count: int, seed: int) -> tuple[Ids, Ids]:
    """Return videos and frames of the second half to evaluate on, drawn once for all."""
    random = np.random.default_rng((seed, 2))
    ids = random.integers(0, videos.classes, count)
    return ids, random.integers(training_frames(videos), videos.frames, count)


def contact_sheet(videos: Videos, seed: int) -> dict[str, Any]:
    """Return some videos as one picture: a row each, frames for training left, those for evaluation right.

    As text, so that a record holds it and the page is drawn from records alone.
    """
    from PIL import Image

    count = min(SHEET_VIDEOS, videos.classes)
    ids = np.sort(np.random.default_rng((seed, 3)).choice(videos.classes, count, replace=False))
    half = training_frames(videos)
    places = np.linspace(0, half - 1, SHEET_FRAMES).round().astype(np.int64)
    frames = np.concatenate([places, half + np.linspace(0, videos.frames - half - 1, SHEET_FRAMES).round().astype(int)])
    shown = videos.pictures(np.repeat(ids, len(frames)), np.tile(frames, count))
    tiles = (shown.permute(0, 2, 3, 1).numpy() * 255).round().astype(np.uint8)
    rows = tiles.reshape(count, len(frames), videos.side, videos.side, 3).swapaxes(1, 2)
    file = io.BytesIO()
    Image.fromarray(rows.reshape(count * videos.side, -1, 3)).save(file, "WEBP", quality=SHEET_QUALITY)
    return {
        "webp": base64.b64encode(file.getvalue()).decode(), "videos": count, "frames": SHEET_FRAMES,
        "side": videos.side, "names": [videos.name(int(number)) for number in ids],
    }  # fmt: skip


def sheet_pixels(sheet: dict[str, Any]) -> npt.NDArray[np.uint8]:
    """Return the pixels of a contact sheet, (height, width, 3)."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(sheet["webp"]))) as picture:
        return np.asarray(picture.convert("RGB"))
