"""The random choices behind an index, all derived from one seed by a generator that is part of the format.

NumPy's own generators may change between releases; files and other machines must see the same windows, so the
stream is SplitMix64 over a counter, and a permutation is the stable sort order of such numbers.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manyclass.config import HashConfig

LANES = 16  # neighbouring bands that read neighbouring elements


def random_words(seed: int, stream: int, count: int) -> npt.NDArray[np.uint64]:
    """Return `count` 64-bit words of a stream: SplitMix64 of (seed, stream) and a counter."""
    start = splitmix(np.array([seed], np.uint64) ^ splitmix(np.array([stream], np.uint64)))
    return splitmix(start + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))


def splitmix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return well-mixed words, one for each: SplitMix64's last step."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def permutation(seed: int, stream: int, size: int) -> npt.NDArray[np.uint32]:
    return np.argsort(random_words(seed, stream, size), kind="stable").astype(np.uint32)


@dataclass(frozen=True)
class Windows:
    """Which elements each code compares.

    Code `plane` of band 16*group + lane compares, for i < window, element
    `permutations[group % copies, (offsets[group, plane, i] + lane) % features]`. Offsets of one code are distinct and
    the permutation is uniform, so each code sees a uniformly random ordered choice of elements, exactly as with a
    permutation of its own; sharing them only correlates codes with one another.
    """

    permutations: npt.NDArray[np.uint32]  # (copies, features)
    offsets: npt.NDArray[np.uint32]  # (groups, codes per band, window)


def draw_windows(config: HashConfig, features: int) -> Windows:
    """Return the windows of a config. Codes of one band read disjoint elements wherever features suffice for it."""
    groups = -(-config.bands // LANES)
    # A permuted copy costs `features` scattered reads: worth it only while that is small beside the comparisons.
    copies = max(1, min(8, groups, config.codes * config.window // (8 * features)))
    permutations = np.stack([permutation(config.seed, 1_000_000 + copy, features) for copy in range(copies)])
    planes, window = config.codes_per_band, config.window
    per_deal = min(planes, features // window)  # codes that one dealing-out of all elements can serve
    offsets = np.empty((groups, planes, window), np.uint32)
    for group in range(groups):
        for plane in range(0, planes, per_deal):
            dealt = permutation(config.seed, 2_000_000 + group * planes + plane, features)
            part = offsets[group, plane : plane + per_deal]
            part[...] = dealt[: part.size].reshape(part.shape)
    return Windows(permutations, offsets)


def draw_signs(config: HashConfig, features: int) -> npt.NDArray[np.float32]:
    """Return the random signs of the sketch's rotation, (chunks, 2, width) of +1 and -1; width is a power of two."""
    width = 1 << (features - 1).bit_length()
    chunks = -(-max(config.scan_bits, config.sketch_bits) // width)
    words = random_words(config.seed, 3_000_000, chunks * 2 * width)
    return np.where(words >> np.uint64(63), np.float32(-1), np.float32(1)).reshape(chunks, 2, width)
