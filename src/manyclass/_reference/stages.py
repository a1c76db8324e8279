"""The specification: every stage of the native core as a few lines of NumPy, slow and readable.

Integer results (codes, votes, sketches, scores, candidate ids) are the same bits as the core's. The only floating
point on the way to them is spelled out in float32, in the order the core uses.
"""

import itertools

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

ABSENT = 0xFFFFFFFF  # bucket number of a class that is in no table
TINIEST = np.float32(1e-30)
KEY_LEVELS = np.float32(2047)
QUERY_LEVELS = 7
FLIPS = 6  # codes of a band that may give way to their runner-up
COSTS = 2048  # probes are ordered by cost in steps of 8 key units


# Winner-take-all codes (paper, section 3.2)


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
    """Return which elements each code compares: (bands, codes per band, window). See hasher.Windows."""
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


# Tables, votes and probes


def count_votes(query_buckets: Ints, silent: npt.NDArray[np.bool_], table: Ints) -> Ints:
    """Return in how many bands, silent ones left out, each class of table (classes, bands) shares the bucket."""
    votes: Ints = ((table == query_buckets) & ~silent).sum(-1)
    return votes


def probe_order(
    best: Ints, second: Ints, margin: Ints, silent: npt.NDArray[np.bool_], code_bits: int, limit: int
) -> list[tuple[int, int]]:
    """Return (band, bucket) pairs to read: those that change the winners least first, at most `limit`."""
    bands, planes = best.shape
    flips = min(planes, FLIPS)
    shifts = np.arange(planes) * code_bits
    change = (best ^ second) << shifts
    found = []
    for band, subset in itertools.product(range(bands), range(2**flips)):
        if silent[band]:
            continue
        order = np.argsort(margin[band], kind="stable")[:flips]
        chosen = order[[subset >> bit & 1 == 1 for bit in range(flips)]]
        bucket = int(bucket_numbers(best[band], code_bits)) ^ int(change[band, chosen].sum())
        found.append((min(int(margin[band, chosen].sum()) >> 3, COSTS - 1), band, bucket))
    found.sort(key=lambda probe: probe[0])  # stable: band, then subset
    return [(band, bucket) for _, band, bucket in found[:limit]]


def read_probes(probes: list[tuple[int, int]], table: Ints, budget: int) -> Ints:
    """Return the ids in the listed buckets, repeated as often as found; a bucket beyond the budget is passed over."""
    hits: list[Ints] = [np.empty(0, np.int64)]
    for band, bucket in probes:
        ids = np.flatnonzero(table[:, band] == bucket)
        if len(ids) <= budget:
            budget -= len(ids)
            hits.append(ids)
    return np.concatenate(hits)


def best_by_score(ids: Ints, scores: npt.NDArray[np.generic], keep: int) -> Ints:
    """Return the ids with the `keep` largest scores, best first; ties go to the lowest id."""
    order = np.lexsort((ids, -scores.astype(np.float64)))
    return ids[order[:keep]]


# Sketch (RaBitQ's estimator)


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


def rotate(vector: Floats, signs: Floats, bits: int) -> Floats:
    """Return the first `bits` coordinates of random rotations of the vector: signs, Hadamard, twice per chunk."""
    width = signs.shape[2]
    padded = np.zeros(width, np.float32)
    padded[: len(vector)] = vector
    chunks = [hadamard(hadamard(padded * first) * then) * np.float32(1 / width) for first, then in signs]
    return np.concatenate(chunks)[:bits]


def sketch_row(row: Floats, centre: Floats, signs: Floats, bits: int) -> tuple[npt.NDArray[np.uint8], np.float32]:
    """Return a row's packed sign bits and the factor that makes the guess exact for the row itself."""
    residual = row - centre
    rotated = rotate(residual, signs, bits)
    code = np.packbits(rotated >= 0, bitorder="little")
    magnitude = lane_sum(np.abs(rotated))
    factor = lane_sum(residual * residual) / magnitude if magnitude > 0 else np.float32(0)
    return code, factor if np.isfinite(factor) else np.float32(0)


def grown_scale(scale: float, magnitude: float) -> float:
    """Return the scale, or the next power of two above the magnitude if that is larger."""
    return scale if magnitude <= scale else float(np.ldexp(1.0, int(np.frexp(magnitude)[1])))


def to_q15(fraction: npt.ArrayLike) -> npt.NDArray[np.int16]:
    return np.clip(np.rint(np.asarray(fraction, np.float64) * 32768), -32767, 32767).astype(np.int16)


def sketch_gain(bits: int) -> int:
    """Return the left shift that brings the largest raw score just under 16 bits."""
    gain = 0
    while QUERY_LEVELS * bits << (gain + 1) <= 32767:
        gain += 1
    return gain


def sketch_query(
    query: Floats, signs: Floats, bits: int, factor_scale: float, bias_scale: float
) -> tuple[Ints, int, int]:
    """Return the query's integer coordinates in [-7, 7] and the Q15 weights of sketch score and bias."""
    rotated = rotate(query, signs, bits)
    largest = np.abs(rotated).max()
    levels = np.zeros(bits, np.int64)
    if largest >= TINIEST:
        levels = np.rint(rotated * (np.float32(QUERY_LEVELS) / largest)).astype(np.int64)
    unit = factor_scale * (float(largest) / QUERY_LEVELS)
    beta = bias_scale * 2.0 ** sketch_gain(bits) / unit / 32768 if unit > 0 else 1e300
    if bias_scale <= 0:
        return levels, 32767, 0
    if beta <= 0.5:
        return levels, 32767, int(to_q15(beta))
    return levels, int(to_q15(0.5 / beta)), 16384


def q15_product(a: Ints, b: Ints) -> Ints:
    return (a * b + 0x4000) >> 15


def sketch_scores(
    levels: Ints,
    alpha: int,
    beta: int,
    codes: npt.NDArray[np.uint8],
    factors: npt.NDArray[np.int16],
    biases: npt.NDArray[np.int16],
) -> Ints:
    """Return one 16-bit score per class: signs times levels, weighted by the class's factor, plus its bias."""
    bits = len(levels)
    signs = 2 * np.unpackbits(codes, axis=1, bitorder="little").astype(np.int64) - 1
    raw = (signs @ levels) << sketch_gain(bits)
    weighted = q15_product(raw, np.asarray(alpha, np.int64))
    scores = q15_product(weighted, factors.astype(np.int64)) + q15_product(
        biases.astype(np.int64), np.asarray(beta, np.int64)
    )
    clipped: Ints = np.clip(scores, -32768, 32767)
    return clipped


# Re-score and exact logits


def rescored(query: Floats, norms: Floats, bias: Floats, votes: Ints, weights: Floats) -> Floats:
    """Return |x| |w| f(votes) + bias for each class."""
    length = np.sqrt(lane_sum(query * query))
    picked: Floats = length * (norms * weights[np.minimum(votes, len(weights) - 1)]) + bias
    return picked


def exact_logits(query: Floats, rows: npt.NDArray[np.floating], bias: Floats) -> Floats:
    """Return rows @ query + bias, summed in float64 and rounded once."""
    return (rows.astype(np.float64) @ query.astype(np.float64) + bias).astype(np.float32)


def log_probabilities(logits: Floats, logistic: bool) -> Floats:
    """Return log probabilities of the candidates: softmax over them (paper, equation 1), or each its sigmoid."""
    wide = logits.astype(np.float64)
    shifted = -np.logaddexp(0, -wide) if logistic else wide - np.logaddexp.reduce(wide) if len(wide) else wide
    return shifted.astype(np.float32)
