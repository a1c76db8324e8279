"""Where the camera of a video looks at every moment: a smooth path, a function of seed, video and moment alone.

A path leads from one side of the picture to the other while it comes nearer or goes away, turns, and the light changes.
So the second half of a video shows other parts at other scales than its first. Small waves lie on top of it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

SCALE = 0.62  # half the width that is seen in the middle of the path; the picture reaches from -1 to 1
PAN, ZOOM, TURN, LIGHT = 0.3, 0.3, 0.3, 0.25  # how far from the middle to either end: widths, log, radians, share
WAVE = 0.2  # of each, on top
DRAWN = 18  # random numbers of a path


@dataclass(frozen=True)
class Views:
    """What is seen in each of n frames: centre, half width, angle and brightness, float32 (n,) each."""

    x: Floats
    y: Floats
    scale: Floats
    turn: Floats
    light: Floats


def uniform(seed: int, ids: Ids, count: int) -> Floats:
    """Return `count` numbers from 0 to 1 for each id, (n, count): the same for an id wherever and whenever it is asked.

    By splitmix64 over seed, id and place, so that a million classes need no stored state.
    """
    with np.errstate(over="ignore"):
        start = _mixed(np.asarray(ids, np.uint64) + _mixed(np.uint64(seed + 1) * np.uint64(0x9E3779B97F4A7C15)))
        places = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = _mixed(start[:, None] + places)
    return (bits >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)


def _mixed(bits: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    bits = np.asarray(bits, np.uint64)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return mixed


def views(seed: int, ids: Ids, moments: Floats, motion: float = 1.0) -> Views:
    """Return what is seen of each video at its moment, from 0 (first frame) to 1 (last).

    motion: factor of every movement; 0 is a camera that stands still.
    """
    drawn = uniform(seed, ids, DRAWN)
    way = (2 * moments - 1).astype(np.float32)  # -1 … 1, below 0 in the first half

    def moved(place: int, size: float) -> Floats:
        """Go from one end to the other, which one first is drawn, with a wave on top."""
        sign = np.where(drawn[:, place] < 0.5, -1, 1).astype(np.float32)
        length = 0.7 + 0.3 * drawn[:, place + 1]
        wave = np.sin(2 * np.pi * ((1 + drawn[:, place + 1]) * moments + drawn[:, place + 2]))
        whole: Floats = (motion * size * (sign * length * way + WAVE * wave)).astype(np.float32)
        return whole

    angle = 2 * np.pi * drawn[:, 0]
    along, across = moved(3, PAN), motion * PAN * WAVE * np.sin(2 * np.pi * (1.5 * moments + drawn[:, 1]))
    cos, sin = np.cos(angle), np.sin(angle)
    return Views(
        x=(along * cos - across * sin).astype(np.float32),
        y=(along * sin + across * cos).astype(np.float32),
        scale=(SCALE * np.exp(moved(6, ZOOM))).astype(np.float32),
        turn=moved(9, TURN),
        light=(1 + moved(12, LIGHT)).clip(0.2, 2).astype(np.float32),
    )
