"""Biases that start at a prior: given, counted in the first batches, or by default."""

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from head_cases import RANKED
from torch import Tensor, nn

from manyclass.errors import ConfigError, InputError, InputTypeError
from manyclass.torch import (
    CandidateSoftmax,
    FullSoftmax,
    Prior,
    RowAdagrad,
    RowSGD,
    SampledSoftmax,
    WTASoftmax,
    load_checkpoint,
    save_checkpoint,
)
from manyclass.torch.class_frequencies import smoothed

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.ApproximationWarning")  # classes are few
FEATURES, CLASSES = 16, 50
COUNTS = torch.arange(CLASSES) ** 2  # the first was never met
EVERYTHING: dict[str, Any] = {"config": RANKED, "meter_every": 0, "mined_candidates": CLASSES, "mined_examples": 32}
SOFTMAX_HEADS: list[Any] = [
    FullSoftmax,
    SampledSoftmax,
    partial(CandidateSoftmax, **EVERYTHING),
]
LOGISTIC_HEADS: list[Any] = [
    partial(FullSoftmax, output="logistic"),
    partial(CandidateSoftmax, output="logistic", **EVERYTHING),
]


def start_of(prior: Any, **settings: Any) -> Tensor:
    bias = FullSoftmax(FEATURES, CLASSES, prior=prior, **settings).bias
    assert bias is not None
    return bias.detach().double()


@pytest.mark.parametrize("make", [*LOGISTIC_HEADS, partial(WTASoftmax, output="logistic")])
def test_a_logistic_head_starts_with_about_one_class_right(make: Any) -> None:
    head = make(FEATURES, CLASSES)
    torch.testing.assert_close(head.bias.detach(), torch.full((CLASSES,), -math.log(CLASSES - 1)))
    assert head.bias.sigmoid().sum().item() == pytest.approx(1, rel=1e-4)
    assert make(FEATURES, CLASSES, bias=False).bias is None
    assert make(FEATURES, 1).bias.item() == 0  # the only class: nothing is known


@pytest.mark.parametrize("make", SOFTMAX_HEADS)
def test_a_softmax_head_starts_as_a_linear_layer_does(make: Any) -> None:
    torch.manual_seed(5)
    linear = nn.Linear(FEATURES, CLASSES)
    bound = linear.in_features**-0.5
    bias = make(FEATURES, CLASSES).bias.detach()
    assert bias.abs().max() <= bound
    assert bias.std() > bound / 3


@pytest.mark.parametrize("make", SOFTMAX_HEADS)
@pytest.mark.parametrize("scale", [1, 0.001])
def test_without_inputs_a_softmax_answers_with_the_frequencies(make: Any, scale: float) -> None:
    head = make(FEATURES, CLASSES, prior=COUNTS * scale).eval()
    found = head.log_prob(torch.zeros(1, FEATURES), torch.arange(CLASSES)[None])[0].exp()
    frequencies = COUNTS / COUNTS.sum()
    torch.testing.assert_close(found[1:], frequencies[1:], rtol=1e-3, atol=0)
    assert found[0].item() == pytest.approx(frequencies[1].item() / 2, rel=1e-3)  # never met: half of the rarest


@pytest.mark.parametrize("make", LOGISTIC_HEADS)
def test_without_inputs_a_logistic_head_answers_with_the_rates(make: Any) -> None:
    examples = int(COUNTS.max())
    for prior, expected in ((0.03, torch.full((CLASSES,), 0.03)), (Prior(COUNTS, examples), COUNTS / examples)):
        head = make(FEATURES, CLASSES, prior=prior).eval()
        found = head.log_prob(torch.zeros(1, FEATURES), torch.arange(CLASSES)[None])[0].exp()
        torch.testing.assert_close(found[1:-1], expected[1:-1])
        assert 0 < found[0] <= found[1]
        assert found[-1] > 0.99 * expected[-1]


def test_a_class_that_is_always_right_starts_below_certainty() -> None:
    start = start_of(Prior(torch.full((CLASSES,), 10), 10), output="logistic")
    torch.testing.assert_close(start.sigmoid(), torch.full((CLASSES,), 0.95, dtype=torch.float64))


def test_classes_never_met_weigh_no_more_together_than_the_rarest() -> None:
    counts = torch.zeros(1000, dtype=torch.float64)
    counts[:4] = torch.tensor([1, 1, 5, 1])
    assert smoothed(counts)[4:].sum().item() == pytest.approx(3)
    assert smoothed(torch.tensor([0, 2, 6.0])).tolist() == [1, 2, 6]
    assert smoothed(torch.tensor([3, 2, 6.0])).tolist() == [3, 2, 6]


def test_a_temperature_divides_the_bias_and_so_the_start_is_multiplied() -> None:
    head = CandidateSoftmax(FEATURES, CLASSES, prior=COUNTS, temperature=0.25, config=RANKED)
    torch.testing.assert_close(head.bias.detach().double() / 0.25, start_of(COUNTS))


@pytest.mark.parametrize("make", [*SOFTMAX_HEADS, *LOGISTIC_HEADS])
def test_reset_parameters_goes_back_to_the_start(make: Any) -> None:
    head = make(FEATURES, CLASSES, prior=Prior(COUNTS, int(COUNTS.max())))
    before = head.bias.detach().clone()
    with torch.no_grad():
        head.bias.add_(1)
    head.reset_parameters()
    assert torch.equal(head.bias, before)
    late = make(FEATURES, CLASSES, prior=Prior(COUNTS, int(COUNTS.max())), device="meta").to_empty(device="cpu")
    late.reset_parameters()
    assert torch.equal(late.bias, before)


def targets(step: int, examples: int = 20) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    return (torch.rand(examples, 3, generator=generator) ** 3 * CLASSES).long()


def inputs(step: int, examples: int = 20) -> Tensor:
    return torch.randn(examples, FEATURES, generator=torch.Generator().manual_seed(1000 + step))


@pytest.mark.parametrize("make", [*SOFTMAX_HEADS, *LOGISTIC_HEADS])
def test_a_counted_start_is_that_of_the_targets_so_far(make: Any) -> None:
    torch.manual_seed(0)
    head = make(FEATURES, CLASSES, prior="counted")
    begin, kept, examples = head.bias.detach().clone(), torch.empty(0, dtype=torch.int64), 0
    logistic = getattr(head, "output", "softmax") == "logistic"
    for step in range(12):
        y = targets(step)
        head(inputs(step), y)
        distinct = head._positives(y, y.shape[:1])
        kept, examples = torch.cat([kept, distinct[distinct >= 0]]), examples + len(y)
        power = 1 << (len(kept).bit_length() - 1)
        counts = torch.bincount(kept[:power], minlength=CLASSES)
        if logistic:
            expected = start_of(
                Prior(counts, max(int(counts.max()), round(power * examples / len(kept)))), output="logistic"
            )
            torch.testing.assert_close(head.bias.detach().double(), expected, atol=0.15, rtol=0)  # mean labels change
        else:
            torch.testing.assert_close(
                head.bias.detach().double(), start_of(counts) + begin.double(), atol=1e-4, rtol=0
            )


def test_what_was_learned_meanwhile_stays_and_optimizers_do_not_notice() -> None:
    plain, moved = (FullSoftmax(FEATURES, CLASSES, prior="counted") for _ in range(2))
    moved.load_state_dict(plain.state_dict())
    for step in range(10):
        if step == 3:
            with torch.no_grad():
                assert moved.bias is not None
                moved.bias.add_(torch.linspace(-1, 1, CLASSES))
        for head in (plain, moved):
            head(inputs(step), targets(step))
    assert plain.bias is not None
    assert moved.bias is not None
    torch.testing.assert_close(moved.bias, plain.bias + torch.linspace(-1, 1, CLASSES))


def test_a_counted_start_does_not_make_an_index_anew() -> None:
    head = CandidateSoftmax(FEATURES, CLASSES, output="logistic", prior="counted", **EVERYTHING)
    head(inputs(0), targets(0))
    built = head.index.built
    for step in range(1, 6):
        head(inputs(step), targets(step)).backward()
    assert head.index.built is built


def test_two_losses_before_one_backward_still_work() -> None:
    for make in (*SOFTMAX_HEADS, *LOGISTIC_HEADS):
        head = make(FEATURES, CLASSES, prior="counted")
        (head(inputs(0), targets(0)) + head(inputs(1, 60), targets(1, 60))).backward()


def test_counting_for_the_start_ends() -> None:
    head = FullSoftmax(FEATURES, CLASSES, prior="counted")
    many = torch.arange(70_000) % 3
    for _ in range(4):
        head(torch.zeros(len(many), FEATURES), many)
    assert head.bias is not None
    before = head.bias.detach().clone()
    for _ in range(4):
        head(torch.zeros(len(many), FEATURES), many + 10)
    assert torch.equal(head.bias, before)
    larger_than_what_is_kept = FullSoftmax(FEATURES, CLASSES, prior="counted")
    larger_than_what_is_kept(torch.zeros(200_000, FEATURES), torch.arange(200_000) % CLASSES)


def train(head: Any, optimizer: Any, steps: range) -> list[float]:
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = head(inputs(step), targets(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("make", [*SOFTMAX_HEADS, *LOGISTIC_HEADS])
def test_a_run_resumed_while_it_counts_goes_on_bit_by_bit(make: Any, tmp_path: Any) -> None:
    torch.manual_seed(0)
    head = make(FEATURES, CLASSES, prior="counted")
    optimizer = RowAdagrad(head.parameters(), lr=0.1)
    train(head, optimizer, range(3))
    save_checkpoint(tmp_path / "run", head, optimizer)
    again = make(FEATURES, CLASSES, prior="counted")
    again_optimizer = RowAdagrad(again.parameters(), lr=0.1)
    expected = train(head, optimizer, range(3, 9))
    load_checkpoint(tmp_path / "run", again, again_optimizer)
    assert train(again, again_optimizer, range(3, 9)) == expected
    assert torch.equal(again.bias, head.bias)
    twin = copy.deepcopy(head)
    assert train(twin, RowSGD(twin.parameters(), lr=0.1), range(9, 30)) == train(
        head, RowSGD(head.parameters(), lr=0.1), range(9, 30)
    )


def test_a_prior_takes_the_first_steps_out_of_learning() -> None:
    """Of many labels a few are right: the loss of the first step is that of knowing how often, not of one half."""
    classes, x = 5000, torch.zeros(32, FEATURES)
    y = (torch.rand(32, 8, generator=torch.Generator().manual_seed(0)) ** 4 * classes).long()
    rates = Prior(torch.bincount(y.flatten(), minlength=classes).clamp_max(32), 32)
    losses = {}
    for name, prior in (("half", 0.5), ("default", None), ("counts", rates), ("counted", "counted")):
        losses[name] = FullSoftmax(FEATURES, classes, output="logistic", prior=prior)(x, y).item()  # type: ignore[arg-type]
    assert losses["half"] > 3400
    assert losses["default"] < 80
    assert losses["counts"] < losses["default"]
    assert losses["counted"] < losses["default"]


def test_new_classes_start_as_if_never_met() -> None:
    settings: dict[str, Any] = {"config": RANKED, "meter_every": 0}
    for head, expected in (
        (CandidateSoftmax(FEATURES, CLASSES, **settings), 0.0),
        (CandidateSoftmax(FEATURES, CLASSES, output="logistic", **settings), -math.log(CLASSES - 1)),
        (CandidateSoftmax(FEATURES, CLASSES, output="logistic", prior=0.1, **settings), math.log(0.1 / 0.9)),
        (CandidateSoftmax(FEATURES, CLASSES, prior=COUNTS, **settings), start_of(COUNTS).min().item()),
    ):
        new = head.add_classes(2)
        assert head.bias[list(new)].tolist() == pytest.approx([expected] * 2, rel=1e-5)
        head.remove_classes([0, 3])
        head.compact()
        head.reset_parameters()
        assert head.bias[-2:].tolist() == pytest.approx([expected] * 2, rel=1e-5) or head.output == "softmax"


def test_a_layer_brings_its_own_bias() -> None:
    linear = nn.Linear(FEATURES, CLASSES)
    before = linear.bias.detach().clone()
    head = FullSoftmax.from_linear(linear, output="logistic")
    assert head.bias is linear.bias
    assert torch.equal(linear.bias, before)
    for prior in ("counted", COUNTS, 0.5):
        with pytest.raises(InputError, match="prior is where a bias starts, and the layer brings its own"):
            FullSoftmax.from_linear(linear, prior=prior)


def test_processes_that_count_apart_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    head = FullSoftmax(FEATURES, CLASSES, prior="counted")
    with pytest.raises(ConfigError, match=r"prior='counted' counts in one process; .*Prior\(counts, examples\)"):
        head(inputs(0), targets(0))
    assert head.target_counts is not None
    assert head.target_counts.targets == 0


@pytest.mark.parametrize("output", ["softmax", "logistic"])
def test_hostile_priors_are_refused(output: Any) -> None:
    def refused(prior: Any, error: type[Exception], message: str, **settings: Any) -> None:
        with pytest.raises(error, match=message):
            FullSoftmax(FEATURES, 4, output=output, prior=prior, **settings)

    refused("zipf", ConfigError, "prior='zipf' is unknown; choose 'counted'")
    refused([1, 2, 3, 4], InputTypeError, r"prior is a list; give a number, Prior\(counts, examples\) or 'counted'")
    refused(True, InputTypeError, "prior is a bool")
    refused("counted", ConfigError, "bias=False leaves nothing to start there", bias=False)
    refused(Prior(torch.ones(3), 5), InputError, r"prior.counts has shape \(3,\); expected \(4,\)")
    refused(Prior([1, 2, 3, 4], 9), InputTypeError, "prior.counts is a list")  # type: ignore[arg-type]
    refused(Prior(torch.zeros(4), 5), InputError, "prior.counts holds only zeros")
    refused(Prior(torch.tensor([1, 2, -3, 4]), 5), InputError, r"prior.counts\[2\]=-3.0; .*at least 0")
    refused(Prior(torch.tensor([1, 2, math.nan, 4]), 5), InputError, r"prior.counts\[2\]=nan")
    refused(Prior(torch.tensor([1, 2, 6, 4]), 5), InputError, r"prior.counts\[2\]=6 is more than prior.examples=5")
    refused(Prior(torch.ones(4), 0), InputError, "prior.examples=0 is below 1")
    if output == "logistic":
        refused(torch.ones(4), ConfigError, r"a logistic output asks of how many: Prior\(counts, examples\)")
        for number in (0, 1, 1.5, -0.1, math.nan):
            refused(number, InputError, "is no probability between 0 and 1")
    else:
        refused(0.5, ConfigError, "prior=0.5 for every class says nothing to a softmax")
        refused(torch.ones(5), InputError, r"prior has shape \(5,\)")
        refused(torch.ones(4) > 0, InputTypeError, r"prior has dtype torch.bool")


def test_the_loss_is_torchs_also_with_a_prior() -> None:
    for make in SOFTMAX_HEADS:
        head = make(FEATURES, CLASSES, prior=COUNTS)
        x, y = inputs(0), targets(0)[:, 0]
        expected = functional.cross_entropy(functional.linear(x, head.weight, head.bias), y)
        torch.testing.assert_close(head(x, y), expected)


@pytest.mark.parametrize("output", ["softmax", "logistic"])
def test_classes_that_come_after_counting_start_as_those_that_were_never_met(output: Any) -> None:
    head = CandidateSoftmax(FEATURES, 3000, output=output, prior="counted")
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        head(torch.randn(64, FEATURES, generator=generator), torch.randint(100, (64,), generator=generator)).backward()
    head.add_classes(5)
    assert head.bias is not None
    met, unmet, new = head.bias[:100].min(), head.bias[100:3000].mean(), head.bias[3000:]
    assert torch.all(new < met - 1)
    torch.testing.assert_close(new.mean(), unmet, atol=1.0, rtol=0)


def test_a_class_that_comes_where_all_were_met_counts_half_of_the_rarest() -> None:
    counts = torch.tensor([10.0, 4.0, 2.0])
    head = CandidateSoftmax(FEATURES, 3, output="logistic", prior=Prior(counts, 100))
    head.add_classes(2)
    assert head.bias is not None
    expected = torch.tensor([0.1, 0.04, 0.02, 0.01, 0.01])
    torch.testing.assert_close(head.bias.detach().sigmoid(), expected)


def test_nothing_met_counts_all_alike() -> None:
    assert smoothed(torch.zeros(4).double()).tolist() == [1.0] * 4


def test_a_bias_that_is_frozen_does_not_follow() -> None:
    head = CandidateSoftmax(FEATURES, CLASSES, prior="counted")
    head.requires_grad_(False)
    before = head.bias.detach().clone()
    for step in range(3):
        head(inputs(step), targets(step))
    assert torch.equal(head.bias, before)
