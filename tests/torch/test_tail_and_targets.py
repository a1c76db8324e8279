"""The batch's targets and the tail as one sample: weights without bias, shares that are learned, batches by chance."""

import copy

import numpy as np
import pytest
import torch
from head_cases import CLASSES, FEATURES, random_tensor, small_head
from torch import Tensor

from manyclass.errors import FileError
from manyclass.torch import CandidateSoftmax
from manyclass.torch.class_sampler import ClassSampler
from manyclass.torch.removed_classes import RemovedClasses
from manyclass.torch.tail_and_targets import TailAndTargets

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.ApproximationWarning")  # heads of few classes
NOTHING = torch.empty(0, dtype=torch.int64)
BATCH, TAIL = 24, 10


def skewed(classes: int = CLASSES) -> Tensor:
    frequencies = 1 / (torch.arange(classes).double() + 1)
    return frequencies / frequencies.sum()


def even(classes: int) -> Tensor:
    return torch.full((classes,), 1 / classes).double()


def batch(frequencies: Tensor, seed: int, size: int = BATCH) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(frequencies, size, replacement=True, generator=generator)[:, None]


def taught(frequencies: Tensor, batches: int = 3000) -> TailAndTargets:
    """Return one that has met so many batches."""
    learned, sampler = TailAndTargets(len(frequencies)), ClassSampler(len(frequencies))
    for seed in range(batches):
        learned.classes(NOTHING, batch(frequencies, seed), TAIL, sampler)
    return learned


@pytest.mark.parametrize("frequencies", [skewed(), even(CLASSES)], ids=["skewed", "even"])
@pytest.mark.parametrize("hard", [NOTHING, torch.tensor([[2, 40], [-1, 2]])], ids=["no hard", "hard"])
def test_in_the_mean_the_weights_of_each_class_add_up_to_one(frequencies: Tensor, hard: Tensor) -> None:
    learned, sampler = taught(frequencies), ClassSampler(CLASSES, seed=1)
    known, rounds = learned.settings(), 4000
    sums = np.zeros(CLASSES)
    for seed in range(rounds):
        classes = learned.classes(hard, batch(frequencies, 10_000 + seed), TAIL, sampler)
        sums[classes.ids.numpy()] += classes.log_weights.exp().numpy()
    # In the mean over examples: in that of one example, its own class does not count, and one target less is met.
    assert known["new_share"] < 0.01
    spread = np.sqrt(rounds / np.minimum(1, BATCH * frequencies.numpy() + TAIL / CLASSES))
    assert np.all(np.abs(sums - rounds) < 5 * spread + 0.08 * rounds)
    members = [c for c in hard.unique().tolist() if c >= 0]
    np.testing.assert_array_equal(sums[members], rounds)


def test_frequent_classes_stand_for_themselves_and_rare_ones_for_many() -> None:
    learned = taught(skewed(200))
    classes = learned.classes(NOTHING, torch.tensor([[0], [150]]).repeat(BATCH // 2, 1), TAIL, ClassSampler(200))
    stands_for = dict(zip(classes.ids.tolist(), classes.log_weights.exp().tolist(), strict=True))
    assert stands_for[0] == pytest.approx(1, abs=0.05)
    assert 4 < stands_for[150] < 20


def test_classes_that_were_not_met_share_what_is_new() -> None:
    fresh = TailAndTargets(1000)
    np.testing.assert_allclose(fresh.shares(np.arange(1000), 1000), 1 / 1000)
    learned = taught(skewed(1000), 400)
    shares = learned.shares(np.arange(1000), 1000)
    assert shares.sum() == pytest.approx(1)
    unmet = learned.counts.counts.numpy() == 0
    assert unmet.any()
    assert shares[unmet].min() == shares[unmet].max()
    assert learned.new_share / 1000 <= shares[unmet][0] < shares[~unmet].min()


def test_shares_that_differ_by_chance_are_drawn_together_and_others_are_not() -> None:
    """Of 2,000 even classes, each met six times or so, a count of two is chance; of unequal ones it is a share."""
    alike, unlike = (taught(frequencies, 500) for frequencies in (even(2000), skewed(2000)))
    assert np.ptp(alike.counts.counts.numpy()) > 8
    np.testing.assert_allclose(alike.shares(np.arange(2000), 2000), 1 / 2000, rtol=0.2)
    frequent = np.arange(20)
    np.testing.assert_allclose(unlike.shares(frequent, 2000), skewed(2000).numpy()[frequent], rtol=0.3)


def test_after_few_targets_of_each_class_the_weights_still_add_up() -> None:
    """Weights by bare counts would be a tenth too large in sum: one over a count of chance is more than one over its
    mean."""
    learned, sampler = taught(even(2000), 500), ClassSampler(2000, seed=1)
    sums = [
        float(learned.classes(NOTHING, batch(even(2000), 10_000 + seed), TAIL, sampler).log_weights.exp().sum())
        for seed in range(300)
    ]
    assert np.mean(sums) == pytest.approx(2000, rel=0.03)


def test_targets_that_meet_by_no_chance_stand_for_themselves() -> None:
    frequencies, sampler = torch.full((5000,), 1 / 5000).double(), ClassSampler(5000)
    shuffled, running = TailAndTargets(5000), TailAndTargets(5000)
    for seed in range(1200):
        shuffled.classes(NOTHING, batch(frequencies, seed), TAIL, sampler)
        topic = batch(frequencies, seed, 4)
        running.classes(NOTHING, topic.repeat(BATCH // 4, 1), TAIL, sampler)
    assert shuffled.at_random
    assert not running.at_random
    classes = running.classes(NOTHING, torch.tensor([[3], [9]]), TAIL, sampler)
    assert classes.log_weights[torch.isin(classes.ids, torch.tensor([3, 9]))].tolist() == [0.0, 0.0]


def test_removed_classes_are_not_drawn_and_not_counted_among_those_left() -> None:
    learned = TailAndTargets(CLASSES)
    sampler = ClassSampler(CLASSES, removed=RemovedClasses(torch.arange(10, CLASSES)))
    classes = learned.classes(NOTHING, torch.tensor([[1], [2]]), 400, sampler)
    assert classes.ids.tolist() == list(range(10))
    assert classes.log_weights.exp().tolist() == pytest.approx([1.0] * 10, abs=1e-9)


@pytest.mark.parametrize("compact", [False, True])
def test_shares_are_those_among_the_classes_that_are_left(compact: bool) -> None:
    head = small_head(mined_examples=0, tail=TAIL)
    assert head.tail_and_targets is not None
    for seed in range(400):
        head.tail_and_targets.classes(NOTHING, batch(skewed(), seed), TAIL, head.sampler)
    head.remove_classes(range(5))  # half of what is met
    if compact:
        head.compact()
    left = np.arange(55) if compact else np.arange(5, CLASSES)
    shares = head.tail_and_targets.shares(left, 55)
    assert shares.sum() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("targets", [[[0]], [[-1]], [[5, -1], [-1, -1]]], ids=["one", "none", "some"])
def test_awkward_batches(targets: list[list[int]]) -> None:
    learned, positives = TailAndTargets(7), torch.tensor(targets)
    for _ in range(300):
        classes = learned.classes(NOTHING, positives, TAIL, ClassSampler(7))
        assert torch.isin(positives[positives >= 0], classes.ids).all()
        assert classes.log_weights.isfinite().all()
        assert (classes.log_weights >= 0).all()


def test_one_class_that_is_always_right() -> None:
    learned = TailAndTargets(1)
    for _ in range(50):
        classes = learned.classes(NOTHING, torch.zeros(3, 1, dtype=torch.int64), 4, ClassSampler(1))
    assert classes.log_weights.exp().tolist() == pytest.approx([1.0])


def step(head: CandidateSoftmax, seed: int) -> float:
    x, y = random_tensor(BATCH, FEATURES, seed=seed), batch(skewed(), seed)[:, 0]
    loss = head(x, y)
    loss.backward()
    return float(loss.detach())


def test_a_restored_head_goes_on_with_the_same_bits() -> None:
    head = small_head(tail=TAIL)
    for seed in range(5):
        step(head, seed)
    tensors, settings = head.extra_tensors(), head.extra_settings()
    other = small_head(tail=TAIL)
    other.restore(tensors, settings)
    copied = copy.deepcopy(head)
    assert step(head, 9) == step(other, 9) == step(copied, 9)
    assert head.tail_and_targets is not None
    assert other.tail_and_targets is not None
    assert head.tail_and_targets.settings() == other.tail_and_targets.settings()
    assert list(head.state_dict()) == ["weight", "bias"]


def test_a_checkpoint_with_wrong_targets_is_refused() -> None:
    learned = TailAndTargets(CLASSES)
    learned.classes(NOTHING, torch.tensor([[1], [2]]), TAIL, ClassSampler(CLASSES))
    tensors, settings = learned.tensors(), learned.settings()
    with pytest.raises(FileError, match="beyond the 60 classes"):
        TailAndTargets(CLASSES).restore({"targets": tensors["targets"] + CLASSES}, settings)
    with pytest.raises(FileError, match="more than a head of this size keeps"):
        TailAndTargets(1).restore({"targets": torch.zeros(99, dtype=torch.int32)}, settings)


def test_classes_that_come_and_go_are_counted_on() -> None:
    head = small_head(tail=TAIL)
    step(head, 0)
    head.add_classes(3)
    head.remove_classes([4])
    kept = head.compact()
    assert head.tail_and_targets is not None
    assert head.tail_and_targets.counts.num_classes == len(kept) == CLASSES + 2
    head(random_tensor(2, FEATURES), torch.tensor([CLASSES + 1, 0])).backward()


@pytest.mark.parametrize("settings", [{"tail": 0}, {"shared": False}, {"tail_sampler": "uniform"}], ids=str)
def test_nothing_is_counted_where_it_is_not_used(settings: dict[str, object]) -> None:
    assert small_head(**settings).tail_and_targets is None


@pytest.mark.parametrize("change", ["compact", "add"])
def test_a_head_whose_classes_changed_is_restored_with_all_it_met(change: str) -> None:
    head = small_head(tail=TAIL)
    for seed in range(60):  # more targets than a head of this size keeps
        step(head, seed)
    if change == "compact":
        head.remove_classes(range(40, CLASSES))
        head.compact()
    else:
        head.add_classes(7)
    other = small_head(classes=head.num_classes, tail=TAIL)
    other.load_state_dict(head.state_dict())
    other.restore(head.extra_tensors(index=False), head.extra_settings())
    assert head.tail_and_targets is not None
    assert other.tail_and_targets is not None
    assert other.tail_and_targets.settings() == head.tail_and_targets.settings()
    assert torch.equal(other.tail_and_targets.counts.counts, head.tail_and_targets.counts.counts)


@pytest.mark.parametrize(("passes", "draws"), [(0, 16), (2, 16), (4, 32), (9.5, 76), (16, 128), (100, 128)])
def test_beside_many_targets_draws_grow_with_the_passes_over_the_classes(passes: float, draws: int) -> None:
    head = small_head(mined_examples=0)
    assert head.tail_and_targets is not None
    head.tail_and_targets.counts.targets = round(passes * CLASSES)
    for targets in (256, 1000):
        assert head._draws(torch.zeros(targets, 1, dtype=torch.int64)) == draws
    assert small_head(mined_examples=0, tail=9)._draws(torch.zeros(256, 1, dtype=torch.int64)) == 9


@pytest.mark.parametrize(("targets", "draws"), [(0, 640), (1, 638), (200, 240), (255, 130)])
def test_few_targets_are_made_up_for_by_draws(targets: int, draws: int) -> None:
    head = small_head(mined_examples=0)
    positives = torch.full((1000, 2), -1)
    positives[:targets, 0] = 7
    assert head._draws(positives) == draws
    assert small_head(mined_examples=0, tail=9)._draws(positives) == 9
    for alone in ({"tail_sampler": "uniform"}, {"shared": False}, {"targets_for_all": False}):
        assert small_head(**alone)._draws(positives) == 128  # type: ignore[arg-type]


def test_where_targets_are_no_sample_draws_are_no_more() -> None:
    head, positives = small_head(mined_examples=0), torch.zeros(5, 1, dtype=torch.int64)
    assert head.tail_and_targets is not None
    head.tail_and_targets.repeated = 10.0
    assert not head.tail_and_targets.at_random
    assert head._draws(positives) == 128


def test_the_weights_add_up_after_few_batches_of_unequal_classes() -> None:
    """A class that is not met yet weighs by how many targets are new now, and not by how many were at the start."""
    classes, rounds, batch_size = 5000, 20, 256
    frequencies = skewed(classes)
    sums = []
    for seed in range(20):
        learned, sampler = TailAndTargets(classes), ClassSampler(classes, seed=seed)
        for number in range(rounds):
            found = learned.classes(NOTHING, batch(frequencies, 1000 * seed + number, batch_size), 128, sampler)
        sums.append(float(found.log_weights.exp().sum()) / classes)
    assert np.mean(sums) == pytest.approx(1, abs=0.2)
