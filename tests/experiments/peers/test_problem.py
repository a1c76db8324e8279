"""The layer's exact answers."""

import numpy as np
import pytest
from layer_cases import small_layer

from experiments.peers import exact_best
from experiments.peers.problem import Problem
from manyclass.errors import InputError


def test_exact_answers_are_those_of_the_dense_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_best, "QUERIES_AT_ONCE", 32)  # 90 queries: two whole parts and a third
    monkeypatch.setattr(exact_best, "CLASSES_AT_ONCE", 128)  # 300 classes: two whole chunks and a third
    monkeypatch.setattr(exact_best, "BLOCK", 8)
    layer = small_layer()
    logits = layer.queries @ layer.rows.T + layer.bias
    np.testing.assert_array_equal(layer.exact.classes, np.argsort(-logits, axis=1)[:, :10])
    assert layer.exact_accuracy == (logits.argmax(axis=1) == layer.labels).mean()
    assert 0.5 < layer.exact_accuracy < 1
    assert layer.exact is layer.exact


def test_read_only_arrays_and_other_floats_are_taken() -> None:
    layer = small_layer()
    frozen = layer.rows.copy()
    frozen.flags.writeable = False
    other = Problem(frozen, layer.bias.astype(np.float64), layer.queries.astype(np.float16), layer.labels)
    assert other.rows.flags.writeable
    assert {part.dtype for part in (other.rows, other.bias, other.queries)} == {np.dtype(np.float32)}
    assert small_layer().rows.base is None


def test_shapes_that_do_not_fit_are_refused() -> None:
    layer = small_layer()
    with pytest.raises(InputError, match="one bias per row"):
        Problem(layer.rows, layer.bias[:-1], layer.queries, layer.labels)
    with pytest.raises(InputError, match=r"queries has shape \(90, 31\); expected \(1 or more, 32\)"):
        Problem(layer.rows, layer.bias, layer.queries[:, :-1], layer.labels)
    with pytest.raises(InputError, match="90 queries; give one each"):
        Problem(layer.rows, layer.bias, layer.queries, layer.labels[:-1])


def test_the_accuracy_of_some_queries() -> None:
    layer = small_layer()
    right = layer.exact.classes[:, 0] == layer.labels
    assert layer.accuracy(layer.exact.classes[:, 0], right) == 1
    assert layer.accuracy(layer.exact.classes[:, 0], ~right) == 0


def test_halves_share_the_rows_and_part_the_queries() -> None:
    layer = small_layer()
    halves = layer.halves()
    assert halves.calibration.rows is layer.rows
    assert halves.judging.bias is layer.bias
    both = [halves.calibration.queries, halves.judging.queries]
    np.testing.assert_array_equal(np.concatenate(both), layer.queries)
    np.testing.assert_array_equal(halves.judging.labels, layer.labels[45:])


def test_the_first_queries_keep_their_exact_answers() -> None:
    layer = small_layer()
    assert "exact" not in vars(layer.first(10))
    known = layer.exact.classes
    assert layer.first(10).exact.classes.base is known
    assert layer.first(1000) is layer
