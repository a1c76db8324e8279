"""A step over shards equals the softmax it stands for: loss, inputs' gradient, moved rows; by both transports."""

import numpy as np
import pytest
from downpour_cases import all_rows, calling, exhaustive, head, shards_of, transport

from manyclass.distributed.positives import Targets
from manyclass.distributed.row_rules import ServerRule
from manyclass.distributed.steps.transport import best_classes, carried_out

BOTH = pytest.mark.parametrize("kind", ["activations", "rows"])
SHARED = pytest.mark.parametrize("shared", [True, False])


def batch(examples: int = 6, classes: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return activations, and targets of which one is absent and some repeat a class."""
    generator = np.random.default_rng(seed)
    targets = generator.integers(classes, size=(examples, 2))
    targets[0] = -1
    targets[1, 1] = targets[1, 0]
    targets[2, 1] = -1
    return generator.normal(size=(examples, 8)).astype(np.float32), targets


def full_softmax(x: np.ndarray, targets: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> tuple[float, ...]:
    """Return mean loss and gradients of x, weight and bias, in double precision."""
    wanted = np.zeros((len(x), len(weight)))
    for example, given in enumerate(targets):
        own = sorted({int(target) for target in given if target >= 0})
        wanted[example, own] = 1 / max(1, len(own))
    mass = wanted.sum(1, keepdims=True)
    logits = x.astype(np.float64) @ weight.T.astype(np.float64) + bias
    normalizers = np.log(np.exp(logits).sum(1, keepdims=True))
    present = mass.sum()
    loss = (mass * normalizers - (wanted * logits).sum(1, keepdims=True)).sum() / present
    of_logits = (mass * np.exp(logits - normalizers) - wanted) / present
    return loss, of_logits @ weight, of_logits.T @ x, of_logits.sum(0)


@BOTH
@SHARED
@pytest.mark.parametrize("count", [1, 3])
def test_a_step_over_all_classes_is_that_of_full_softmax(kind: str, shared: bool, count: int) -> None:
    shards = shards_of(exhaustive(shared), count)
    weight, bias = all_rows(shards)
    x, targets = batch()
    way = transport(kind, shards)
    carried_out(way.prepare(), calling(shards))
    outcome = carried_out(way.step(x, Targets(targets, 50)), calling(shards))
    loss, of_x, of_weight, of_bias = full_softmax(x, targets, weight, bias)
    assert outcome.loss == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(outcome.input_gradients, of_x, atol=2e-6)
    moved, moved_bias = all_rows(shards)
    np.testing.assert_allclose(moved, weight - 0.5 * of_weight, atol=2e-6)
    np.testing.assert_allclose(moved_bias, bias - 0.5 * of_bias, atol=2e-6)


@BOTH
@SHARED
def test_the_number_of_shards_changes_nothing(kind: str, shared: bool) -> None:
    found = []
    for count in (1, 4):
        shards = shards_of(exhaustive(shared, rule=ServerRule(lr=0.5, momentum=0.5, lazy=True)), count)
        way = transport(kind, shards)
        carried_out(way.prepare(), calling(shards))
        losses = [carried_out(way.step(*_with_targets(step)), calling(shards)).loss for step in range(4)]
        found.append((losses, all_rows(shards)))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def _with_targets(seed: int) -> tuple[np.ndarray, Targets]:
    x, targets = batch(seed=seed)
    return x, Targets(targets, 50)


def test_both_transports_compute_the_same_with_a_random_tail() -> None:
    found = []
    for kind in ("activations", "rows"):
        shards = shards_of(head(mined_examples=0, tail=12), 3)
        way = transport(kind, shards)
        carried_out(way.prepare(), calling(shards))
        losses = [carried_out(way.step(*_with_targets(step)), calling(shards)).loss for step in range(3)]
        found.append((losses, all_rows(shards)[0]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-5)


def test_the_tail_stands_for_all_that_is_not_computed() -> None:
    x, targets = batch()
    few = shards_of(head(mined_examples=0, tail=10), 2)
    weight, bias = all_rows(few)
    loss = full_softmax(x, targets, weight, bias)[0]
    normalizers = []
    for _ in range(300):
        way = transport("activations", few, incarnation=len(normalizers) + 1)
        losses = [carried_out(_only_scored(way.step(x, Targets(targets, 50))), calling(few))]
        normalizers.append(losses[0])
    assert np.mean(np.exp(np.array(normalizers) - loss)) == pytest.approx(1, abs=0.05)


def _only_scored(steps):  # type: ignore[no-untyped-def]
    """Yield the first calls of a step alone, and return the loss that their answers give."""
    answers = yield next(steps)
    sums = np.stack([answer.log_sums for answer in answers], 1)
    of_targets = np.sum([answer.target_logits for answer in answers], 0)
    steps.close()
    return float(np.mean((np.log(np.exp(sums).sum(1)) - of_targets)[1:]))


@pytest.mark.parametrize("exact", [True, False])
def test_the_best_of_all_shards_are_the_best(exact: bool) -> None:
    shards = shards_of(head(), 3)
    weight, bias = all_rows(shards)
    x = batch()[0]
    ids, logits = carried_out(best_classes(shards[0].placement, x, 7, exact=exact), calling(shards))
    expected = x @ weight.T + bias
    np.testing.assert_array_equal(ids, np.argsort(-expected, axis=1)[:, :7])
    np.testing.assert_allclose(logits, -np.sort(-expected, axis=1)[:, :7], atol=1e-5)
