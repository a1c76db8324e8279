"""Winner-take-all codes and the bucket number they spell in each band (paper, section 3.2)."""

import numpy as np
import numpy.typing as npt

from manyclass._reference.vector_math import TINIEST, Floats, Ints

ABSENT = 0xFFFFFFFF  # bucket number of a class that is in no table
KEY_LEVELS = np.float32(2047)


def ordered_keys(vector: Floats, exact: bool) -> Ints:
    """Return whole numbers that order as the vector's elements do, to 28 bits (exact) or 12 (fast)."""
    if exact:
        bits = (vector + np.float32(0)).view(np.int32)  # + 0 makes -0 equal to +0
        ordered: Ints = ((bits ^ ((bits >> 31) & 0x7FFFFFFF)) >> 4).astype(np.int64)
        return ordered
    largest = np.abs(vector).max()
    if largest < TINIEST:
        return np.zeros(len(vector), np.int64)
    rounded: Ints = np.rint(vector * (KEY_LEVELS / largest)).astype(np.int64)
    return rounded


def window_elements(permutations: npt.NDArray[np.uint32], offsets: npt.NDArray[np.uint32], bands: int) -> Ints:
    """Return which elements each code compares: (bands, codes per band, window). See `Windows`."""
    band = np.arange(bands)
    positions = (offsets[band // 16].astype(np.int64) + (band % 16)[:, None, None]) % permutations.shape[1]
    copy = (band // 16 % len(permutations))[:, None, None]
    elements: Ints = permutations[copy, positions].astype(np.int64)
    return elements


def winners(keys: Ints, elements: Ints) -> tuple[Ints, Ints, Ints, npt.NDArray[np.bool_]]:
    """Return, per code, the winner's and runner-up's positions and the margin; per band, whether it is silent."""
    values = keys[elements]
    best = values.argmax(-1)  # the first maximum wins, as in C++
    top = np.take_along_axis(values, best[..., None], -1)[..., 0]
    others = values.copy()
    np.put_along_axis(others, best[..., None], np.iinfo(np.int64).min, -1)
    second = others.argmax(-1)
    next_top = np.take_along_axis(values, second[..., None], -1)[..., 0]
    margin = np.minimum(top - next_top, 65_535)
    return best, second, margin, ((top == 0) & (next_top == 0)).any(-1)


def bucket_numbers(codes: Ints, code_bits: int) -> Ints:
    """Return codes (bands, codes per band) spelled as one number per band, the first code lowest."""
    shifts = np.arange(codes.shape[-1]) * code_bits
    numbers: Ints = (codes << shifts).sum(-1)
    return numbers


def row_buckets(row: Floats, elements: Ints, code_bits: int, exact: bool) -> Ints:
    """Return a row's bucket numbers, (bands,); ABSENT everywhere for a constant row."""
    keys = ordered_keys(row, exact)
    if keys.min() == keys.max():
        return np.full(len(elements), ABSENT)
    return bucket_numbers(winners(keys, elements)[0], code_bits)
