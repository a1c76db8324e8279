"""Cells: centres found are the same everywhere, classes are where they belong, and few cells find most of the best."""

import numpy as np
import pytest
from cases import Array, assert_same, backend, dense_logits, exported_cells, integers

from manyclass import ClassIndex, ConfigError, HashConfig, _native
from manyclass._cell_centres import Centres
from manyclass._reference import cells as _cells


def clustered(classes: int, features: int, seed: int = 0) -> tuple[Array, Array]:
    """Return rows around 30 centres and queries near some of the rows."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.normal(size=(30, features))
    rows = (centres[rng.integers(30, size=classes)] + rng.normal(size=(classes, features))).astype(np.float32)
    near = rows[rng.choice(classes, 100)]
    return rows, near + (0.5 * rng.normal(size=near.shape)).astype(np.float32)


def nearest_by_definition(index: ClassIndex, rows: Array, bias: Array) -> Array:
    """Return which centre is nearest in float64, from the centres alone."""
    centres = index.state.centres
    assert centres is not None
    points = np.concatenate([rows - index.state.core.centre(), bias[:, None]], axis=1).astype(np.float64)
    ends = np.concatenate([centres.levels * centres.scale, centres.biases[:, None]], axis=1)
    return ((points[:, None] - ends[None]) ** 2).sum(-1).argmin(1)


# Centres


@pytest.mark.parametrize(("classes", "features"), [(0, 5), (1, 5), (7, 1), (333, 40), (2_000, 17), (50, 1100)])
@pytest.mark.parametrize("biased", [False, True])
def test_centres_do_not_depend_on_backend_threads_or_instruction_set(
    classes: int, features: int, biased: bool, simd: None
) -> None:
    rng = np.random.default_rng(classes)
    rows = rng.normal(size=(classes, features)).astype(np.float32)
    bias = rng.normal(size=classes).astype(np.float32) if biased else None
    config = HashConfig.flat_sketch(32, cells=13, seed=5)
    seen = []
    for name in _native.available_simd():
        _native.use_simd(name)
        seen += [ClassIndex.build(rows, bias=bias, config=config, threads=threads) for threads in (1, 3)]
    with backend("reference"):
        seen.append(ClassIndex.build(rows, bias=bias, config=config))
    first = seen[0].state.centres
    for index in seen:
        assert first is not None
        assert index.state.centres is not None
        np.testing.assert_array_equal(index.state.centres.levels, first.levels)
        np.testing.assert_array_equal(index.state.centres.biases, first.biases)
        assert index.state.centres.scale == first.scale
        np.testing.assert_array_equal(exported_cells(index)[0], exported_cells(seen[0])[0])


def test_another_seed_finds_other_centres() -> None:
    rows, _ = clustered(500, 16)
    found = [ClassIndex.build(rows, config=HashConfig.flat_sketch(32, cells=20, seed=s)).state.centres for s in (0, 1)]
    assert found[0] is not None
    assert found[1] is not None
    assert (found[0].levels != found[1].levels).any()


def test_classes_are_in_the_cell_of_the_nearest_centre() -> None:
    rows, _ = clustered(500, 16)
    bias = 3 * np.random.default_rng(1).normal(size=500).astype(np.float32)
    index = ClassIndex.build(rows, bias=bias, config=HashConfig.flat_sketch(32, cells=20))
    assert (exported_cells(index)[0] == nearest_by_definition(index, rows, bias)).mean() > 0.98  # but for rounding


@pytest.mark.parametrize("features", [1, 15, 16, 17, 384, 1040, 1041, 4096])
def test_products_are_exact_at_their_largest(features: int, simd: None) -> None:
    """All levels at 127, the worst case of every sum, with one that decides: cell 1 is nearer by a single unit."""
    levels = np.full((3, features), 127, np.int8)
    levels[0, 0] = 126
    query = np.ones(features, np.float32)
    expected = 127 * (levels.astype(np.int64) @ np.ones(features, np.int64))
    np.testing.assert_array_equal(
        _cells.scores(query, Centres(levels, np.zeros(3, np.float32), 1.0), np.zeros(3, np.float32), np.zeros(3)),
        expected,
    )
    for name in _native.available_simd():
        _native.use_simd(name)
        index = ClassIndex.build(query[None] * 0, config=HashConfig.flat_sketch(32, cells=3))
        index.state.set_centres(Centres(levels, np.zeros(3, np.float32), 1 / 127))
        found = np.empty(5, np.uint16)
        index.state.core.nearest_cells(np.tile(query, (5, 1)), np.zeros(5, np.float32), 2, found)
        np.testing.assert_array_equal(found, [1] * 5)


# Searching


def test_a_share_of_the_cells_finds_most_and_all_of_them_find_what_a_scan_finds() -> None:
    rows, queries = clustered(3_000, 32)
    best = dense_logits(rows, None, queries).argmax(1)
    flat = ClassIndex.build(rows, config=HashConfig.flat_sketch(128)).retrieve(queries, 100)[0]
    index = ClassIndex.build(rows, config=HashConfig.flat_sketch(128, cells=40, cell_reach=1_000))
    assert index.config.cells_scanned(20) == 6
    assert (index.retrieve(queries, 20)[0] == best[:, None]).any(1).mean() > 0.9
    index.config = index.config.with_(cell_reach=100)
    np.testing.assert_array_equal(index.retrieve(queries, 100)[0], flat)


def test_a_large_bias_or_norm_is_found_from_anywhere() -> None:
    rows, queries = clustered(3_000, 32)
    bias = np.zeros(3_000, np.float32)
    bias[77] = 1e4
    config = HashConfig.flat_sketch(128, cells=60)
    index = ClassIndex.build(rows, bias=bias, config=config)
    assert (index.search(queries, 1, candidates=1).classes == 77).all()
    flat, index = (ClassIndex.build(rows.copy(), config=config.with_(cells=cells)) for cells in (0, 60))
    for each in (flat, index):
        each.refresh([78], rows=100 * rows[78:79])
    found = flat.search(queries, 1, candidates=5).classes == 78
    assert found.mean() > 0.4
    np.testing.assert_array_equal(index.search(queries, 1, candidates=5).classes == 78, found)


@pytest.mark.parametrize("candidates", [1, 10, 50, 199, 200])
def test_there_are_as_many_candidates_as_asked_for(candidates: int) -> None:
    rows, queries = clustered(200, 8)
    index = ClassIndex.build(rows, config=HashConfig.flat_sketch(32, cells=150, cell_reach=10**6))
    assert (index.retrieve(queries, candidates)[0] >= 0).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 63, 64, 65, 200])
def test_every_batch_size_gives_each_query_its_own_cells(count: int, threads: int) -> None:
    rows, queries = clustered(2_000, 24)
    queries = np.resize(queries, (count, 24))
    config = HashConfig.flat_sketch(64, cells=100)
    native = ClassIndex.build(rows, config=config)
    with backend("reference"):
        reference = ClassIndex.build(rows, config=config)
    expected = reference.retrieve(queries[:100], 30)[0]
    np.testing.assert_array_equal(native.retrieve(queries, 30, threads=threads)[0], np.resize(expected, (count, 30)))


# Updates


def test_a_class_that_moved_is_found_where_it_is_now() -> None:
    rows, queries = clustered(1_000, 16)
    index = ClassIndex.build(rows.copy(), config=HashConfig.flat_sketch(256, cells=50))
    for shift in (1, 300, 777):
        index.refresh(slice(None), rows=np.roll(rows, shift, axis=0))
        moved = exported_cells(index)[0]
        np.testing.assert_array_equal(moved, nearest_by_backend(index))
        np.testing.assert_array_equal(np.bincount(moved, minlength=50).sum(), 1_000)
        best = dense_logits(index.rows, None, queries).argmax(1)
        assert (index.search(queries, 1, candidates=50).classes[:, 0] == best).mean() > 0.95


def nearest_by_backend(index: ClassIndex) -> Array:
    cells = np.empty(index.classes, np.uint16)
    residuals = index.rows[: index.classes] - index.state.core.centre()
    index.state.core.nearest_cells(residuals, index.state.core.bias(), 1, cells)
    return cells


def test_many_small_changes_end_as_one_large_one() -> None:
    """Blocks that fill, empty and are used again: every class is in one place, with all that is stored for it."""
    rows, queries = clustered(400, 12)
    config = HashConfig.flat_sketch(64, cells=7)
    one, many = (ClassIndex.build(rows.copy(), config=config) for _ in range(2))
    rng = np.random.default_rng(3)
    for _ in range(200):
        ids = rng.choice(many.classes, rng.integers(1, 60), replace=False)
        many.refresh(ids, rows=rows[rng.choice(400, 1)] + rng.normal(size=(len(ids), 12)).astype(np.float32))
        if rng.random() < 0.1:
            many.append(rows[:3])
    final = many.rows[: many.classes].copy()
    one.append(final[400:])
    one.refresh(slice(None), rows=final)
    assert_same(integers(one, queries), integers(many, queries))


# Settings


def test_the_share_of_cells_grows_with_the_candidates() -> None:
    config = HashConfig.flat_sketch(64, cells=1000, cell_reach=1000)
    assert [config.cells_scanned(c) for c in (1, 10, 40, 250, 999, 1000, 10**6)] == [
        32,
        100,
        200,
        500,
        1000,
        1000,
        1000,
    ]
    assert HashConfig.flat_sketch(64, cells=1, cell_reach=2**31 - 1).cells_scanned(1) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cells": -1}, "cells=-1 is not a whole number from 0 to 65535; try 0"),
        ({"cells": 70_000}, "try 65535"),
        ({"cell_reach": 0}, "cell_reach=0 is not a whole number from 1"),
        ({"cells": 5, "scan_bits": 0}, "set scan_bits or cells=0"),
    ],
)
def test_impossible_cells_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HashConfig.flat_sketch(64).with_(**changes)


def test_too_many_features_for_cells_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 65536; try cells=0"):
        HashConfig.flat_sketch(32, cells=4).check_features(65_537)
