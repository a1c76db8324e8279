"""Videos of scenes that are made on the fly: any number of classes, nothing stored.

A scene is a plane with a shaded background, a coloured grating and a few soft ellipses, all drawn by the scene's
number. A frame is computed where the camera looks, pixel by pixel, so that a nearer view shows more and not larger
pixels.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from experiments.video_id.camera import Ids, Views, uniform, views

SHAPES = 6
OF_BACKGROUND, OF_SHAPE = 16, 9  # random numbers of each
CONTENT_SEED = 7919  # added to the seed: content and camera are drawn apart
SHARPNESS = 12.0


@dataclass(frozen=True)
class Scenes:
    """Made videos: `classes` of them, with `frames` frames of side × side each."""

    classes: int
    frames: int
    side: int
    seed: int = 0
    motion: float = 1.0
    source: str = "scenes"

    def pictures(self, ids: Ids, frames: Ids) -> Tensor:
        """Return frames as float32 (n, 3, side, side) from 0 to 1."""
        moments = ((frames + 0.5) / self.frames).astype(np.float32)
        seen = views(self.seed, ids, moments, self.motion)
        drawn = uniform(self.seed + CONTENT_SEED, ids, OF_BACKGROUND + SHAPES * OF_SHAPE)
        return painted(torch.from_numpy(drawn), seen, self.side)

    def name(self, number: int) -> str:
        """Return what a class is called."""
        return f"scene {number}"


def pixel_places(seen: Views, side: int) -> tuple[Tensor, Tensor]:
    """Return where in the picture the pixels of each frame lie, x and y (n, side · side)."""
    steps = (2 * torch.arange(side, dtype=torch.float32) + 1) / side - 1
    down, right = (part.reshape(1, -1) for part in torch.meshgrid(steps, steps, indexing="ij"))
    x, y, scale, turn = (torch.from_numpy(part).unsqueeze(1) for part in (seen.x, seen.y, seen.scale, seen.turn))
    cos, sin = scale * turn.cos(), scale * turn.sin()
    return x + cos * right - sin * down, y + sin * right + cos * down


def painted(drawn: Tensor, seen: Views, side: int) -> Tensor:
    """Return what the cameras see of scenes that are given by their random numbers (n, …)."""
    x, y = pixel_places(seen, side)
    colours = _background(drawn[:, :OF_BACKGROUND], x, y)
    for number in range(SHAPES):
        start = OF_BACKGROUND + number * OF_SHAPE
        _lay_shape(colours, drawn[:, start : start + OF_SHAPE], x, y)
    light = torch.from_numpy(seen.light)[:, None, None]
    return (colours * light).clamp_(0, 1).reshape(len(drawn), 3, side, side)


def _background(drawn: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return a shade from one colour to another under a grating, (n, 3, pixels)."""
    first, second, amplitude = (drawn[:, start : start + 3, None] for start in (0, 3, 6))
    shade, grating = 2 * np.pi * drawn[:, 9:10], np.pi * drawn[:, 10:11]
    across = (0.5 + 0.4 * (x * shade.cos() + y * shade.sin())).unsqueeze(1)
    frequency, phase = 2 + 8 * drawn[:, 11:12], 2 * np.pi * drawn[:, 12:13]
    wave = torch.sin(frequency * (x * grating.cos() + y * grating.sin()) + phase).unsqueeze(1)
    return 0.15 + 0.6 * torch.lerp(first, second, across) + 0.3 * (amplitude - 0.5) * wave


def _lay_shape(colours: Tensor, drawn: Tensor, x: Tensor, y: Tensor) -> None:
    """Lay one soft ellipse over what is there."""
    centre_x, centre_y = (2.4 * drawn[:, place : place + 1] - 1.2 for place in (0, 1))
    inverse_a, inverse_b = (1 / (0.1 + 0.35 * drawn[:, place : place + 1]) for place in (2, 3))
    turn = np.pi * drawn[:, 4:5]
    cos, sin = turn.cos(), turn.sin()
    right, down = x - centre_x, y - centre_y
    along, across = (cos * right + sin * down).mul_(inverse_a), (cos * down - sin * right).mul_(inverse_b)
    outside = along.square_().add_(across.square_())
    cover = torch.sigmoid(outside.neg_().add_(1).mul_(SHARPNESS)) * (0.6 + 0.4 * drawn[:, 5:6])
    colours.lerp_(drawn[:, 6:9, None].expand_as(colours), cover.unsqueeze(1).expand_as(colours))
