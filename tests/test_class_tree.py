"""The class tree: the same as its definition, no longer than a best code, and a search that equals sorting."""

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyclass import _native, _reference

Array = npt.NDArray[Any]

COUNTS: dict[str, list[int]] = {
    "one class": [7],
    "one class, never seen": [0],
    "two": [3, 3],
    "three": [0, 5, 5],
    "all equal": [1] * 37,
    "all zero": [0] * 33,
    "mostly zero": [0, 9, 0, 0, 4, 0, 0, 0, 1, 0, 0],
    "powers: a chain": [2**i for i in range(20)],
    "falling powers": [2**i for i in reversed(range(20))],
    "largest": [2**62, 2**61, 2**61 - 1],
    "zipf": [10_000 // (rank + 1) for rank in range(300)],
    "shuffled": np.random.default_rng(0).integers(0, 50, 257).tolist(),
}


def trees(counts: list[int]) -> tuple[_native.ClassTree, _reference.ClassTree]:
    array = np.array(counts, np.int64)
    return _native.ClassTree(array), _reference.ClassTree(array)


def links(tree: _reference.ClassTree) -> tuple[Array, Array]:
    size = tree.nodes + tree.classes
    parents, sides = np.empty(size, np.int64), np.empty(size, np.int8)
    tree.links(parents, sides)
    return parents, sides


def paths(tree: _reference.ClassTree, targets: Array, threads: int = 2) -> tuple[Array, Array]:
    shape = (len(targets), tree.depth)
    nodes, sides = np.full(shape, 99, np.int64), np.full(shape, 99, np.int8)
    tree.paths(targets, nodes, sides, threads)
    return nodes, sides


def log_probs(tree: _reference.ClassTree, weight: Array, bias: Array | None, x: Array, threads: int = 2) -> Array:
    out = np.full((len(x), tree.classes), np.nan, np.float32)
    tree.log_probs(weight, bias, x, out, threads)
    return out


def topk(
    tree: _reference.ClassTree, weight: Array, bias: Array | None, x: Array, k: int, threads: int = 2
) -> tuple[Array, Array]:
    classes, best = np.full((len(x), k), 99, np.int64), np.full((len(x), k), np.nan, np.float32)
    tree.topk(weight, bias, x, classes, best, threads)
    return classes, best


def weights(nodes: int, features: int, count: int, scale: float = 1.0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng([nodes, features, count])
    weight = rng.normal(size=(nodes, features)).astype(np.float32) * np.float32(scale)
    return weight, rng.normal(size=nodes).astype(np.float32), rng.normal(size=(count, features)).astype(np.float32)


@pytest.mark.parametrize("name", COUNTS)
def test_the_tree_and_its_paths_match_the_definition(name: str) -> None:
    native, reference = trees(COUNTS[name])
    assert (native.classes, native.nodes, native.depth) == (reference.classes, reference.nodes, reference.depth)
    targets = np.array([-1, *range(native.classes), -1, 0], np.int64)
    for left, right in (
        *zip(links(native), links(reference), strict=True),
        *zip(paths(native, targets), paths(reference, targets), strict=True),
    ):
        np.testing.assert_array_equal(left, right)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**40) | st.integers(0, 3), min_size=1, max_size=200))
def test_the_tree_is_as_short_as_any_code_can_be(counts: list[int]) -> None:
    native, reference = trees(counts)
    for left, right in zip(links(native), links(reference), strict=True):
        np.testing.assert_array_equal(left, right)
    lengths = (paths(native, np.arange(len(counts)))[0] >= 0).sum(1)
    cost, heap = 0, sorted(counts)  # the textbook form: join the two lightest; the joins add up to the cost
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        cost += joined
        heapq.heappush(heap, joined)
    assert sum(int(n) * count for n, count in zip(lengths, counts, strict=True)) == cost


@pytest.mark.parametrize("classes", [2, 3, 64, 1000, 1 << 16])
def test_equal_counts_give_a_balanced_tree(classes: int) -> None:
    for count in (0, 1, 5):
        assert _native.ClassTree(np.full(classes, count, np.int64)).depth == int(np.ceil(np.log2(classes)))


def test_parents_come_before_children_and_every_node_has_both_sides() -> None:
    tree = trees(COUNTS["shuffled"])[0]
    parents, sides = links(tree)
    assert parents[0] == -1
    assert sides[0] == 0
    assert (parents[1 : tree.nodes] < np.arange(1, tree.nodes)).all()
    pairs = {(int(parent), int(side)) for parent, side in zip(parents[1:], sides[1:], strict=True)}
    assert pairs == {(node, side) for node in range(tree.nodes) for side in (-1, 1)}


def test_a_large_tree_leads_to_every_class() -> None:
    counts = np.random.default_rng(0).zipf(1.3, 300_000).clip(max=10**9).astype(np.int64)
    tree = _native.ClassTree(counts)
    lengths = (paths(tree, np.arange(len(counts)))[0] >= 0).sum(1)
    assert sum(2.0 ** -lengths.astype(float)) == 1.0  # Kraft: complete, and nobody is left out
    assert lengths.max() == tree.depth
    assert lengths[counts == counts.max()].min() == lengths.min()


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("features", [1, 7, 16, 33])
def test_probabilities_match_the_definition_and_add_up_to_one(name: str, features: int) -> None:
    native, reference = trees(COUNTS[name])
    weight, bias, x = weights(native.nodes, features, 6)
    for bias_or_none in (bias, None):
        found = log_probs(native, weight, bias_or_none, x)
        np.testing.assert_allclose(found, log_probs(reference, weight, bias_or_none, x), rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(np.exp(found.astype(np.float64)).sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 300.0])
def test_topk_equals_sorting_all_classes(name: str, scale: float, simd: None) -> None:
    tree = trees(COUNTS[name])[0]
    weight, bias, x = weights(tree.nodes, 9, 5, scale)
    for instructions in _native.available_simd():
        _native.use_simd(instructions)
        everything = log_probs(tree, weight, bias, x)
        order = np.argsort(-everything, axis=1, kind="stable")
        for k in {1, 2, tree.classes // 2 + 1, tree.classes}:
            classes, best = topk(tree, weight, bias, x, k)
            shown = min(k, tree.classes)
            np.testing.assert_array_equal(classes[:, :shown], order[:, :shown])
            np.testing.assert_array_equal(best[:, :shown], np.take_along_axis(everything, order[:, :shown], 1))


def test_equal_classes_come_in_order_of_their_numbers_as_in_the_definition() -> None:
    # Whole logits that saturate: sigmoid is exactly 1 or exactly ½, so many classes tie, some below a certain answer.
    counts = np.random.default_rng(1).integers(0, 9, 130).astype(np.int64)
    native, reference = _native.ClassTree(counts), _reference.ClassTree(counts)
    x = np.eye(4, dtype=np.float32)
    weight = np.random.default_rng(2).choice([0, 0, 200, -200], (native.nodes, 4)).astype(np.float32)
    for k in (1, 5, 64, 130):
        classes, best = topk(native, weight, None, x, k)
        np.testing.assert_array_equal(classes, topk(reference, weight, None, x, k)[0])
        assert (np.diff(best, axis=1) <= 0).all()
        ties = np.diff(best, axis=1) == 0
        assert (np.diff(classes, axis=1)[ties] > 0).all()
    assert ties.any()


def test_more_than_all_classes_leaves_places_empty() -> None:
    for tree in trees([4, 1, 2]):
        weight, bias, x = weights(2, 5, 3)
        classes, best = topk(tree, weight, bias, x, 5)
        assert (np.sort(classes[:, :3]) == [0, 1, 2]).all()
        assert (classes[:, 3:] == -1).all()
        assert np.isneginf(best[:, 3:]).all()


def test_a_single_class_is_certain() -> None:
    for tree in trees([5]):
        x = np.ones((2, 3), np.float32)
        weight = np.empty((0, 3), np.float32)
        assert tree.depth == 0
        assert log_probs(tree, weight, None, x).tolist() == [[0], [0]]
        assert topk(tree, weight, None, x, 1)[0].tolist() == [[0], [0]]


def test_any_number_of_threads_gives_identical_results() -> None:
    tree = trees(COUNTS["zipf"])[0]
    weight, bias, x = weights(tree.nodes, 40, 131)
    targets = np.random.default_rng(0).integers(0, 300, 1000)
    seen = [
        (
            *paths(tree, targets, threads),
            log_probs(tree, weight, bias, x, threads),
            *topk(tree, weight, bias, x, 7, threads),
        )
        for threads in (1, 2, 3, 5)
    ]
    for other in seen[1:]:
        for left, right in zip(seen[0], other, strict=True):
            np.testing.assert_array_equal(left, right)


def test_what_does_not_fit_is_refused() -> None:
    for counts in ([], [1, -1], [2**62, 2**62]):
        with pytest.raises(ValueError, match=r"counts|classes"):
            _native.ClassTree(np.array(counts, np.int64))
    tree = trees([1, 2, 3])[0]
    with pytest.raises(ValueError, match="target out of range"):
        paths(tree, np.array([3]))
    weight, bias, x = weights(2, 5, 3)
    with pytest.raises(ValueError, match="weight"):
        topk(tree, weight[:1], bias[:1], x, 1)
    with pytest.raises(ValueError, match="bias"):
        log_probs(tree, weight, bias[:1], x)
    with pytest.raises(ValueError, match="weight"):
        log_probs(tree, weight, bias, x[:, :4].copy())
