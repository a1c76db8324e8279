"""What a search returns explains itself: fields by name, the same for one query and for many."""

import dataclasses

import numpy as np
import pytest

from manyclass import ClassIndex, TopK


def test_a_search_returns_classes_log_probs_and_logits() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    index = ClassIndex.build(rows)
    many, one = index.search(rows[:3], 4), index.search(rows[1], 4)
    assert [field.name for field in dataclasses.fields(TopK)] == ["classes", "log_probs", "logits"]
    for field in dataclasses.fields(TopK):
        assert getattr(many, field.name).shape == (3, 4)
        np.testing.assert_array_equal(getattr(one, field.name), getattr(many, field.name)[1])
    with pytest.raises(dataclasses.FrozenInstanceError):
        many.classes = one.classes  # type: ignore[misc]


def test_a_head_without_logits_may_leave_them_out() -> None:
    assert TopK(classes=np.arange(3), log_probs=np.zeros(3)).logits is None
