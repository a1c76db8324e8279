"""The number that tells where the paper's rule learns: definition, what it is of made features, pairs of a task."""

import numpy as np
import pytest
import torch

from experiments.heads.literal import MadeFeatures, found_again, two_of_each
from experiments.heads.tasks.points import demo


def test_a_row_that_is_asked_for_itself_is_found() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 32)).astype(np.float32)
    assert found_again(rows, rows, candidates=1) == 1
    assert found_again(rows, np.roll(rows, 1, axis=0), candidates=1) == 0
    assert found_again(rows, rows, candidates=9) == 1


@pytest.mark.parametrize(("common", "noise", "least", "most"), [(0, 0.3, 0.95, 1), (6, 1.0, 0, 0.5), (0, 4.0, 0, 0.6)])
def test_common_parts_and_noise_make_classes_hard_to_find(
    common: float, noise: float, least: float, most: float
) -> None:
    made, every = MadeFeatures(400, 64, common, noise, seed=0), torch.arange(400)
    first, second = (made.examples(-number, every).numpy() for number in (1, 2))
    assert least <= found_again(first, second, candidates=5) <= most


def test_batches_are_functions_of_their_number() -> None:
    made = MadeFeatures(50, 16, 1.0, 1.0, seed=3)
    one, again, other = made.batch(4, 8), made.batch(4, 8), made.batch(5, 8)
    assert torch.equal(one[0], again[0])
    assert torch.equal(one[1], again[1])
    assert not torch.equal(one[0], other[0])


def test_two_examples_of_each_class_that_is_met_twice() -> None:
    rows, queries = two_of_each(demo(300, seed=0), 2000)
    assert rows.shape == queries.shape
    assert 50 < len(rows) <= 300
    assert not (rows == queries).all(1).any()
