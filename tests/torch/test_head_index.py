"""The index of a head in training: who is re-hashed when, and what the meter says."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from head_cases import CLASSES, EXAMPLES, FEATURES, RANKED, random_tensor, rehashed, small_head
from torch import Tensor

from manyclass.torch import CandidateSoftmax, RowSGD
from manyclass.torch.approximation_meter import ApproximationMeter, ApproximationWarning

quiet = pytest.mark.filterwarnings("ignore::manyclass.torch.approximation_meter.ApproximationWarning")
X = random_tensor(EXAMPLES, FEATURES)
TARGET = torch.tensor([3, 0, 59, 3, 7])


@quiet
@pytest.mark.parametrize("period", [1, 7, 60, 100])
def test_a_round_visits_every_class_once(period: int, monkeypatch: pytest.MonkeyPatch) -> None:
    head = small_head(refresh_steps=period, touched_first=False, meter_every=0)
    seen = rehashed(head, monkeypatch)
    slice_size = -(-CLASSES // period)
    steps = -(-CLASSES // slice_size)
    assert steps <= period
    for _ in range(steps):
        head(X, TARGET)
    assert all(len(ids) <= slice_size for ids in seen)
    assert sorted(c for ids in seen for c in ids)[: steps * slice_size] == sorted(
        c % CLASSES for c in range(steps * slice_size)
    )
    mean, largest = head.index.age()
    assert largest < steps
    assert mean <= largest


@quiet
@pytest.mark.parametrize("limit", [1, 5, 13])
def test_no_step_rehashes_more_than_the_limit(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    head = small_head(refresh_steps=10, refresh_limit=limit, meter_every=0)
    seen = rehashed(head, monkeypatch)
    for _ in range(8):
        head(X, TARGET)
    assert max(map(len, seen)) <= limit
    assert all(len(set(ids)) == len(ids) for ids in seen)


@quiet
def test_moved_classes_come_beside_the_round_positives_first(monkeypatch: pytest.MonkeyPatch) -> None:
    head = small_head(refresh_steps=60, refresh_limit=5, candidates=4, tail=0, meter_every=0)
    optimizer = RowSGD(head.parameters(), lr=1e-3)
    seen = rehashed(head, monkeypatch)
    for _ in range(2):
        head(X, TARGET)  # moves nothing
    assert seen == [[0], [1]]
    head(X, TARGET).backward()
    optimizer.step()
    head(X, TARGET)
    assert set(seen[3]) == {3, 0, 7, 59}  # the next of the round, which is also one of the positives, then the others


@quiet
@pytest.mark.parametrize("how", ["eval", "no_grad"])
def test_nothing_is_rehashed_without_training(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head = small_head(refresh_steps=1)
    head(X, TARGET)
    seen = rehashed(head, monkeypatch)
    before = (head.index.schedule.step, head.index.schedule.cursor, head.meter.steps)
    head.train(how != "eval")
    with torch.set_grad_enabled(how == "eval"):
        head(X, TARGET)
        head.topk(X, 3)
        head.log_prob(X)
    assert not seen
    assert (head.index.schedule.step, head.index.schedule.cursor, head.meter.steps) == before


@quiet
def test_the_age_of_entries_grows_until_their_turn() -> None:
    head = small_head(refresh_steps=60, touched_first=False, meter_every=0)
    assert head.index.age() == (0.0, 0)
    for _ in range(10):
        head(X, TARGET)
    ages = head.index.schedule.step - head.index.schedule.hashed_at
    assert ages.tolist() == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0] + [10] * 50
    assert head.index.age() == (float(ages.mean()), 10)


@quiet
@pytest.mark.parametrize("settings", [{}, {"normalize": True}, {"bias": False}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_class_that_a_gradient_moved_is_found_after_its_refresh(settings: dict[str, Any], dtype: torch.dtype) -> None:
    head = small_head(candidates=1, refresh_steps=1, meter_every=0, **settings).to(dtype)
    head(X, TARGET)
    goal = random_tensor(1, FEATURES, seed=9)
    old = int(head.shortlist(head.prepared(goal), 1))
    moved = (old + 30) % CLASSES
    head.weight.grad = torch.sparse_coo_tensor(
        torch.tensor([[moved]]),
        (head.weight[moved].detach() - 20 * goal[0].to(dtype))[None],
        head.weight.shape,
        check_invariants=True,
    )
    RowSGD(head.parameters(), lr=1.0).step()
    assert int(head.shortlist(head.prepared(goal), 1)) == old  # the index lags
    head(X, TARGET)  # re-hashes everything
    assert int(head.shortlist(head.prepared(goal), 1)) == moved


@quiet
def test_a_bias_that_rose_is_found_after_its_refresh() -> None:
    head = small_head(candidates=1, refresh_steps=1)
    head(X, TARGET)
    with torch.no_grad():
        head.bias[12] = 100
    head(X, TARGET)
    assert (head.shortlist(X, 1) == 12).all()


@quiet
def test_the_same_seed_gives_the_same_bytes() -> None:
    def run() -> Tensor:
        head = small_head(candidates=4, tail=9, seed=5, refresh_steps=10)
        optimizer = RowSGD(head.parameters(), lr=0.1)
        for step in range(6):
            optimizer.zero_grad()
            head(random_tensor(EXAMPLES, FEATURES, seed=step), TARGET).backward()
            optimizer.step()
        return head.weight.detach()

    assert torch.equal(run(), run())


# The meter


@quiet
@pytest.mark.parametrize("shared", [True, False])
def test_readings_are_perfect_when_everything_is_retrieved(shared: bool) -> None:
    head = small_head(shared=shared, candidates=CLASSES, tail=0)
    head(X, TARGET)
    readings = head.meter.report()
    assert readings["recall_at_10"] == 1
    assert readings["missed_mass"] == pytest.approx(0, abs=1e-6)
    assert readings["distinct_classes"] == CLASSES
    assert (readings["table_age_mean"], readings["table_age_max"]) == (head.index.age()[0], head.index.age()[1])


@quiet
@pytest.mark.parametrize("settings", [{}, {"temperature": 3.0}, {"normalize": True}, {"subtract_mean": True}], ids=str)
@pytest.mark.parametrize("tail", [9, 200])
def test_readings_match_what_was_left_out(settings: dict[str, Any], tail: int) -> None:
    head = small_head(shared=False, candidates=4, tail=tail, **settings)
    head(X, TARGET)
    readings = head.meter.report()
    found, recall, missed = head.shortlist(head.prepared(X), 4), [], []
    with head.exact():
        exact = head.log_prob(X)
        best = head.topk(X, 10).classes
    for e in range(4):  # a few examples are measured; what the random tail holds does not count as found
        seen = {*found[e].tolist(), int(TARGET[e])}
        recall.append(len(seen & set(best[e].tolist())) / 10)
        missed.append(1 - float(exact[e, sorted(seen)].exp().sum()))
    assert readings["recall_at_10"] == pytest.approx(np.mean(recall))
    assert readings["missed_mass"] == pytest.approx(np.mean(missed), abs=1e-4)


def test_a_batch_of_many_classes_warns_once() -> None:
    head = CandidateSoftmax(
        FEATURES, CLASSES, mined_candidates=20, mined_examples=32, config=RANKED, tail=0, meter_every=0
    )
    with pytest.warns(ApproximationWarning, match=r"a batch touches \d+ of 60 classes, more than 20%"):
        head(X, TARGET)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head(X, TARGET)
        CandidateSoftmax(FEATURES, CLASSES, mined_candidates=2, mined_examples=32, config=RANKED, tail=0)(
            X[:1], TARGET[:1]
        )
        head.eval()(X, TARGET)


def test_the_meter_looks_every_so_many_steps() -> None:
    meter = ApproximationMeter(3)
    due = []
    for _ in range(7):
        due.append(meter.due())
        meter.count(1, 100)
    assert due == [True, False, False, True, False, False, True]
    assert not ApproximationMeter(0).due()


def test_without_comparisons_only_the_count_is_read() -> None:
    head = CandidateSoftmax(
        FEATURES, CLASSES, mined_candidates=1, mined_examples=32, config=RANKED, tail=0, meter_every=0
    )
    head(X[:1], TARGET[:1])
    assert set(head.meter.report()) == {"distinct_classes"}
