"""Where classes are: every class at one place, the same whatever is asked, and popular ones spread."""

import numpy as np
import pytest

from manyclass import ConfigError
from manyclass._class_shares import candidates_each
from manyclass.distributed.placement import Placement


@pytest.mark.parametrize("classes", [1, 2, 7, 64, 1000, 4097])
@pytest.mark.parametrize("shards", [1, 3, 8])
def test_every_class_has_one_place_and_comes_back(classes: int, shards: int) -> None:
    placement = Placement(classes, min(shards, classes), seed=5)
    assert sorted(placement.positions(np.arange(classes))) == list(range(classes))
    for shard, (places, rows) in enumerate(placement.split(np.arange(classes))):
        assert sorted(rows) == list(range(placement.size(shard)))
        np.testing.assert_array_equal(placement.ids(shard, rows), places)


def test_neighbours_are_spread_evenly() -> None:
    shards, _ = Placement(1_000_000, 8, seed=1).locate(np.arange(4000))  # the most frequent, where ids go by frequency
    assert np.bincount(shards, minlength=8).min() > 400


def test_another_number_of_shards_cuts_the_same_order() -> None:
    few, many = Placement(1000, 3, seed=2), Placement(1000, 8, seed=2)
    ids = np.arange(1000)
    np.testing.assert_array_equal(few.positions(ids), many.positions(ids))


def test_a_seed_shuffles() -> None:
    ids = np.arange(1000)
    assert (Placement(1000, 2, seed=1).positions(ids) != Placement(1000, 2, seed=2).positions(ids)).mean() > 0.9


def test_absent_rows_stay_absent() -> None:
    assert Placement(10, 2).ids(1, [-1])[0] == -1


def test_more_shards_than_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match="shards=5 is more than classes=3"):
        Placement(3, 5)


def test_a_shard_almost_never_cuts_one_of_the_best() -> None:
    assert candidates_each(300, 16) == 41
    placement, generator = Placement(100_000, 16, seed=0), np.random.default_rng(0)
    most = max(np.bincount(placement.locate(generator.integers(100_000, size=300))[0]).max() for _ in range(200))
    assert most <= 41
