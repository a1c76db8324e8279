"""The list of a step's classes: native equals the NumPy twin, number for number."""

import numpy as np
import pytest

from manyclass import _native, _reference


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
