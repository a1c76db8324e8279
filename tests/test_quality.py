"""`check` against brute force in float64: what it calls recall, agreement, missed mass and accuracy kept."""

import numpy as np
import pytest
from cases import PIPELINES, Array, dense_logits

from manyclass import ClassIndex, HashConfig
from manyclass.quality import CHUNK, Quality

CLASSES, FEATURES, K = 500, 40, 5


def made(seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Return rows, bias, queries near some rows, and those rows' ids as labels, a few of them wrong."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    labels = rng.integers(CLASSES, size=60)
    queries = (rows[labels] / 3 + 0.5 * rng.normal(size=(60, FEATURES))).astype(np.float32)
    return rows, rng.normal(size=CLASSES).astype(np.float32), queries, labels


def brute_force(
    index: ClassIndex, bias: Array, queries: Array, labels: Array | None, candidates: int, k: int
) -> Quality:
    """Return the figures by their definitions, one query at a time."""
    logits = dense_logits(index.rows, bias, queries)
    if len(index.state.core.removed()):
        logits[:, index.state.core.removed() != 0] = -np.inf
    recall, agreement, missed, right, exactly_right = [], [], [], [], []
    for q, row in enumerate(logits):
        ids, _ = index.retrieve(queries[q], candidates)
        seen = ids[ids >= 0]
        best = np.argsort(-row, kind="stable")[:k]
        top = seen[np.argsort(-row[seen], kind="stable")][:k]
        recall.append(len(set(best) & set(top)) / k)
        agreement.append(len(top) > 0 and top[0] == best[0])
        shares = np.exp(row - row.max())
        missed.append(1 - shares[seen].sum() / shares.sum())
        if labels is not None:
            right.append(len(top) > 0 and top[0] == labels[q])
            exactly_right.append(best[0] == labels[q])
    accuracies = (None, None) if labels is None else (float(np.mean(right)), float(np.mean(exactly_right)))
    means = (float(np.mean(figure)) for figure in (recall, agreement, missed))
    return Quality(len(queries), min(candidates, index.classes), *means, *accuracies)


def assert_close(measured: Quality, expected: Quality) -> None:
    assert (measured.queries, measured.candidates) == (expected.queries, expected.candidates)
    for figure in ("recall", "agreement", "missed_mass", "label_accuracy", "exact_label_accuracy", "kept"):
        wanted = getattr(expected, figure)
        assert getattr(measured, figure) == (None if wanted is None else pytest.approx(wanted, abs=1e-5)), figure


@pytest.mark.parametrize("labelled", [True, False], ids=["labels", "no labels"])
@pytest.mark.parametrize("candidates", [10, 100])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_the_figures_are_those_of_brute_force(pipeline: str, candidates: int, labelled: bool) -> None:
    rows, bias, queries, labels = made()
    index = ClassIndex.build(rows, bias=bias, config=PIPELINES[pipeline])
    measured = index.check(queries, labels if labelled else None, k=K, candidates=candidates)
    exhaustive = pipeline == "exhaustive"
    expected = brute_force(index, bias, queries, labels if labelled else None, CLASSES if exhaustive else candidates, K)
    assert_close(measured, expected)
    if exhaustive:
        assert (measured.recall, measured.agreement, measured.kept) == (1, 1, 1)
    else:
        assert 0 < measured.recall <= 1


def test_removed_classes_do_not_count() -> None:
    rows, bias, queries, labels = made(1)
    index = ClassIndex.build(rows, bias=bias, config=PIPELINES["flat sketch"])
    index.remove(np.unique(labels)[:20])
    assert_close(index.check(queries, labels, k=K, candidates=30), brute_force(index, bias, queries, labels, 30, K))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_rows_of_any_type_are_compared_as_they_are(dtype: str) -> None:
    rows, bias, queries, labels = made(2)
    index = ClassIndex.build(rows.astype(dtype), bias=bias, config=HashConfig.exhaustive())
    measured = index.check(queries, labels, k=K)
    assert (measured.recall, measured.agreement) == (1, 1)
    assert measured.missed_mass == pytest.approx(0, abs=1e-4)


def test_more_classes_than_one_chunk_are_compared_exactly() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(2 * CHUNK + 7, 8)).astype(np.float32)
    queries = rng.normal(size=(5, 8)).astype(np.float32)
    index = ClassIndex.build(rows, config=HashConfig.flat_sketch(64))
    bias = np.zeros(len(rows), np.float32)
    assert_close(index.check(queries, k=K, candidates=200), brute_force(index, bias, queries, None, 200, K))


def test_kept_is_accuracy_divided_by_exact_accuracy() -> None:
    quality = Quality(10, 5, 0.5, 0.6, 0.1, label_accuracy=0.4, exact_label_accuracy=0.5)
    assert quality.label_accuracy_kept == quality.kept == 0.8
    assert Quality(10, 5, 0.5, 0.6, 0.1).kept == 0.6
    assert Quality(10, 5, 0.5, 0.6, 0.1, label_accuracy=0.0, exact_label_accuracy=0.0).kept == 0.6


def test_one_query_and_one_label_are_enough() -> None:
    rows, bias, queries, labels = made()
    index = ClassIndex.build(rows, bias=bias, config=HashConfig.exhaustive())
    assert index.check(queries[0], labels[0]).queries == 1


def test_a_constant_query_that_finds_nothing_misses_everything() -> None:
    rows, _, _, _ = made()
    index = ClassIndex.build(rows, config=PIPELINES["paper"])
    measured = index.check(np.ones((3, FEATURES), np.float32), k=K, candidates=10)
    assert (measured.recall, measured.agreement, measured.missed_mass) == (0, 0, 1)


def test_nothing_asked_is_nothing_missed() -> None:
    rows, _, _, _ = made()
    measured = ClassIndex.build(rows, config=PIPELINES["paper"]).check(np.empty((0, FEATURES), np.float32))
    assert (measured.recall, measured.agreement, measured.missed_mass) == (1, 1, 0)
