"""Rows kept as bfloat16: native equals NumPy bit for bit, and rounding by chance is right on average."""

import numpy as np
import pytest
from cases import Array
from test_shared_step import case as shared_case
from test_shared_step import outcome

from manyclass import _native, _reference
from manyclass._reference import row_rounding as spec
from manyclass._reference.row_update import update_rows
from manyclass._row_rule import RowRule
from manyclass._row_types import BF16, as_floats, as_rows

NOISE = 2**64 - 12345
RULES = {
    "sgd": RowRule.sgd(lr=0.1, weight_decay=0.01),
    "momentum": RowRule.sgd(lr=0.1, momentum=0.9, nesterov=True),
    "adagrad": RowRule.adagrad(lr=0.1, time=3, eps=1e-10),
    "adam": RowRule.adam(lr=0.01, time=9, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1),
}
HOSTILE = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.17e-38, 3.3895314e38, 3.4e38, -3.4028235e38]


def bits_of(values: Array) -> Array:
    """Return float32 as the bits of bfloat16, cut off."""
    return (np.asarray(values, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def nearest(values: Array) -> Array:
    return as_rows(values, BF16)["bf16"]


def problem(rows: int, width: int, touched: int) -> tuple[list[Array], Array, Array]:
    """Return bits of weight and states, any that there are, ids, and their gradient."""
    random = np.random.default_rng([rows, width, touched])
    arrays = [random.integers(0, 2**16, (rows, width)).astype(np.uint16) for _ in range(3)]
    gradient = random.standard_normal((touched, width)).astype(np.float32)
    gradient[::2, 0] = random.choice(np.float32(HOSTILE), len(gradient[::2]))
    return arrays, np.sort(random.permutation(rows)[:touched]), gradient


@pytest.mark.parametrize("width", [1, 7, 33, 511, 512, 513, 1100])
@pytest.mark.parametrize("rule", RULES)
def test_native_equals_reference(rule: str, width: int, simd: None) -> None:
    step = RULES[rule]._replace(noise=NOISE)
    for rows, touched in ((3, 0), (1, 1), (70, 40)):
        arrays, ids, gradient = problem(rows, width, touched)
        expected = [array.copy() for array in arrays]
        update_rows(step, *expected, ids, gradient)
        for name in _native.available_simd():
            assert _native.use_simd(name)
            for threads in (1, 3):
                found = [array.copy() for array in arrays]
                _native.update_rows(step, *found, ids, gradient, threads)
                for ours, theirs in zip(found, expected, strict=True):
                    same = ours == theirs  # which NaN comes out is up to the processor
                    assert (same | (np.isnan(wide(ours)) & np.isnan(wide(theirs)))).all()


def wide(bits: Array) -> Array:
    return as_floats(bits.view(BF16))


@pytest.mark.parametrize("narrow", [(True, False, False), (False, True, True), (True, False, True)])
def test_every_array_may_have_a_type_of_its_own(narrow: tuple[bool, ...]) -> None:
    random = np.random.default_rng(0)
    arrays = [random.random((9, 37)).astype(np.float32) for _ in range(3)]
    arrays = [nearest(array) if short else array for array, short in zip(arrays, narrow, strict=True)]
    ids, gradient = np.array([0, 4, 8]), random.standard_normal((3, 37)).astype(np.float32)
    left, right = ([array.copy() for array in arrays] for _ in range(2))
    _native.update_rows(RULES["adam"], *left, ids, gradient, 2)
    update_rows(RULES["adam"], *right, ids, gradient)
    for ours, theirs in zip(left, right, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def steps(weight: Array, gradient: float, count: int, seed: int = 0) -> Array:
    """Return bfloat16 weights after `count` steps down a constant gradient, as float32."""
    bits = bits_of(weight)[None]
    for step in range(count):
        rule = RowRule.sgd(lr=1.0)._replace(noise=(seed << 32) + step)
        _native.update_rows(rule, bits, None, None, np.array([0]), np.full(bits.shape, gradient, np.float32), 1)
    return wide(bits)[0]


def test_small_steps_count_on_average() -> None:
    """Steps of a tenth of what the format tells apart: by chance they add up, to nearest none would be seen."""
    weight, gradient, count = np.full(20_000, 1.0, np.float32), -(2.0**-7) / 10, 40
    moved = steps(weight, gradient, count).mean() - 1
    error = 2.0**-7 * np.sqrt(0.1 * 0.9 * count / len(weight))  # of a mean of so many dice
    assert abs(moved + gradient * count) < 4 * error
    assert (nearest(weight - np.float32(gradient)) == bits_of(weight)).all()  # to nearest: stuck for ever


@pytest.mark.parametrize("value", [1.003, -2.71828, 1e-41, -3e-39, 7.1e30, 0.1])
def test_rounding_is_right_on_average(value: float) -> None:
    """Mean of 65,536 dice against the value: cutting off, or rounding to nearest, would be far outside."""
    x = np.full((256, 256), value, np.float32)
    noise = spec.rounding_noise(7, np.arange(256), 0, 256)
    found = wide(spec.rounded(x, noise)).astype(np.float64)
    low, high = np.unique(found)
    spread = (high - low) / 2
    assert low < np.float32(value) < high
    assert abs(found.mean() - np.float64(np.float32(value))) < 4 * spread / 256
    assert abs(wide(nearest(x)).astype(np.float64).mean() - np.float32(value)) > 4 * spread / 256


def test_dice_are_even_and_independent_of_row_array_and_column() -> None:
    noise = np.stack([spec.rounding_noise(NOISE, np.arange(400), array, 64) for array in range(3)])
    assert abs(noise.mean() / 65535 - 0.5) < 4 * np.sqrt(1 / 12 / noise.size)
    for bit in range(16):
        assert abs(((noise >> bit) & 1).mean() - 0.5) < 5 * 0.5 / np.sqrt(noise.size)
    centred = noise - noise.mean()
    for axis in range(3):
        neighbours = (centred * np.roll(centred, 1, axis)).mean() / centred.var()
        assert abs(neighbours) < 5 / np.sqrt(noise.size)
    other = spec.rounding_noise(NOISE + 1, np.arange(400), 0, 64)
    assert abs(np.corrcoef(noise[0].ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(other.size)


def test_numbers_that_fit_stay_and_none_becomes_infinite() -> None:
    exact = np.float32([0.0, -0.0, 1.0, -1.5, 2.0**-133, np.inf, -np.inf])
    beyond = np.float32([3.3895314e38, 3.4028235e38, -3.4028235e38])
    for row in range(50):
        noise = spec.rounding_noise(1, np.array([row]), 0, 7)
        np.testing.assert_array_equal(spec.rounded(exact[None], noise)[0], bits_of(exact))
        assert np.isfinite(wide(spec.rounded(beyond[None], noise[:, :3]))).all()
    awkward = np.array([[0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF80FFFF]], np.uint32).view(np.float32)
    assert np.isnan(wide(spec.rounded(awkward, np.full((1, 4), 65535, np.uint32)))).all()


def test_the_noise_of_a_step_decides() -> None:
    weight = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    first, again, other = steps(weight, 1e-3, 3), steps(weight, 1e-3, 3), steps(weight, 1e-3, 3, seed=1)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 5, 7, 11), (17, 70, 31, 40), (5, 130, 300, 1000)], ids=str)
def test_products_read_the_rows_as_they_are(sizes: tuple[int, int, int, int], simd: None) -> None:
    """bfloat16 rows give the bits that the same numbers in float32 give."""
    examples, width, features, rows = sizes
    random = np.random.default_rng(0)
    ids = random.integers(-1, rows, (examples, width))
    bits = nearest(random.standard_normal((rows, features)).astype(np.float32))
    input = random.standard_normal((examples, features)).astype(np.float32)
    gradient = random.standard_normal((examples, width)).astype(np.float32)
    for name in _native.available_simd():
        assert _native.use_simd(name)
        chosen = _native.ChosenRows(ids)
        found = []
        for weight in (wide(bits), bits):
            products, back = np.empty(ids.shape, np.float32), np.empty(input.shape, np.float32)
            chosen.products(weight, None, input, products, 2)
            chosen.input_gradients(gradient, weight, back, 2)
            found.append((products, back))
        for left, right in zip(*found, strict=True):
            np.testing.assert_array_equal(left, right)
        expected = np.empty(ids.shape, np.float32)
        _reference.ChosenRows(ids).products(bits, None, input, expected, 1)
        np.testing.assert_allclose(found[1][0], expected, rtol=1e-4, atol=2e-4)


def test_rows_moved_at_once_are_those_moved_by_their_gradients() -> None:
    random = np.random.default_rng(0)
    bits = nearest(random.standard_normal((40, 31)).astype(np.float32))
    ids, input = random.integers(-1, 40, (17, 9)), random.standard_normal((17, 31)).astype(np.float32)
    gradient = random.standard_normal(ids.shape).astype(np.float32)
    chosen, step = _native.ChosenRows(ids), RULES["sgd"]._replace(noise=NOISE)
    rows, sums = np.empty((len(chosen.rows), 31), np.float32), np.empty(len(chosen.rows), np.float32)
    chosen.row_gradients(gradient, input, rows, sums, 1)
    apart, at_once = bits.copy(), bits.copy()
    update_rows(step, apart, None, None, chosen.rows, rows)
    chosen.update_rows(gradient, input, step, at_once, None, None, sums, 3)
    np.testing.assert_array_equal(at_once, apart)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (17, 73, 31, 3), (33, 150, 64, 1)], ids=str)
def test_a_shared_step_reads_and_moves_rows_of_bfloat16(sizes: tuple[int, int, int, int], simd: None) -> None:
    """It gives the bits that the same numbers in float32 give; the rows move by their gradients, rounded."""
    given = shared_case(sizes)
    given["weight"] = nearest(given["weight"])
    step = RULES["sgd"]._replace(noise=NOISE)
    for name in _native.available_simd():
        assert _native.use_simd(name)
        expected = outcome(_native.SharedStep, given | {"weight": wide(given["weight"])}, 1)
        for part, found in outcome(_native.SharedStep, given, 2).items():
            np.testing.assert_array_equal(found, expected[part], err_msg=part)
        one = _native.SharedStep(given["ids"], given["positives"])
        apart, at_once = given["weight"].copy(), given["weight"].copy()
        lines = [np.empty(count, np.float32) for count in (sizes[0], sizes[1], sizes[0])]
        one.losses(
            at_once, given["bias"], given["input"], 0.7, given["log_weights"], None, given["shares"], False, True,
            *lines, 1,
        )  # fmt: skip
        one.update_rows(given["gradient"], given["input"], step, at_once, None, None, lines[1], 3)
        update_rows(step, apart, None, None, given["ids"], expected["rows"])
        np.testing.assert_array_equal(at_once, apart)


def test_other_types_are_refused() -> None:
    for update in (_native.update_rows, update_rows):
        with pytest.raises(ValueError, match="bfloat16 as uint16"):
            update(RULES["sgd"], np.ones((2, 2)), None, None, np.array([0]), np.ones((1, 2), np.float32), 1)
