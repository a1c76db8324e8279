"""The list of a step's classes: native equals the NumPy twin, number for number."""

import numpy as np
import pytest

from manyclass import _native, _reference
from manyclass._reference.step_classes import Chances


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 1000])
@pytest.mark.parametrize("classes", [1, 7, 3000, 10_000_000, 2**40])
def test_lists_match_the_reference(count: int, classes: int) -> None:
    random = np.random.default_rng([count, classes])
    ids = random.integers(-max(1, classes // 10), classes, count)
    for members in (ids[:0], np.unique(random.integers(0, classes, 30)), np.arange(min(classes, 5))):
        found, expected = _native.counted_ids(ids, members), _reference.counted_ids(ids, members)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert not np.isin(found[0], members).any()
    drawn = np.unique(random.integers(0, classes, 50))
    weights = random.standard_normal(len(drawn))
    for given in (ids, np.sort(ids), drawn[::2].repeat(2), ids[:0]):
        for log_weight in (0.0, -np.inf):
            merged = _native.merged_classes(given, log_weight, drawn, weights)
            expected_merged = _reference.merged_classes(given, log_weight, drawn, weights)
            for ours, theirs in zip(merged, expected_merged, strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_a_weight_for_each_drawn_class() -> None:
    with pytest.raises(ValueError, match="one log weight"):
        _native.merged_classes(np.arange(3), 0.0, np.arange(3), np.zeros(2))


@pytest.mark.parametrize("count", [0, 1, 63, 64, 1000])
@pytest.mark.parametrize("classes", [1, 7, 3000])
def test_samples_match_the_reference(count: int, classes: int) -> None:
    random = np.random.default_rng([count, classes])
    targets, draws = random.integers(-1, classes, count), random.integers(-1, classes, count // 2)
    counts = random.poisson(3, classes).astype(np.int32)
    for new_share, others, alike in ((1.0, 0.0, 1000.0), (0.1, 200.0, 0.3), (0.0, 1e6, 1e-9)):
        known = float(counts.sum())
        chances = Chances(known, alike, new_share, classes, others, float(len(draws) + 1))
        found, expected = (core.sampled_classes(targets, draws, counts, chances) for core in (_native, _reference))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-12, atol=1e-15)
        assert (found[1] >= 0).all()


@pytest.mark.parametrize("count", [0, 1, 5, 50])
@pytest.mark.parametrize("place", [0, 3, 49])
def test_targets_are_counted_as_by_the_reference(count: int, place: int) -> None:
    random = np.random.default_rng([count, place])
    ring = random.integers(-1, 9, 50).astype(np.int32)
    counts = np.bincount(ring[ring >= 0], minlength=9).astype(np.int32)
    targets = random.integers(0, 9, count)
    of_both = []
    for core in (_native, _reference):
        kept, counted = ring.copy(), counts.copy()
        of_both.append((core.count_targets(targets, counted, kept, place), counted, kept))
        np.testing.assert_array_equal(counted, np.bincount(kept[kept >= 0], minlength=9))  # of what is kept, always
    for ours, theirs in zip(*of_both, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_ids_without_a_count_are_refused_before_anything_changes() -> None:
    counts, ring = np.zeros(3, np.int32), np.full(4, -1, np.int32)
    chances = Chances(0, 1, 1, 3, 1, 1)
    for wrong in (np.array([0, 3]), np.array([2**40])):
        with pytest.raises(ValueError, match="have a count"):
            _native.sampled_classes(wrong, wrong[:0], counts, chances)
        with pytest.raises(ValueError, match="have a count"):
            _native.count_targets(wrong, counts, ring, 0)
    with pytest.raises(ValueError, match="have a count"):
        _native.count_targets(np.array([-1]), counts, ring, 0)
    with pytest.raises(ValueError, match="have a count"):
        _native.count_targets(np.array([0]), counts, np.full(4, 7, np.int32), 0)
    with pytest.raises(ValueError, match="than the ring holds"):
        _native.count_targets(np.zeros(5, np.int64), counts, ring, 0)
    assert not counts.any()
    assert (ring == -1).all()
