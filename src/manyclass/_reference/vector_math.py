"""Sums and the Hadamard transform in the order in which the core adds, so that both give the same bits."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TINIEST = np.float32(1e-34)  # a vector below that counts as zero: what scales it to levels could overflow
LARGEST = float(np.finfo(np.float32).max)


def lane_sum(terms: Doubles) -> float:
    """Return the sum in the core's order: sixteen running sums, folded in halves."""
    padded = np.zeros(-(-max(len(terms), 1) // 16) * 16)
    padded[: len(terms)] = terms
    lanes = np.zeros(16)
    for part in padded.reshape(-1, 16):
        lanes += part
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return float(lanes[0])


def sum_squares(vector: Floats) -> float:
    """Return the squared length in double: squares of floats neither vanish nor overflow there."""
    return lane_sum(vector.astype(np.float64) ** 2)


def norm(vector: Floats) -> np.float32:
    """Return the length, infinite where a float32 cannot hold it."""
    length = np.sqrt(sum_squares(vector))
    return np.float32(np.inf) if length > LARGEST else np.float32(length)


def nearest_floats(values: Doubles) -> Floats:
    """Return doubles as float32, those beyond its range as the last ones in it."""
    clipped: Floats = np.clip(values, -LARGEST, LARGEST).astype(np.float32)
    return clipped


def nearest_float(value: float) -> np.float32:
    return np.float32(min(max(value, -LARGEST), LARGEST))


def hadamard(vector: Floats) -> Floats:
    """Return the unnormalised Walsh-Hadamard transform; the length is a power of two."""
    half = len(vector) // 2
    while half:
        pairs = vector.reshape(-1, 2, half)
        vector = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).reshape(-1)
        half //= 2
    return vector
