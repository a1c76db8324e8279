"""One optimizer step on a few rows: native equals NumPy bit for bit, and touches nothing else."""

import numpy as np
import pytest
from cases import Array

from manyclass import _native
from manyclass._reference import row_update as spec
from manyclass._row_rule import RowRule

RULES = {
    "sgd": RowRule.sgd(lr=0.1),
    "sgd, weight decay": RowRule.sgd(lr=0.1, weight_decay=0.01),
    "momentum": RowRule.sgd(lr=0.1, momentum=0.9),
    "momentum, dampening, weight decay": RowRule.sgd(lr=0.3, momentum=0.7, dampening=0.2, weight_decay=0.03),
    "nesterov": RowRule.sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd, scaled": RowRule.sgd(lr=0.1, momentum=0.9, scale=-1 / 3),
    "adagrad": RowRule.adagrad(lr=0.1, time=1, eps=1e-10),
    "adagrad, decays": RowRule.adagrad(lr=0.1, time=7, lr_decay=0.01, weight_decay=0.02, eps=1e-3, scale=0.5),
    "adam, first step": RowRule.adam(lr=0.01, time=1, betas=(0.9, 0.999), eps=1e-8),
    "adam, later": RowRule.adam(lr=0.01, time=9, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1, scale=-2),
    "adam, no memory": RowRule.adam(lr=0.01, time=2, betas=(0.0, 0.0), eps=0.0),
}


def problem(rows: int, width: int, touched: int, seed: int = 0) -> tuple[list[Array], Array, Array]:
    """Return [weight, first, second] of shape (rows, width), ids and their gradient; some numbers are awkward."""
    rng = np.random.default_rng([seed, rows, width, touched])
    weight, first, gradient = (
        (rng.normal(size=(count, width)) * 10.0 ** rng.integers(-6, 3, size=(count, width))).astype(np.float32)
        for count in (rows, rows, touched)
    )
    second = first * first
    first = np.abs(first)  # Adagrad takes its root
    ids = np.sort(rng.permutation(rows)[:touched]).astype(np.int64)
    gradient[::3] = 0
    gradient[1::7, 0] = 1e-42  # a denormal
    return [weight, first, second], ids, gradient


def run(rule: RowRule, arrays: list[Array], ids: Array, gradient: Array, threads: int | None) -> list[Array]:
    """Return weight and states after one step: native with that many threads, or the reference for None."""
    weight, first, second = (array.copy() for array in arrays)
    if threads is None:
        spec.update_rows(rule, weight, first, second, ids, gradient)
    else:
        _native.update_rows(rule, weight, first, second, ids, gradient, threads)
    return [weight, first, second]


def assert_same_bits(left: list[Array], right: list[Array]) -> None:
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


@pytest.mark.parametrize("width", [1, 7, 8, 31, 128, 300])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_native_equals_reference(rule: RowRule, width: int, simd: None) -> None:
    for rows, touched in ((5, 0), (1, 1), (40, 1), (40, 40), (700, 401)):
        arrays, ids, gradient = problem(rows, width, touched)
        expected = run(rule, arrays, ids, gradient, None)
        for name in _native.available_simd():
            assert _native.use_simd(name)
            for threads in (1, 2, 5):
                assert_same_bits(run(rule, arrays, ids, gradient, threads), expected)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_other_rows_and_unused_states_keep_their_bits(rule: RowRule) -> None:
    arrays, ids, gradient = problem(50, 9, 17)
    after = run(rule, arrays, ids, gradient, 2)
    others = np.setdiff1d(np.arange(50), ids)
    assert_same_bits([array[others] for array in after], [array[others] for array in arrays])
    assert (after[0][ids] != arrays[0][ids]).any()
    assert (after[1] != arrays[1]).any() == rule.uses_first
    assert (after[2] != arrays[2]).any() == rule.uses_second


def test_many_slices_equal_one_thread() -> None:
    arrays, ids, gradient = problem(20_000, 16, 15_000)  # several tasks of 32,768 elements
    rule = RULES["momentum"]
    expected = run(rule, arrays, ids, gradient, None)
    for threads in (1, 2, 3):
        assert_same_bits(run(rule, arrays, ids, gradient, threads), expected)


def test_states_that_a_rule_does_not_use_may_be_absent() -> None:
    for update in (_native.update_rows, spec.update_rows):
        weight = np.ones((3, 2), np.float32)
        update(RULES["sgd"], weight, None, None, np.array([1]), np.ones((1, 2), np.float32), 1)
        np.testing.assert_array_equal(weight[:, 0], np.float32([1, np.float32(1) - np.float32(0.1), 1]))


def test_infinite_and_nan_weights_without_weight_decay_do_as_ieee_says() -> None:
    weight = np.float32([[np.inf, np.nan, -np.inf, 1]])
    for update in (_native.update_rows, spec.update_rows):
        copy = weight.copy()
        update(RULES["sgd"], copy, None, None, np.array([0]), np.ones((1, 4), np.float32), 1)
        np.testing.assert_array_equal(copy[0, :3], weight[0, :3])


@pytest.mark.parametrize(
    ("ids", "words"),
    [([-1, 2], "out of range"), ([0, 5], "out of range"), ([2, 1], "ascending"), ([1, 1], "ascending")],
)
def test_bad_ids_are_refused_before_anything_is_written(ids: list[int], words: str) -> None:
    for update in (_native.update_rows, spec.update_rows):
        arrays, _, gradient = problem(5, 3, 2)
        copies = [array.copy() for array in arrays]
        with pytest.raises(ValueError, match=words):
            update(RULES["momentum"], *copies, np.array(ids), gradient, 2)
        assert_same_bits(copies, arrays)


def test_wrong_shapes_and_missing_states_are_refused() -> None:
    arrays, ids, gradient = problem(5, 3, 2)
    weight, first, second = arrays
    rule = RULES["momentum"]
    for update in (_native.update_rows, spec.update_rows):
        with pytest.raises(ValueError, match="gradient must be"):
            update(rule, weight, first, second, ids, gradient[:1], 1)
        with pytest.raises(ValueError, match="gradient must be"):
            update(rule, weight, first, second, ids, np.ones((2, 4), np.float32), 1)
        with pytest.raises(ValueError, match="needs a state"):
            update(rule, weight, None, None, ids, gradient, 1)
        with pytest.raises(ValueError, match="needs a state"):
            update(RULES["adam, later"], weight, first, second[:4], ids, gradient, 1)
        with pytest.raises(ValueError, match="kind"):
            update(rule._replace(kind=3), weight, first, second, ids, gradient, 1)


def test_a_step_is_what_the_formulas_say() -> None:
    """Against float64, on the numbers a textbook would use."""
    weight, first, second = np.float32([[2.0]]), np.float32([[0.5]]), np.float32([[0.25]])
    gradient, ids = np.float32([[3.0]]), np.array([0])
    expected = {
        "momentum": (2 - 0.1 * (0.9 * 0.5 + 3), 0.9 * 0.5 + 3),
        "momentum, dampening, weight decay": (2 - 0.3 * (0.35 + 0.8 * 3.06), 0.35 + 0.8 * 3.06),
        "nesterov": (2 - 0.1 * (3.02 + 0.9 * (0.45 + 3.02)), 0.45 + 3.02),
        "adagrad": (2 - 0.1 * 3 / (9.5**0.5), 9.5),
        "adam, first step": (2 - 0.01 / 0.1 * 0.75 / ((0.25 * 0.999 + 0.009) ** 0.5 / 0.001**0.5), 0.75),
    }
    for name, (new_weight, new_first) in expected.items():
        after = run(RULES[name], [weight, first, second], ids, gradient, 1)
        np.testing.assert_allclose([after[0][0, 0], after[1][0, 0]], [new_weight, new_first], rtol=1e-6)
