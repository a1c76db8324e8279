"""Products of examples with chosen rows: native against the NumPy twin, and the same bits for any number of threads."""

from typing import Any

import numpy as np
import pytest

from manyclass import _native, _reference
from manyclass._row_rule import RowRule

SIZES = [
    (1, 1, 1, 1),
    (3, 5, 7, 11),
    (17, 70, 31, 40),
    (5, 130, 300, 1000),
    (2, 200, 64, 3),
    (0, 3, 4, 5),
    (4, 0, 8, 9),
]
RULES = {
    "plain": RowRule.sgd(lr=0.1),
    "momentum": RowRule.sgd(lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": RowRule.adam(lr=0.1, time=3.0, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1),
}


def case(sizes: tuple[int, int, int, int]) -> dict[str, Any]:
    """Return ids with gaps and repeats, weight, bias, input and gradient."""
    examples, width, features, rows = sizes
    random = np.random.default_rng(0)
    return {
        "ids": random.integers(-1, rows, (examples, width)),
        "weight": random.standard_normal((rows, features), np.float32),
        "bias": random.standard_normal(rows, np.float32),
        "input": random.standard_normal((examples, features), np.float32),
        "gradient": random.standard_normal((examples, width), np.float32),
    }


def results(make: Any, given: dict[str, Any], threads: int) -> list[np.ndarray]:
    """Return distinct rows, products, gradients of rows, their sums, gradients of inputs."""
    chosen = make(given["ids"])
    products = np.empty(given["ids"].shape, np.float32)
    chosen.products(given["weight"], given["bias"], given["input"], products, threads)
    count = len(chosen.rows)
    rows, sums = np.empty((count, given["input"].shape[1]), np.float32), np.empty(count, np.float32)
    chosen.row_gradients(given["gradient"], given["input"], rows, sums, threads)
    inputs = np.empty(given["input"].shape, np.float32)
    chosen.input_gradients(given["gradient"], given["weight"], inputs, threads)
    return [chosen.rows, products, rows, sums, inputs]


@pytest.mark.usefixtures("simd")
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", _native.available_simd())
def test_native_matches_the_reference(name: str, sizes: tuple[int, int, int, int]) -> None:
    _native.use_simd(name)
    given = case(sizes)
    expected = results(_reference.ChosenRows, given, 1)
    first = results(_native.ChosenRows, given, 1)
    np.testing.assert_array_equal(first[0], expected[0])
    for ours, theirs in zip(first[1:], expected[1:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-4)
    for threads in (2, 5):
        for ours, again in zip(first, results(_native.ChosenRows, given, threads), strict=True):
            np.testing.assert_array_equal(ours, again)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_moved_at_once_are_those_moved_by_their_gradients(
    rule: str, sizes: tuple[int, int, int, int], threads: int
) -> None:
    given = case(sizes)
    step = RULES[rule]
    chosen = _native.ChosenRows(given["ids"])
    at_once, apart = ([given["weight"].copy(), *np.ones((2, *given["weight"].shape), np.float32)] for _ in range(2))
    sums, expected_sums = np.empty(len(chosen.rows), np.float32), np.empty(len(chosen.rows), np.float32)
    chosen.update_rows(given["gradient"], given["input"], step, *at_once, sums, threads)
    rows = np.empty((len(chosen.rows), given["input"].shape[1]), np.float32)
    chosen.row_gradients(given["gradient"], given["input"], rows, expected_sums, 1)
    _native.update_rows(step, *apart, chosen.rows, rows, 1)
    for ours, theirs in zip([*at_once, sums], [*apart, expected_sums], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_ids_beyond_the_weight_are_refused() -> None:
    given = case((3, 5, 7, 11))
    chosen = _native.ChosenRows(np.full((3, 5), 11))
    sums = np.empty(1, np.float32)
    with pytest.raises(ValueError, match="id out of range"):
        chosen.products(given["weight"], None, given["input"], np.empty((3, 5), np.float32), 1)
    with pytest.raises(ValueError, match="id out of range"):
        chosen.update_rows(given["gradient"], given["input"], RULES["plain"], given["weight"], None, None, sums, 1)
