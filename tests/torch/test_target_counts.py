"""Counts of the last targets are those of a list that forgets its oldest entries, whatever happens to the classes."""

from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from manyclass.errors import InputError
from manyclass.torch.target_counts import TargetCounts

CLASSES, KEPT = 7, 10
batches = st.lists(
    st.lists(st.lists(st.integers(-1, CLASSES - 1), min_size=3, max_size=3), min_size=1, max_size=6), max_size=8
)


def naive(batches: list[list[list[int]]]) -> deque[int]:
    return deque((c for batch in batches for example in batch for c in example if c >= 0), maxlen=KEPT)


def counted(batches: list[list[list[int]]]) -> TargetCounts:
    counts = TargetCounts(CLASSES, remembered=KEPT)
    for batch in batches:
        counts.add(torch.tensor(batch))
    return counts


def drawn_from(counts: TargetCounts) -> Tensor:
    """Return every target that is kept, by the places in their middles."""
    return counts.at((torch.arange(counts.known, dtype=torch.float64) + 0.5) / counts.known)


@given(batches)
@settings(deadline=None)
def test_the_oldest_targets_are_forgotten_first(batches: list[list[list[int]]]) -> None:
    counts, expected = counted(batches), naive(batches)
    assert counts.counts.tolist() == [expected.count(c) for c in range(CLASSES)]
    assert counts.known == len(expected)
    assert counts.examples == sum(map(len, batches))
    if expected:
        assert sorted(drawn_from(counts).tolist()) == sorted(expected)


@given(batches, batches)
@settings(deadline=None)
def test_a_state_goes_on_where_it_was_taken(first: list[list[list[int]]], then: list[list[list[int]]]) -> None:
    straight, interrupted = counted(first + then), TargetCounts(CLASSES, remembered=KEPT)
    interrupted.load_state_dict(counted(first).state_dict())
    for batch in then:
        interrupted.add(torch.tensor(batch))
    assert torch.equal(straight.get_extra_state(), interrupted.get_extra_state())
    assert torch.equal(straight.counts, interrupted.counts)


@given(batches)
@settings(deadline=None)
def test_counts_follow_classes_that_come_and_go(batches: list[list[list[int]]]) -> None:
    counts, expected = counted(batches), naive(batches)
    counts.add_classes(2)
    kept = [0, 2, 3, 6, 8]
    counts.keep_classes(torch.tensor(kept))
    assert counts.counts.tolist() == [expected.count(c) for c in kept]
    if expected:
        left = [kept.index(c) if c in kept else -1 for c in expected]
        assert sorted(drawn_from(counts).tolist()) == sorted(left)
    again = TargetCounts(len(kept), remembered=KEPT)
    again.load_state_dict(counts.state_dict())
    assert torch.equal(again.counts, counts.counts)


@given(batches, batches, st.sets(st.integers(0, CLASSES - 1)), st.booleans())
@settings(deadline=None)
def test_targets_of_classes_that_are_gone_count_no_more(
    first: list[list[list[int]]], then: list[list[list[int]]], gone: set[int], compact: bool
) -> None:
    counts, kept = counted(first), sorted(set(range(CLASSES)) - gone)
    if compact:
        counts.keep_classes(torch.tensor(kept, dtype=torch.int64))
    else:
        counts.forget_classes(torch.tensor(sorted(gone), dtype=torch.int64))
    expected = [sum(c == k for c in naive(first)) for k in kept]
    assert counts.known_here == sum(expected)
    assert (counts.counts if compact else counts.counts[kept]).tolist() == expected
    again = TargetCounts(counts.num_classes, remembered=KEPT)
    again.load_state_dict(counts.state_dict())
    for batch in then:
        for one in (counts, again):
            one.add(torch.tensor(batch).clamp(max=counts.num_classes - 1))
            assert one.known_here == int(one.counts.sum())


def test_a_state_that_does_not_fit_is_refused() -> None:
    counts = counted([[[1, 2, 3]]])
    state = counts.get_extra_state()
    too_large, too_early, negative = state.clone(), state.clone(), state.clone()
    too_large[0], too_early[KEPT - 1], negative[-1] = CLASSES, 1, -1
    for wrong in (too_large, too_early, negative):
        with pytest.raises(
            InputError, match=r"target_counts holds ids beyond the 7 classes of the head, or is damaged"
        ):
            counts.set_extra_state(wrong)
    for wrong in (state[1:], state.int()):
        with pytest.raises(InputError, match=r"target_counts is .*; expected int64 \(12,\)"):
            counts.set_extra_state(wrong)
    assert torch.equal(counts.get_extra_state(), state)
