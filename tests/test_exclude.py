"""Classes that a query must not find: left out, and others take their places."""

import numpy as np
import pytest
from cases import PIPELINES, Array, assert_same, backend, problem

from manyclass import ClassIndex

FLAT = ["exhaustive", "flat sketch", "flat sketch, re-ranked"]  # these look at every class


def left_out(queries: int, classes: int, most: int, seed: int = 0) -> Array:
    """Return ids per query, from none to `most`, padded with -1 anywhere among them."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(-1, classes, size=(queries, most))
    ids[0] = -1
    return np.where(rng.random((queries, most)) < 0.3, -1, ids)


def found(index: ClassIndex, queries: Array, exclude: Array | None, candidates: int = 20) -> dict[str, Array]:
    top = index.search(queries, 7, candidates=candidates, exclude=exclude)
    ids, _ = index.retrieve(queries, candidates, exclude=exclude)
    short = index.shortlist(queries, candidates, exclude=exclude)
    return {"classes": top.classes, "candidates": ids, "shortlist": short}


@pytest.mark.parametrize("most", [0, 1, 30])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_native_equals_reference(pipeline: str, most: int) -> None:
    rows, bias, queries = problem(333, 40)
    out = left_out(len(queries), 333, most)
    answers = []
    for name in ("native", "reference"):
        with backend(name):
            index = ClassIndex.build(rows.copy(), bias=bias, config=PIPELINES[pipeline])
        answers.append(found(index, queries, out))
        index.remove([5, 6])
        answers.append(found(index, queries, out))
    for left, right in zip(answers[:2], answers[2:], strict=True):
        assert_same(left, right)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_what_is_excluded_is_not_found_whatever_the_batch_and_the_threads(pipeline: str) -> None:
    rows, bias, _ = problem(333, 40)
    queries = rows[np.arange(130) % 333] + np.float32(0.1)
    out = np.stack([np.arange(130) % 333, (np.arange(130) + 3) % 333], 1)  # each the class it was made from
    index = ClassIndex.build(rows, bias=bias, config=PIPELINES[pipeline])
    together = found(index, queries, out)
    for ids in together.values():
        assert not (ids[:, :, None] == out[:, None, :]).any()
    np.testing.assert_array_equal(index.search(queries, 7, candidates=20, exclude=out, threads=3).classes,
                                  together["classes"])  # fmt: skip
    for q in (0, 64, 129):
        assert_same(found(index, queries[q], out[q]), {name: ids[q] for name, ids in together.items()})


@pytest.mark.parametrize("pipeline", FLAT)
def test_a_scan_answers_as_if_they_were_not_there(pipeline: str) -> None:
    rows, bias, queries = problem(333, 40)
    out = np.arange(0, 333, 2)
    index = ClassIndex.build(rows, bias=bias, config=PIPELINES[pipeline])
    excluded = found(index, queries, np.tile(out, (len(queries), 1)))
    index.remove(out)
    removed = found(index, queries, None)
    if pipeline == "exhaustive":
        excluded["candidates"] = excluded["candidates"][:, :333]
    assert_same(excluded, removed)


@pytest.mark.parametrize("pipeline", ["flat sketch", "flat sketch, re-ranked", "cells", "cells, re-ranked"])
def test_all_candidates_are_other_classes_as_long_as_there_are_any(pipeline: str) -> None:
    rows, bias, queries = problem(333, 40)
    index = ClassIndex.build(rows, bias=bias, config=PIPELINES[pipeline])
    for count in (1, 300, 320, 333):
        out = np.tile(np.arange(count), (len(queries), 1))
        ids, _ = index.retrieve(queries, 20, exclude=out)
        assert ((ids >= 0).sum(1) == min(20, 333 - count)).all()


def test_more_padding_changes_nothing() -> None:
    rows, bias, queries = problem(333, 40)
    out = left_out(len(queries), 333, 9)
    wide = np.concatenate([np.full((len(queries), 50), -1), out, out], 1)
    for config in PIPELINES.values():
        index = ClassIndex.build(rows, bias=bias, config=config)
        assert_same(found(index, queries, out), found(index, queries, wide))


def test_nothing_to_exclude_is_as_without() -> None:
    rows, bias, queries = problem(333, 40)
    for config in PIPELINES.values():
        index = ClassIndex.build(rows, bias=bias, config=config)
        plain = found(index, queries, None)
        for out in (np.full((len(queries), 3), -1), np.empty((len(queries), 0), np.int64)):
            assert_same(plain, found(index, queries, out))
