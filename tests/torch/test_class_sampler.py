"""Random classes: whatever they are drawn from, they stand for all classes without bias."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from head_cases import RANKED
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from manyclass.errors import ConfigError, InputError, InputTypeError
from manyclass.torch import CandidateSoftmax, RowSGD, SampledSoftmax, load_checkpoint, save_checkpoint
from manyclass.torch.class_sampler import ClassSampler, Drawn
from manyclass.torch.removed_classes import RemovedClasses
from manyclass.torch.step_classes import MOST_KEPT
from manyclass.torch.target_counts import TargetCounts

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.ApproximationWarning")  # classes are few
CLASSES, SAMPLES, TRIALS = 30, 40, 3000
SKEWED = torch.arange(CLASSES, 0, -1) ** 2  # counts of classes, none of them 0
NAMES = ["uniform", "log_uniform", "frequencies", "counted"]


def sampler_of(name: str, removed: RemovedClasses | None = None, seed: int = 0) -> ClassSampler:
    if name == "frequencies":
        return ClassSampler(CLASSES, SKEWED, seed, removed)
    counts = TargetCounts(CLASSES)
    counts.add(torch.repeat_interleave(torch.arange(CLASSES), SKEWED // 40)[:, None])  # the last ones were never met
    assert (counts.counts == 0).any()
    return ClassSampler(CLASSES, name, seed, removed, counts)


def mean_weights(draw: Any) -> tuple[Tensor, Tensor]:
    """Return the mean weight of every class over many draws, and its standard error."""
    weights = torch.zeros(TRIALS, CLASSES, dtype=torch.float64)
    for row in weights:
        drawn: Drawn = draw()
        row[drawn.classes] = drawn.log_weights.exp()
    return weights.mean(0), weights.std(0) / TRIALS**0.5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gone", [[], [0, 4, 29]])
def test_every_class_stands_for_itself_in_the_mean(name: str, gone: list[int]) -> None:
    sampler = sampler_of(name, RemovedClasses(torch.tensor(gone, dtype=torch.int64)))
    expected = torch.ones(CLASSES, dtype=torch.float64).index_fill_(0, torch.tensor(gone, dtype=torch.int64), 0)
    found, error = mean_weights(lambda: sampler.draw(SAMPLES))
    # 30 classes, 4.5 standard errors: a false alarm once in 5,000 (and the seed is fixed).
    assert ((found - expected).abs() <= 4.5 * error).all()
    assert error[expected == 1].median() < 0.05  # it can tell: a wrong weight is off by far more


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gone", [[], [3, 28]])
def test_outside_a_set_every_class_stands_for_itself_and_members_for_nothing(name: str, gone: list[int]) -> None:
    members = torch.tensor([0, 1, 2, 9, 29])
    sampler = sampler_of(name, RemovedClasses(torch.tensor(gone, dtype=torch.int64)))
    expected = torch.ones(CLASSES, dtype=torch.float64).index_fill_(0, members, 0)
    expected[gone] = 0
    found, error = mean_weights(lambda: sampler.draw_outside(members, SAMPLES))
    assert ((found - expected).abs() <= 4.5 * error).all()
    assert (found[expected == 0] == 0).all()
    assert error[expected == 1].median() < 0.05


@pytest.mark.parametrize("name", NAMES)
def test_about_as_many_are_drawn_outside_a_set_as_are_wanted(name: str) -> None:
    sampler, members = sampler_of(name), torch.arange(4)
    times = []
    for _ in range(200):
        drawn = sampler.draw_outside(members, SAMPLES)
        share = sampler.log_probability(drawn.classes).exp()
        outside = 1 - sampler.log_probability(members).exp().sum()
        draws = SAMPLES / outside.clamp_min(0.25) if name != "uniform" else SAMPLES / outside
        times.append(float((drawn.log_weights.exp() * share * draws).sum()))
    assert sum(times) / len(times) == pytest.approx(SAMPLES, rel=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_drawn_where_nothing_is_outside_or_wanted(name: str) -> None:
    sampler = sampler_of(name, RemovedClasses(torch.tensor([5])))
    everything = torch.cat([torch.arange(5), torch.arange(6, CLASSES)])
    assert not len(sampler.draw_outside(everything, 9).classes)
    assert not len(sampler.draw_outside(everything[:3], 0).classes)


@pytest.mark.parametrize("sampler", ["uniform", "log_uniform", "counted", SKEWED])
@pytest.mark.parametrize("target", [torch.tensor([3, 0, 29, 3]), torch.tensor([[3, 1], [0, -1], [29, 2], [3, 3]])])
def test_with_as_many_samples_as_classes_the_loss_is_torchs(sampler: str | Tensor, target: Tensor) -> None:
    torch.manual_seed(1)
    head = SampledSoftmax(5, CLASSES, samples=CLASSES, sampler=sampler, dtype=torch.float64)
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    for _ in range(2):  # the second time there are counts
        head.zero_grad()
        loss = head(x, target)
    found = torch.autograd.grad(loss, (x, head.weight))
    logits = functional.linear(x, head.weight, head.bias)
    wanted = torch.zeros(4, CLASSES, dtype=torch.float64)
    for row, some in zip(wanted, target.reshape(4, -1).tolist(), strict=True):
        own = sorted({c for c in some if c >= 0})
        row[own] = 1 / len(own)
    expected = functional.cross_entropy(logits, wanted)
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(found, torch.autograd.grad(expected, (x, head.weight)), strict=True):
        torch.testing.assert_close(ours.to_dense() if ours.is_sparse else ours, theirs)


@pytest.mark.parametrize("tail_sampler", ["uniform", "log_uniform", "counted", SKEWED])
@pytest.mark.parametrize("output", ["softmax", "logistic"])
def test_a_head_that_computes_all_classes_has_torchs_loss_whatever_its_tail(tail_sampler: Any, output: Any) -> None:
    torch.manual_seed(1)
    head = CandidateSoftmax(
        5, CLASSES, mined_candidates=CLASSES, mined_examples=32, output=output, tail_sampler=tail_sampler, meter_every=0
    )
    x, target = torch.randn(6, 5), torch.tensor([3, 0, 29, 3, 1, 2])
    for _ in range(2):
        loss = head(x, target)
    logits = functional.linear(x, head.weight, head.bias)
    if output == "softmax":
        expected = functional.cross_entropy(logits, target)
    else:
        yes = functional.one_hot(target, CLASSES).float()
        expected = functional.binary_cross_entropy_with_logits(logits, yes, reduction="sum") / len(x)
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("shared", [True, False])
def test_a_tail_by_counts_estimates_the_normaliser_without_bias(shared: bool) -> None:
    torch.manual_seed(1)
    head = CandidateSoftmax(
        5,
        400,
        config=RANKED,
        candidates=3,
        mined_examples=32,
        mined_candidates=3,
        tail=60,
        tail_sampler="counted",
        shared=shared,
        meter_every=0,
    ).double()
    x = torch.randn(3, 5, dtype=torch.float64)
    lately = (torch.rand(20_000) ** 3 * 400).long()  # low ids are frequent
    counts = head.target_counts
    assert counts is not None
    counts.add(lately[:, None])
    with torch.no_grad():
        head.weight[:, 0] += torch.linspace(2, -2, 400)  # and differ in their logits
    positives = torch.tensor([[3], [350], [0]])
    exact = functional.linear(x, head.weight, head.bias).exp().sum(1)
    sums = []
    with torch.no_grad():
        for _ in range(2000):
            classes = head._step_classes(x, positives, learning=True)
            dense = functional.linear(x, head.weight, head.bias)
            logits = dense[:, classes.ids] if shared else head.layer.own_logits(x, classes.ids)
            sums.append((logits + classes.log_weights).exp().sum(1))
    found = torch.stack(sums)
    error = found.std(0) / len(found) ** 0.5
    assert ((found.mean(0) - exact).abs() <= 4 * error).all()
    assert (4 * error < 0.04 * exact).all()


def trained(head: Any, steps: int, optimizer: Any, first: int = 0) -> list[float]:
    losses = []
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(step)
        x, y = torch.randn(8, 5, generator=generator), torch.randint(20, (8,), generator=generator)
        optimizer.zero_grad()
        loss = head(x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def candidate(**settings: Any) -> Any:
    torch.manual_seed(0)
    return CandidateSoftmax(
        5, 200, mined_examples=32, mined_candidates=2, tail=9, tail_sampler="counted", meter_every=0, **settings
    )


def sampled(**settings: Any) -> Any:
    torch.manual_seed(0)
    return SampledSoftmax(5, 200, samples=9, sampler="counted", **settings)


def in_batch(**settings: Any) -> Any:
    torch.manual_seed(0)
    return SampledSoftmax(5, 200, sampler="in_batch", **settings)


@pytest.mark.parametrize("make", [candidate, sampled, in_batch])
def test_a_run_with_counts_goes_on_bit_by_bit_from_a_checkpoint(make: Any, tmp_path: Any) -> None:
    straight = make()
    optimizer = RowSGD(straight.parameters(), lr=0.1)
    trained(straight, 5, optimizer)
    save_checkpoint(tmp_path / "run", straight, optimizer)
    expected = trained(straight, 5, optimizer, first=5)
    resumed = make(seed=9)
    optimizer = RowSGD(resumed.parameters(), lr=0.1)
    load_checkpoint(tmp_path / "run", resumed, optimizer)
    assert trained(resumed, 5, optimizer, first=5) == expected
    for name, value in straight.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value)


@pytest.mark.parametrize("make", [sampled, in_batch])
def test_a_state_dict_holds_the_counts_and_one_of_a_linear_layer_changes_none(make: Any) -> None:
    head = make()
    optimizer = RowSGD(head.parameters(), lr=0.1)
    trained(head, 3, optimizer)
    other = make(seed=9)
    other.load_state_dict(head.state_dict())
    assert torch.equal(other.target_counts.counts, head.target_counts.counts)
    other.load_state_dict(head.to_linear().state_dict())
    assert torch.equal(other.target_counts.counts, head.target_counts.counts)
    assert trained(other, 3, RowSGD(other.parameters(), lr=0.1)) == trained(head, 3, optimizer)


@pytest.mark.parametrize("make", [candidate, sampled, in_batch])
def test_a_copy_counts_for_itself(make: Any) -> None:
    head = make()
    trained(head, 2, RowSGD(head.parameters(), lr=0.1))
    twin, kept = copy.deepcopy(head), head.target_counts.get_extra_state()
    straight = trained(twin, 3, RowSGD(twin.parameters(), lr=0.1), first=2)
    assert torch.equal(head.target_counts.get_extra_state(), kept)
    assert twin.target_counts.targets == 5 * 8
    assert trained(head, 3, RowSGD(head.parameters(), lr=0.1), first=2) == straight


def test_a_step_that_backward_computes_again_counts_once() -> None:
    head, x, y = candidate(), torch.randn(8, 5, requires_grad=True), torch.arange(8)
    checkpoint(head, x, y, use_reentrant=False).backward()
    assert head.target_counts.targets == 8


def test_only_training_counts() -> None:
    head, x, y = sampled(), torch.randn(8, 5), torch.arange(8)
    with torch.no_grad():
        head(x, y)
    head.eval()(x, y)
    assert head.target_counts.targets == 0
    head.train()
    head(x, torch.where(y < 3, -100, y))
    assert head.target_counts.counts[:8].tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    assert head.target_counts.examples == 5


@pytest.mark.parametrize("tail_sampler", ["counted", "log_uniform", torch.arange(200.0)])
def test_a_tail_follows_classes_that_come_and_go(tail_sampler: Any) -> None:
    torch.manual_seed(0)
    head = CandidateSoftmax(
        5,
        200,
        mined_examples=32,
        mined_candidates=2,
        tail=400,
        tail_sampler=tail_sampler,
        names=list(map(str, range(200))),
        meter_every=0,
    )
    optimizer = RowSGD(head.parameters(), lr=0.1)
    trained(head, 3, optimizer)
    head.add_classes(5, names=["a", "b", "c", "d", "e"], optimizer=optimizer)
    head.remove_classes([0, 7, 201])
    drawn = torch.cat([head.sampler.draw(400).classes for _ in range(60)]).unique()
    assert not torch.isin(drawn, head.removed).any()
    assert len(drawn) > 195
    assert drawn.max() == 204  # those that came, too
    before = head.sampler.log_probability(torch.tensor([3, 19, 150]))
    of_removed = head.sampler.log_probability(torch.tensor([0, 7, 201])).exp().sum()
    old = head.compact(optimizer=optimizer)
    now = head.sampler.log_probability(torch.searchsorted(old, torch.tensor([3, 19, 150])))
    if tail_sampler == "counted":
        torch.testing.assert_close(now, before)  # as likely as they were
    elif isinstance(tail_sampler, Tensor):
        torch.testing.assert_close(now, before - torch.log1p(-of_removed))
    trained_on = head(torch.randn(4, 5), torch.tensor([0, 1, 2, 200]))
    assert trained_on.isfinite()


def test_hostile_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="tail_sampler='zipf' is unknown; choose 'uniform', 'log_uniform', 'counted'"):
        CandidateSoftmax(3, 4, tail_sampler="zipf")
    for frequencies, message in (
        (torch.ones(5), r"tail_sampler has shape \(5,\); expected \(4,\)"),
        (torch.tensor([1.0, -1, 1, 1]), r"tail_sampler\[1\]=-1.0; frequencies are finite and at least 0"),
        (torch.tensor([1.0, 1, float("nan"), 1]), r"tail_sampler\[2\]=nan"),
        (torch.tensor([1.0, 1, float("inf"), 1]), r"tail_sampler\[2\]=inf"),
        (torch.full((4,), 1e308, dtype=torch.float64), "tail_sampler adds up to more than float64 holds"),
        (torch.zeros(4), "tail_sampler holds only zeros"),
    ):
        with pytest.raises(InputError, match=message):
            CandidateSoftmax(3, 4, tail_sampler=frequencies)
        with pytest.raises(InputError, match=message.replace("tail_sampler", "frequencies")):
            SampledSoftmax(3, 4, sampler="in_batch", frequencies=frequencies)
    with pytest.raises(InputTypeError, match="frequencies is a list; give a tensor"):
        SampledSoftmax(3, 4, sampler="in_batch", frequencies=[1, 2, 3, 4])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="frequencies belong to sampler='in_batch'"):
        SampledSoftmax(3, 4, frequencies=torch.ones(4))


def test_sampled_softmax_computes_the_same_step_again_in_backward() -> None:
    x, y, found = torch.randn(8, 5), torch.arange(8), []
    for recompute in (False, True):
        head = sampled()
        optimizer = RowSGD(head.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = checkpoint(head, x.requires_grad_(), y, use_reentrant=False) if recompute else head(x, y)
            loss.backward()
            optimizer.step()
        found.append((float(loss.detach()), head.weight.detach().clone(), head.sampler.generator.get_state()))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(*pair) for pair in zip(found[0][1:], found[1][1:], strict=True))


@pytest.mark.parametrize("make", [candidate, sampled])
def test_a_step_whose_classes_are_forgotten_is_not_computed_anew_in_silence(make: Any) -> None:
    head, x = make(), torch.randn(8, 5, requires_grad=True)
    batches = [torch.full((8,), number % 50) for number in range(MOST_KEPT + 1)]
    sum(checkpoint(head, x, y, use_reentrant=False) for y in batches[:-1]).backward()
    with pytest.raises(ConfigError, match="use_reentrant=False"):
        sum(checkpoint(head, x, y, use_reentrant=False) for y in batches).backward()
    with pytest.raises(ConfigError, match="use_reentrant=False"):
        checkpoint(make(), x, batches[0], use_reentrant=True).backward()
