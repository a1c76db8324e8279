"""The 1-bit sketch: its rotation keeps lengths, its guess is unbiased, and its scores follow bias and norm."""

import math

import numpy as np
import pytest
from cases import Array, dense_logits, exported_weights

from manyclass import ClassIndex, HashConfig
from manyclass._reference import scan as spec_scan
from manyclass._reference import sketch as spec
from manyclass._reference.vector_math import hadamard
from manyclass._windows_and_signs import draw_signs


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# The rotation


@pytest.mark.parametrize("width", [1, 2, 8, 64, 1024])
def test_hadamard_is_its_own_inverse_up_to_the_width(width: int) -> None:
    x = normal(width)
    np.testing.assert_allclose(hadamard(hadamard(x)) / width, x, rtol=1e-4, atol=1e-5)


def test_hadamard_is_the_textbook_matrix() -> None:
    matrix = np.array([[1.0]])
    for _ in range(4):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    columns = np.stack([hadamard(unit) for unit in np.eye(16, dtype=np.float32)])
    np.testing.assert_array_equal(columns, matrix)


@pytest.mark.parametrize("features", [1, 5, 16, 17, 100, 256])
def test_rotation_keeps_lengths_and_angles(features: int) -> None:
    width = 1 << (features - 1).bit_length()
    signs = draw_signs(HashConfig.flat_sketch(32 * math.ceil(width / 32)), features)[:1]
    x, y = normal(2, features)
    turned, other = (spec.rotate(v, signs, width) for v in (x, y))
    assert turned @ turned == pytest.approx(x @ x, rel=1e-4)
    assert turned @ other == pytest.approx(x @ y, rel=1e-3, abs=1e-3)


def test_signs_are_fair_and_different_for_every_seed() -> None:
    signs = [draw_signs(HashConfig.flat_sketch(4096, seed=seed), 64) for seed in range(2)]
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert abs(np.mean(signs)) < 5 / math.sqrt(np.size(signs))
    assert 0.4 < (signs[0] == signs[1]).mean() < 0.6


# The guess


@pytest.mark.parametrize(("features", "bits"), [(64, 64), (64, 32), (48, 96), (128, 256)])
def test_the_guess_is_unbiased(features: int, bits: int) -> None:
    """Mean of 600 rotations against the exact product, to five standard errors."""
    row, query, centre = normal(features, seed=1), normal(features, seed=2), normal(features, seed=3) / 4
    exact = float((row - centre) @ query)
    guesses = []
    for seed in range(600):
        signs = draw_signs(HashConfig.flat_sketch(bits, seed=seed), features)
        code, factor = spec.sketch_row(row, centre, signs, bits)
        plus_minus = 2.0 * np.unpackbits(code, bitorder="little") - 1
        guesses.append(float(factor) * float(plus_minus @ spec.rotate(query, signs, bits)))
    assert abs(np.mean(guesses) - exact) < 5 * np.std(guesses, ddof=1) / math.sqrt(600)


def test_the_guess_is_exact_for_the_row_itself() -> None:
    row, signs = normal(50), draw_signs(HashConfig.flat_sketch(96), 50)
    code, factor = spec.sketch_row(row, np.zeros(50, np.float32), signs, 96)
    plus_minus = 2.0 * np.unpackbits(code, bitorder="little") - 1
    assert float(factor) * (plus_minus @ spec.rotate(row, signs, 96)) == pytest.approx(row @ row, rel=1e-4)


def test_more_bits_find_more() -> None:
    rows, queries = normal(2000, 64), normal(50, 64, seed=1)
    best = dense_logits(rows, None, queries).argmax(1)
    recalls = []
    for bits in (32, 128, 1024):
        index = ClassIndex.build(rows, config=HashConfig.flat_sketch(bits))
        recalls.append((index.retrieve(queries, 20)[0] == best[:, None]).any(1).mean())
    assert recalls == sorted(recalls)
    assert recalls[-1] == 1


def test_a_longer_sketch_behind_the_scan_finds_more_among_as_few_candidates() -> None:
    rows, queries = normal(2000, 64), normal(50, 64, seed=1)
    best = dense_logits(rows, None, queries).argmax(1)
    recalls = []
    for config in (HashConfig.flat_sketch(64), HashConfig.flat_sketch(64, 512, breadth=30)):
        found, _ = ClassIndex.build(rows, config=config).retrieve(queries, 5)
        recalls.append((found == best[:, None]).any(1).mean())
    assert recalls[1] > recalls[0]


# Bias and norm


def test_scores_never_fall_as_the_bias_rises() -> None:
    config = HashConfig.flat_sketch(96)
    signs = draw_signs(config, 40)
    code, _ = spec.sketch_row(normal(40), np.zeros(40, np.float32), signs, 96)
    biases = np.arange(-32767, 32768, 97, dtype=np.int16)
    for bias_scale in (1e-3, 1.0, 1e3):
        levels, unit = spec.query_levels(normal(40, seed=1), signs, 96)
        alpha, beta, _ = spec_scan.score_weights(levels, unit, 4.0, bias_scale)
        raw, factors = np.repeat(spec.sums(levels, code[None]), len(biases)), np.full(len(biases), 9000, np.int16)
        scores = spec_scan.narrow_scores(raw, 96, alpha, beta, factors, biases)
        assert (np.diff(scores) >= 0).all()
        assert np.abs(scores).max() < 32_768


@pytest.mark.parametrize("bits", [32, 96, 4096])
def test_no_score_leaves_sixteen_bits(bits: int) -> None:
    for levels in (np.full(bits, 7), np.full(bits, 1), np.eye(1, bits, dtype=np.int64)[0]):
        for bias_scale in (0.0, 1e-3, 1.0, 1e3, 1e30):
            alpha, beta, _ = spec_scan.score_weights(levels, 0.1, 4.0, bias_scale)
            most = spec_scan.narrow_scores(
                levels.sum()[None], bits, alpha, beta, np.array([32767], np.int16), np.array([32767], np.int16)
            )
            assert 0 < most[0] < 32_768


@pytest.mark.parametrize("tables", [False, True], ids=["flat", "behind tables"])
def test_among_equal_rows_the_largest_biases_win(tables: bool) -> None:
    config = HashConfig.flat_sketch(96)
    if tables:
        config = HashConfig.paper(codes=30, bands=10, sketch_bits=96, breadth=100)
    bias = np.random.default_rng(0).permutation(np.linspace(-3, 3, 50)).astype(np.float32)
    rows = np.tile(normal(1, 32), (50, 1))
    found, _ = ClassIndex.build(rows, bias=bias, config=config).retrieve(normal(32, seed=1) / 9 + rows[0], 10)
    np.testing.assert_array_equal(found, np.sort(np.argsort(-bias)[:10]))


def test_a_zero_query_ranks_by_bias() -> None:
    bias = np.random.default_rng(0).permutation(np.linspace(-3, 3, 50)).astype(np.float32)
    index = ClassIndex.build(normal(50, 32), bias=bias, config=HashConfig.flat_sketch(96))
    found = index.search(np.zeros(32, np.float32), 5, candidates=5)
    np.testing.assert_array_equal(found.classes, np.argsort(-bias)[:5])
    np.testing.assert_allclose(found.logits, np.sort(bias)[::-1][:5])


def test_without_bias_a_zero_query_takes_the_lowest_ids() -> None:
    index = ClassIndex.build(normal(50, 32), config=HashConfig.flat_sketch(96))
    np.testing.assert_array_equal(index.retrieve(np.zeros(32, np.float32), 4)[0], [0, 1, 2, 3])


@pytest.mark.parametrize("growth", [3.0, 1e3, 1e12, 1e17])
@pytest.mark.parametrize("tables", [False, True], ids=["flat", "behind tables"])
def test_norms_and_biases_that_outgrow_the_scale_are_still_ranked(growth: float, tables: bool) -> None:
    config = HashConfig.flat_sketch(256)
    if tables:
        config = HashConfig.paper(window=4, codes=60, bands=30, sketch_bits=256, breadth=20)
    rows, bias = normal(300, 32), normal(300, seed=1) / 8
    index = ClassIndex.build(rows, bias=bias, config=config)
    index.refresh([11], rows=np.float32(growth) * normal(1, 32, seed=2))
    assert index.search(rows[11], 1, candidates=1).classes[0] == 11
    index.refresh([11], rows=normal(1, 32, seed=2))
    index.refresh([12], bias=[growth * 32])
    query = rows[12] if tables else normal(32, seed=3)
    assert index.search(query, 1, candidates=1).classes[0] == 12


# Scales


def test_scales_cover_all_where_none_is_far_from_the_rest() -> None:
    index = ClassIndex.build(normal(3000, 32), bias=normal(3000, seed=1), config=HashConfig.flat_sketch(64))
    assert len(index.state.core.outliers()) == 0
    factors, biases = exported_weights(index)
    assert factors.max() >= 16384
    assert np.abs(biases).max() >= 16384


@pytest.mark.parametrize("count", [1, 20, 31])
def test_a_few_far_outside_are_scored_apart_and_cost_the_others_nothing(count: int) -> None:
    rows, bias = normal(3000, 32), normal(3000, seed=1)
    plain = ClassIndex.build(rows, bias=bias, config=HashConfig.flat_sketch(64))
    rows, bias = rows.copy(), bias.copy()
    rows[7 : 7 + count] *= np.float32(1e6)
    bias[107 : 107 + count] = 1e9
    index = ClassIndex.build(rows, bias=bias, config=HashConfig.flat_sketch(64))
    assert set(index.state.core.outliers()) == {*range(7, 7 + count), *range(107, 107 + count)}
    assert (np.divide(index.state.core.scan_scales(), plain.state.core.scan_scales()) <= 2).all()


def test_scales_follow_most_classes_up_and_down() -> None:
    rows = normal(1000, 32)
    index = ClassIndex.build(rows.copy(), config=HashConfig.flat_sketch(64))
    scales = [index.state.core.scan_scales()[0]]
    for share, growth in ((10, 100), (500, 100), (1000, 100), (10, 1), (1000, 1)):
        index.refresh(slice(0, share), rows=np.float32(growth) * rows[:share])
        scales.append(index.state.core.scan_scales()[0])
    ratios = [scale / scales[0] for scale in scales]
    assert ratios[1] == 1  # ten are outliers
    assert 64 <= ratios[2] <= 256
    assert 64 <= ratios[4] <= 256
    assert ratios[5] <= 4


@pytest.mark.parametrize("share", [1, 30, 500, 980])
def test_biases_far_below_the_others_are_cut_off_and_leave_the_scale_to_the_others(share: int) -> None:
    rows, bias = normal(1000, 32), normal(1000, seed=1)
    bias[:share] = -1e9
    index = ClassIndex.build(rows, bias=bias, config=HashConfig.flat_sketch(64))
    assert index.state.core.scan_scales()[1] < 1e4
    assert (exported_weights(index)[1] == spec_scan.SUNK).sum() == share
    assert len(index.state.core.outliers()) == 0


def test_a_bias_that_was_cut_off_counts_in_full_where_a_query_is_long_enough() -> None:
    """The scan takes it for less than it is, and finds such classes: what it found is scored again."""
    rows = np.tile(normal(1, 32), (1000, 1)) + normal(1000, 32, seed=1) / 100
    bias = np.where(np.arange(1000) % 2, -1e9, 0).astype(np.float32)
    index = ClassIndex.build(rows, bias=bias, config=HashConfig.flat_sketch(64))
    for scale in (1e3, 1e6, 1e8, 1e9):
        found = index.search(np.float32(scale) * rows[0], 20, candidates=100).classes
        assert (found % 2 == 0).all()


def test_wide_scores_order_as_the_numbers_do() -> None:
    exponents = np.linspace(-3, 60, 400)
    numbers = np.concatenate([-(10.0 ** exponents[::-1]), [0], 10.0**exponents])
    wide = spec_scan.wide_scores(numbers)
    assert (np.diff(wide) >= 0).all()
    small = np.abs(numbers) < 65_536
    np.testing.assert_array_equal(wide[small], np.rint(numbers[small]))
    inside = (numbers > 1) & (numbers < 1e38)
    assert (np.diff(wide[inside])[20:] > 0).all()
