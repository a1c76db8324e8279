"""Random stroke characters, for a machine without the fonts: every class is a few strokes, every style a pen."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import numpy.typing as npt

from experiments.imagenet21k.images import SIDE, Collection, Picture

STROKES = 6
STYLES, HELD_OUT = 12, 2
GRID = 5  # strokes start and end near the points of a grid, as those of Han characters do


def collect(classes: int, seed: int) -> Collection:
    """Return characters made on the spot; the same seed draws the same ones."""
    return Collection(
        source="strokes",
        class_names=[f"character {number}" for number in range(classes)],
        style_names=[f"pen {number}" for number in range(STYLES)],
        held_out=list(range(STYLES - HELD_OUT, STYLES)),
        at_most=classes * STYLES,
        pictures=partial(_pictures, classes, seed),
    )


def _pictures(classes: int, seed: int) -> Iterator[Picture]:
    from PIL import Image, ImageDraw

    random = np.random.default_rng(seed)
    corners = random.integers(0, GRID, (classes, STROKES, 2, 2)) / (GRID - 1) - 0.5  # x, y of both ends
    for style in range(STYLES):
        pen = np.random.default_rng((seed, style))
        width = int(pen.integers(2, 6))
        lean = np.eye(2) + pen.normal(0, 0.08, (2, 2))
        bend = pen.normal(0, 0.05, (STROKES, 2, 2))  # how this hand draws the first, second, … stroke
        for label in range(classes):
            ends = (corners[label] + bend) @ lean * 0.75 + pen.normal(0, 0.015, (STROKES, 2, 2))
            picture = Image.new("L", (SIDE, SIDE))
            draw = ImageDraw.Draw(picture)
            for start, end in _pixels(ends):
                draw.line([tuple(start), tuple(end)], fill=255, width=width)
            yield np.asarray(picture, np.uint8), label, style


def _pixels(ends: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return (ends + 0.5) * (SIDE - 1)
