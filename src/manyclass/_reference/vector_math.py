"""Sums and the Hadamard transform in the order in which the core adds, so that both give the same bits."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

TINIEST = np.float32(1e-30)  # a vector below that counts as zero: its scale could overflow


def lane_sum(terms: Floats) -> np.float32:
    """Return the sum in the core's order: sixteen running sums, folded in halves."""
    padded = np.zeros(-(-max(len(terms), 1) // 16) * 16, np.float32)
    padded[: len(terms)] = terms
    lanes = np.zeros(16, np.float32)
    for part in padded.reshape(-1, 16):
        lanes += part
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return np.float32(lanes[0])


def hadamard(vector: Floats) -> Floats:
    """Return the unnormalised Walsh-Hadamard transform; the length is a power of two."""
    half = len(vector) // 2
    while half:
        pairs = vector.reshape(-1, 2, half)
        vector = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).reshape(-1)
        half //= 2
    return vector
