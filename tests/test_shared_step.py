"""A step over shared classes: native against the NumPy twin, and the same bits for any number of threads."""

from typing import Any

import numpy as np
import pytest

from manyclass import _native, _reference
from manyclass._row_rule import RowRule

SIZES = [  # examples, classes of the step, features, positives of an example at most
    (1, 1, 1, 1),
    (3, 5, 7, 1),
    (16, 72, 16, 2),
    (17, 73, 31, 3),
    (33, 150, 64, 1),
    (100, 290, 33, 4),
    (2, 700, 130, 1),
    (5, 26, 300, 26),
]
RULES = {
    "plain": RowRule.sgd(lr=0.1),
    "momentum": RowRule.sgd(lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": RowRule.adam(lr=0.1, time=3.0, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1),
}
KINDS = ["softmax", "softmax, spread", "logistic", "logistic, spread"]
Case = dict[str, Any]


def case(sizes: tuple[int, int, int, int], spread: bool = False, size: float = 1.0) -> Case:
    """Return a step whose classes count once, several times, or only as somebody's positive."""
    examples, classes, features, width = sizes
    random = np.random.default_rng(list(sizes))
    ids = np.sort(random.permutation(3 * classes)[:classes])
    positives = np.stack([random.permutation(ids)[:width] for _ in range(examples)])
    positives[:, 1:][random.random((examples, width - 1)) < 0.3] = -1
    log_weights = random.choice([0.0, 2.5, -np.inf], classes, p=[0.4, 0.5, 0.1]).astype(np.float32)
    return {
        "ids": ids,
        "positives": positives,
        "weight": random.standard_normal((3 * classes, features), np.float32) * size,
        "bias": random.standard_normal(3 * classes, np.float32),
        "input": random.standard_normal((examples, features), np.float32),
        "log_weights": log_weights,
        "spread": random.random(classes, np.float32) / classes if spread else None,
        "shares": random.random((examples, width), np.float32),
        "gradient": random.standard_normal(examples, np.float32),
    }


def outcome(make: Any, given: Case, threads: int, logistic: bool = False) -> dict[str, np.ndarray]:
    """Return everything that comes out of a step, by name."""
    examples, classes, features = len(given["input"]), len(given["ids"]), given["input"].shape[1]
    step = make(given["ids"], given["positives"])
    out = {name: np.empty(examples, np.float32) for name in ("losses", "tail_variance")}
    out |= {name: np.empty(classes, np.float32) for name in ("pull", "sums")}
    out |= {"inputs": np.empty((examples, features), np.float32), "rows": np.empty((classes, features), np.float32)}
    step.losses(
        given["weight"], given["bias"], given["input"], 0.7, given["log_weights"], given["spread"], given["shares"],
        logistic, True, out["losses"], out["pull"], out["tail_variance"], threads,
    )  # fmt: skip
    step.input_gradients(given["gradient"], out["inputs"], threads)
    step.row_gradients(given["gradient"], given["input"], out["rows"], out["sums"], threads)
    return out


@pytest.mark.usefixtures("simd")
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", _native.available_simd())
def test_native_matches_the_reference(name: str, kind: str, sizes: tuple[int, int, int, int]) -> None:
    _native.use_simd(name)
    given, logistic = case(sizes, spread="spread" in kind), "logistic" in kind
    expected = outcome(_reference.SharedStep, given, 1, logistic)
    for part, found in outcome(_native.SharedStep, given, 1, logistic).items():
        np.testing.assert_allclose(found, expected[part], rtol=1e-4, atol=2e-4, err_msg=part)


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_step_whose_classes_are_all_somebodys_positive_and_nothing_else(threads: int, logistic: bool) -> None:
    given = case((100, 290, 33, 4))
    given["log_weights"][:] = -np.inf
    expected = outcome(_reference.SharedStep, given, 1, logistic)
    for part, found in outcome(_native.SharedStep, given, threads, logistic).items():
        np.testing.assert_allclose(found, expected[part], rtol=1e-4, atol=2e-4, err_msg=part)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_threads_gives_the_same_bits(kind: str, sizes: tuple[int, int, int, int]) -> None:
    given, logistic = case(sizes, spread="spread" in kind), "logistic" in kind
    alone = outcome(_native.SharedStep, given, 1, logistic)
    for threads in (2, 3, 7):
        for part, found in outcome(_native.SharedStep, given, threads, logistic).items():
            np.testing.assert_array_equal(found, alone[part], err_msg=part)


@pytest.mark.usefixtures("simd")
def test_instruction_sets_with_fused_multiply_add_agree() -> None:
    given = case((33, 150, 64, 1))
    found = []
    for name in _native.available_simd():
        if name != "scalar":
            _native.use_simd(name)
            found.append(outcome(_native.SharedStep, given, 2))
    for other in found[1:]:
        for part, values in other.items():
            np.testing.assert_array_equal(values, found[0][part], err_msg=part)


@pytest.mark.parametrize("logistic", [False, True])
def test_logits_far_apart_stay_finite(logistic: bool) -> None:
    given = case((17, 150, 31, 2), size=100)
    expected = outcome(_reference.SharedStep, given, 1, logistic)
    for part, found in outcome(_native.SharedStep, given, 2, logistic).items():
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, expected[part], rtol=1e-3, atol=1e-2, err_msg=part)


def test_a_logit_beyond_float32_shows_in_the_loss() -> None:
    given = case((3, 100, 7, 1))
    given["weight"][given["ids"][50]] = 1e30
    given["input"][1], given["log_weights"][50] = 1e10, 0
    losses = outcome(_native.SharedStep, given, 1)["losses"]
    assert np.isfinite(losses[[0, 2]]).all()
    assert not np.isfinite(losses[1]) or losses[1] > 1e38


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_moved_at_once_are_those_moved_by_their_gradients(
    rule: str, sizes: tuple[int, int, int, int], threads: int
) -> None:
    given, step = case(sizes), _native.SharedStep
    out = outcome(step, given, 1)
    at_once, apart = ([given["weight"].copy(), *np.ones((2, *given["weight"].shape), np.float32)] for _ in range(2))
    one = step(given["ids"], given["positives"])
    sums, ignored = np.empty(len(given["ids"]), np.float32), [np.empty(n, np.float32) for n in (sizes[0], sizes[1])]
    one.losses(
        given["weight"], given["bias"], given["input"], 0.7, given["log_weights"], None, given["shares"],
        False, True, ignored[0], ignored[1], ignored[0].copy(), threads,
    )  # fmt: skip
    one.update_rows(given["gradient"], given["input"], RULES[rule], *at_once, sums, threads)
    _native.update_rows(RULES[rule], *apart, given["ids"], out["rows"], 1)
    for ours, theirs in zip([*at_once, sums], [*apart, out["sums"]], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("make", [_native.SharedStep, _reference.SharedStep])
def test_wrong_ids_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="ascending"):
        make(np.array([1, 1]), np.array([[1]]))
    with pytest.raises(ValueError, match="not among the ids"):
        make(np.array([1, 3]), np.array([[2]]))
    with pytest.raises(ValueError, match="not among the ids"):
        make(np.empty(0, np.int64), np.array([[2]]))


def test_gradients_that_were_not_announced_are_refused() -> None:
    step = _native.SharedStep(np.array([1, 3]), np.array([[3]]))
    with pytest.raises(ValueError, match="kept nothing"):
        step.input_gradients(np.ones(1, np.float32), np.empty((1, 4), np.float32), 1)
    numbers = np.empty(1, np.float32)
    with pytest.raises(ValueError, match="id out of range"):
        step.losses(
            np.ones((3, 4), np.float32), None, np.ones((1, 4), np.float32), 1.0, np.zeros(2, np.float32), None,
            np.ones((1, 1), np.float32), False, True, numbers, np.empty(2, np.float32), numbers, 1,
        )  # fmt: skip
