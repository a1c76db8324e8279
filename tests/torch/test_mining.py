"""For which examples a step looks candidates up, what it costs nothing to know, and what is remembered."""

from typing import Any

import numpy as np
import pytest
import torch
from head_cases import random_tensor, small_head

from manyclass.torch import CandidateSoftmax, RowSGD
from manyclass.torch.approximation_meter import likeliest_others, sampling_noise, usual_meter
from manyclass.torch.mining import WORTH_ALL, Mining

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.approximation_meter.ApproximationWarning")
CLASSES = 50


def mining(**settings: Any) -> Mining:
    new = Mining(**{"examples": 4, "every": 1, "candidates": 3, "remembered": 2, **settings})
    new._make_room(CLASSES)
    return new


def column(*ids: int) -> torch.Tensor:
    return torch.tensor(ids)[:, None]


# What it is worth


def test_noise_is_the_variance_by_the_best_classes_that_are_nobodys_positives() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.06, 0.04], [0.1, 0.2, 0.3, 0.25, 0.15]]).log()
    positives = torch.tensor([[0, -1], [2, 1]])

    def noise(depth: int, chance: float) -> float:
        likeliest, ids = likeliest_others(logits, positives, depth, logistic=False)
        return sampling_noise(likeliest, torch.full(ids.shape, chance))

    one, other = 0.06**2, 0.25**2
    assert noise(1, 0.5) == pytest.approx((one / (1 + one) + other / (1 + other)) / 2)
    one, other = 0.06**2 + 0.04**2, 0.25**2 + 0.15**2
    assert noise(9, 0.5) == pytest.approx((one / (1 + one) + other / (1 + other)) / 2)
    assert noise(9, 0.0) == pytest.approx(1, abs=1e-6)
    likeliest, ids = likeliest_others(torch.tensor([[0.0, 8.0, 0.0]]), torch.tensor([[1]]), 5, logistic=True)
    yes_or_no = sampling_noise(likeliest, torch.full(ids.shape, 0.5))
    assert yes_or_no == pytest.approx(0.5 / 1.5)


def steps_that_look_up(some: Mining, steps: int) -> int:
    return sum(some.due() for _ in range(steps))


def test_candidates_are_looked_up_as_often_as_hard_classes_are_worth() -> None:
    some = mining(every=4)
    assert steps_that_look_up(some, 40) == 10  # nothing is known yet
    some.note_noise(0.0)
    assert steps_that_look_up(some, 40) == 0
    for _ in range(20):
        some.note_noise(WORTH_ALL / 2)
    assert steps_that_look_up(some, 81) in (9, 10)
    for _ in range(20):
        some.note_noise(0.9)
    assert steps_that_look_up(some, 40) == 10
    assert steps_that_look_up(mining(examples=0), 40) == 0
    for every in range(1, 40):  # ten times a tenth is a little less than one
        assert steps_that_look_up(mining(every=every), 20 * every) == 20


def test_readings_cost_the_same_share_of_a_step_at_any_size() -> None:
    few, many, most = (usual_meter(classes, None, heeded=True) for classes in (2_000, 100_000, 10_000_000))
    assert few.every == 10
    assert most.every == 100 * many.every


def readings(every: int | None, *, heeded: bool) -> list[int]:
    """Return at which of a hundred steps a meter over many classes reads."""
    meter, found = usual_meter(100_000, every, heeded=heeded), []
    for step in range(100):
        if meter.due():
            found.append(step)
        meter.count(1, 100_000)
    return found


def test_readings_that_steer_nothing_are_fewer_and_none_is_early() -> None:
    heeded, unheeded = (usual_meter(100_000, None, heeded=heeded) for heeded in (True, False))
    assert unheeded.every == 4 * heeded.every
    assert readings(None, heeded=True) == [0, 16, 32, 64]
    assert readings(None, heeded=False) == []
    assert readings(30, heeded=False) == [30, 60, 90]
    assert readings(0, heeded=True) == []


def test_a_fresh_head_builds_no_index_while_random_classes_do() -> None:
    torch.manual_seed(0)
    head = CandidateSoftmax(32, 20_000, mined_examples=32)
    x, y = 0.1 * torch.randn(8, 32), torch.randint(20_000, (8,))
    for _ in range(3):
        head(x, y).backward()
    assert head.mining.noise is not None
    assert head.mining.noise < 0.01
    assert head.index.built is None
    with torch.no_grad():
        head.weight.mul_(200)  # a few classes rule every example now
    for _ in range(40):
        head(x, y).backward()
    assert head.index.built is not None
    assert head.meter.report()["recall_at_10"] > 0.3


def test_without_readings_it_goes_on_as_often_as_it_may() -> None:
    head = CandidateSoftmax(32, 20_000, meter_every=0, mined_examples=32, mined_every=2)
    built = []
    for _ in range(2):
        head(0.1 * torch.randn(8, 32), torch.arange(8)).backward()
        built.append(head.index.built is not None)
    assert built == [False, True]


def test_without_mined_examples_nothing_is_ever_looked_up() -> None:
    head = small_head(mined_examples=0, meter_every=0)
    head(random_tensor(5, head.in_features), torch.arange(5)).backward()
    assert head.index.built is None


# Which examples


def test_a_class_that_was_never_looked_up_comes_first_and_each_gets_its_turn() -> None:
    few, batch = mining(examples=2), column(*range(8))
    for _ in range(8):
        _, keys = few.chosen(batch, CLASSES)
        few.remember(keys, torch.zeros(len(keys), 3, dtype=torch.int64))
    assert (few._looked_up[:8] > 0).all()
    _, keys = few.chosen(column(*range(8), 20), CLASSES)
    assert 20 in keys


def test_at_most_one_example_of_a_class() -> None:
    examples, keys = mining().chosen(column(7, 7, 7, 9, 9, 9), CLASSES)
    assert examples.tolist() == [0, 3]
    assert keys.tolist() == [7, 9]


def test_all_examples_where_they_are_few() -> None:
    examples, keys = mining().chosen(column(7, 7, 9), CLASSES)
    assert examples.tolist() == [0, 1, 2]
    assert keys.tolist() == [7, 7, 9]


def test_of_several_positives_the_one_that_waited_longest_remembers() -> None:
    one = mining(examples=1)
    one.remember(torch.tensor([5]), torch.tensor([[1, 2, 3]]))
    _, keys = one.chosen(torch.tensor([[8, 5]]), CLASSES)
    assert keys.tolist() == [8]
    _, keys = one.chosen(torch.tensor([[5, -1]]), CLASSES)
    assert keys.tolist() == [5]


# What is remembered


def test_classes_remember_the_best_of_what_was_found_last() -> None:
    some = mining()
    some.remember(torch.tensor([5, 6]), torch.tensor([[1, 2, 3], [4, -1, -1]]))
    assert some.recalled(column(5, 6, 7), CLASSES).tolist() == [1, 2, 4]
    some.remember(torch.tensor([5]), torch.tensor([[9, 8, 7]]))
    assert some.recalled(column(5), CLASSES).tolist() == [9, 8]
    assert some.recalled(torch.tensor([[6, 5]]), CLASSES).tolist() == [9, 8]  # the freshest list of an example


def test_class_numbers_up_to_the_last_one_are_kept() -> None:
    last = 2**32 - 3
    some = mining()
    some.remember(torch.tensor([5]), torch.tensor([[last, 0, 1]]))
    assert some.recalled(column(5), CLASSES).tolist() == [last, 0]


def test_more_classes_keep_the_lists_and_other_numbers_do_not() -> None:
    some = mining()
    some.remember(torch.tensor([5]), torch.tensor([[1, 2, 3]]))
    assert some.recalled(column(5, 80), 100).tolist() == [1, 2]
    some.forget()
    assert not len(some.recalled(column(5, 80), 100))


def test_remembered_classes_are_computed_and_removed_ones_are_not() -> None:
    head = small_head(candidates=2, mined_examples=1, mined_every=1, remembered=2, tail=0, meter_every=0)
    x = random_tensor(6, head.in_features)
    head(x, torch.arange(6))
    for _ in range(6):
        head(x, torch.arange(6))
    remembered = head.mining.recalled(column(*range(6)), head.num_classes)
    gone = int(remembered[remembered >= 6][0])
    head.remove_classes([gone])
    head.zero_grad()
    head(x, torch.arange(6)).backward()
    touched = head.weight.grad._indices()[0].tolist()
    assert gone not in touched
    assert set(remembered.tolist()) - {gone} <= set(touched)


def test_compact_forgets_the_lists() -> None:
    head = small_head(candidates=2, meter_every=0)
    head(random_tensor(3, head.in_features), torch.arange(3))
    head.remove_classes([40])
    head.compact()
    assert not len(head.mining.recalled(column(0, 1, 2), head.num_classes))


def test_of_few_classes_the_likeliest_are_remembered() -> None:
    head = small_head(classes=12, mined_candidates=16, meter_every=0)
    x = random_tensor(3, head.in_features)
    best = head.layer.all_logits(head.prepared(x)).argmax(1)
    head(x, torch.arange(3))
    lists = head.mining.tensors()["lists"].to(torch.int64) - 1
    assert lists[:, 0].tolist() == best.tolist()


# Going on


def test_a_copy_and_a_restored_one_choose_alike() -> None:
    some = mining()
    batch = column(*np.random.default_rng(0).integers(0, CLASSES, 20).tolist())
    for mass in (0.02, 0.06, 0.08):
        some.note_noise(mass)
        _, keys = some.chosen(batch, CLASSES)
        some.remember(keys, torch.arange(3 * len(keys)).reshape(-1, 3))
    other = mining()
    other.restore(some.tensors(), some.settings(), CLASSES)
    assert other.noise == some.noise
    for again in (other, some.__deepcopy__({})):
        assert [part.tolist() for part in again.chosen(batch, CLASSES)] == [
            part.tolist() for part in some.chosen(batch, CLASSES)
        ]
        assert torch.equal(again.recalled(batch, CLASSES), some.recalled(batch, CLASSES))


def test_same_seed_same_bits() -> None:
    def trained() -> torch.Tensor:
        head = small_head(candidates=3, mined_examples=2, mined_every=2, tail=8, meter_every=2)
        optimizer = RowSGD(head.parameters(), lr=0.1)
        for step in range(12):
            loss = head(random_tensor(6, head.in_features, seed=step), torch.arange(6) * 7 + step % 3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return head.weight.detach()

    assert torch.equal(trained(), trained())
