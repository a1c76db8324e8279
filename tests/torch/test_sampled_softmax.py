"""Sampled softmax: right probabilities, an unbiased normaliser, positives counted once, touched rows only."""

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from manyclass import ConfigError, InputError, InputTypeError
from manyclass.torch import all_classes as exact
from manyclass.torch.class_sampler import ClassSampler, Drawn, already_there
from manyclass.torch.class_targets import even_targets
from manyclass.torch.row_optimizers import RowSGD
from manyclass.torch.row_products import ClassLayer
from manyclass.torch.sampled_softmax import SampledSoftmax
from manyclass.torch.shared_loss import shared_losses
from manyclass.torch.step_classes import sampled_classes

CLASSES = 40
FREQUENCIES = (torch.arange(CLASSES) % 7 + 1) ** 2
SAMPLERS: dict[str, str | Tensor] = {
    "uniform": "uniform",
    "log_uniform": "log_uniform",
    "frequencies": FREQUENCIES,
    "float frequencies": FREQUENCIES**0.75,
}
SEVERAL = torch.tensor([[4, -1, -1], [0, 2, 39], [-1, 5, 5], [1, 6, -1]])


def case(dtype: torch.dtype = torch.float64, **settings: Any) -> tuple[SampledSoftmax, Tensor]:
    torch.manual_seed(0)
    return SampledSoftmax(5, CLASSES, dtype=dtype, **settings), torch.randn(4, 5, dtype=dtype)


def normalizer(head: SampledSoftmax, x: Tensor, positives: Tensor, drawn: Drawn) -> Tensor:
    """Return the normaliser that a step with these draws uses: exp(loss + mean logit of the positives)."""
    layer = ClassLayer(head.weight, head.bias)
    losses = shared_losses(layer, x, sampled_classes(positives, drawn), even_targets(positives)).losses
    logits = exact.chosen_logits(x, head.weight, head.bias, positives).where(positives >= 0, 0)
    return (losses + logits.sum(1) / (positives >= 0).sum(1)).exp()


def probabilities(name: str) -> Tensor:
    """Return the definition of each distribution."""
    if name == "uniform":
        return torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64)
    if name == "log_uniform":
        return torch.tensor(
            [(math.log(c + 2) - math.log(c + 1)) / math.log(CLASSES + 1) for c in range(CLASSES)]
        ).double()
    weights = SAMPLERS[name]
    assert isinstance(weights, Tensor)
    return weights.double() / weights.double().sum()


@pytest.mark.parametrize("name", SAMPLERS)
def test_classes_are_drawn_with_the_stated_probabilities(name: str) -> None:
    sampler, expected = ClassSampler(CLASSES, SAMPLERS[name], seed=1), probabilities(name)
    stated = sampler.log_probability(torch.arange(CLASSES)).exp()
    torch.testing.assert_close(stated, expected, rtol=1e-6, atol=0)
    assert stated.sum().item() == pytest.approx(1)
    draws, times = 200_000, torch.zeros(CLASSES, dtype=torch.float64)
    drawn = sampler.draw(draws)
    # log_weights = log(times drawn / times expected), so that the number of draws can be read from them.
    times[drawn.classes] = (drawn.log_weights + math.log(draws) + expected[drawn.classes].log()).exp()
    assert times.sum().item() == pytest.approx(draws)
    # 40 classes, five standard deviations each: false alarm below 1 in 40,000 (the seed is fixed anyway).
    assert ((times - draws * expected).abs() <= 5 * (draws * expected * (1 - expected)).sqrt()).all()


def test_a_class_of_frequency_zero_is_never_drawn() -> None:
    frequencies = torch.tensor([0.0, 3, 0, 0, 1, 0])
    sampler = ClassSampler(6, frequencies)
    drawn = sampler.draw(1000)
    assert drawn.classes.tolist() == [1, 4]
    assert drawn.log_weights.isfinite().all()


def test_draws_are_distinct_ascending_and_reproducible() -> None:
    first, second = ClassSampler(1000, "log_uniform", seed=5), ClassSampler(1000, "log_uniform", seed=5)
    for _ in range(3):
        left, right = first.draw(300), second.draw(300)
        assert (left.classes.diff() > 0).all()
        assert torch.equal(left.classes, right.classes)
        assert torch.equal(left.log_weights, right.log_weights)
    assert not torch.equal(first.draw(300).classes, left.classes)
    assert not torch.equal(ClassSampler(1000, seed=6).draw(300).classes, ClassSampler(1000, seed=7).draw(300).classes)


def test_one_class_can_be_drawn() -> None:
    for sampler in ("uniform", "log_uniform", torch.tensor([2])):
        drawn = ClassSampler(1, sampler).draw(9)
        assert drawn.classes.tolist() == [0]
        assert drawn.log_weights.item() == pytest.approx(0)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("target", [SEVERAL[:, :1].clamp(min=0), SEVERAL])
def test_the_normaliser_is_estimated_without_bias(name: str, target: Tensor) -> None:
    head, x = case(samples=300, sampler=SAMPLERS[name], seed=3)
    positives = head._positives(target, x.shape[:-1])
    exact_sum = exact.log_normalizer(x, head.weight, head.bias).exp().detach()
    estimates = []
    with torch.no_grad():
        for _ in range(300):
            estimates.append(normalizer(head, x, positives, head.sampler.draw(300)))
    found = torch.stack(estimates)
    error = found.std(0) / len(found) ** 0.5
    # Four examples, four standard errors each: false alarm about 1 in 4,000 (the seed is fixed anyway).
    assert ((found.mean(0) - exact_sum).abs() <= 4 * error).all()
    # The test can tell: one class missing, or the positive counted twice, would be far outside.
    assert (4 * error < 0.03 * exact_sum).all()


def test_a_positive_that_is_drawn_is_counted_once() -> None:
    head, x = case(bias=False)
    # The whole distribution drawn in exactly the expected numbers: the estimate has no choice but to be exact.
    everything = Drawn(torch.arange(CLASSES), torch.zeros(CLASSES, dtype=torch.float64))
    for target in (torch.tensor([4, 0, 39, 6]), SEVERAL):
        positives = head._positives(target, x.shape[:-1])
        total = normalizer(head, x, positives, everything)
        exact_sum = exact.log_normalizer(x, head.weight, None).exp()
        torch.testing.assert_close(total, exact_sum)
        # What it would be if they counted again: off by the positives' own share.
        own = exact.chosen_logits(x, head.weight, None, positives).exp().sum(1)
        assert (total + own > exact_sum * 1.01).all()


def test_hits_are_found_wherever_they_are() -> None:
    drawn = torch.tensor([2, 5, 9])
    positives = torch.tensor([[9, 2, -1], [3, 5, -1], [0, 10, -1], [1, 2, -1], [-1, -1, 5]])
    expected = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0]]).bool()
    assert torch.equal(already_there(positives, drawn), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_loss_and_gradients_equal_a_dense_reference_and_touch_few_rows(dtype: torch.dtype, bias: bool) -> None:
    head, x = case(dtype, samples=12, bias=bias, seed=9)
    drawn = ClassSampler(CLASSES, "uniform", seed=9).draw(12)
    assert (drawn.log_weights > math.log(CLASSES / 12) + 0.1).any()  # one of them was drawn more than once
    target = SEVERAL.clone()
    target[1, 1] = drawn.classes[0]  # an accidental hit
    x.requires_grad_()
    loss = head(x, target)
    loss.backward()
    # Dense, in float64: the sum over the positives and the weighted draws, one by one.
    weight = head.weight.detach().double().requires_grad_()
    offsets = head.bias.detach().double().requires_grad_() if head.bias is not None else None
    inputs = x.detach().double().requires_grad_()
    logits = functional.linear(inputs, weight, offsets)
    losses = []
    for example, ids in enumerate(target.tolist()):
        own = sorted({i for i in ids if i >= 0})
        terms = [logits[example, i] for i in own]
        terms += [
            logits[example, i] + w
            for i, w in zip(drawn.classes.tolist(), drawn.log_weights.tolist(), strict=True)
            if i not in own
        ]
        losses.append(torch.stack(terms).logsumexp(0) - logits[example, own].mean())
    expected = torch.stack(losses).mean()
    expected.backward()
    torch.testing.assert_close(loss, expected.to(dtype))
    touched = sorted({*drawn.classes.tolist(), *(i for i in target.flatten().tolist() if i >= 0)})
    pairs = [(x.grad, inputs.grad), (head.weight.grad, weight.grad)]
    if offsets is not None:
        assert head.bias is not None
        pairs.append((head.bias.grad, offsets.grad))
    for found, reference in pairs:
        assert found is not None
        assert reference is not None
        if found is not x.grad:
            assert found._indices()[0].tolist() == touched
            found = found.to_dense()
        torch.testing.assert_close(found, reference.to(dtype))


def test_gradients_are_those_of_the_loss() -> None:
    head, x = case(samples=20)
    start = head.get_extra_state()

    def of(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        head.set_extra_state(start)  # the same draws each time
        with torch.no_grad():
            head.weight.copy_(weight), head.bias.copy_(bias)  # type: ignore[union-attr]
        head.zero_grad()
        loss = head(x, SEVERAL)
        found = torch.autograd.grad(loss, (x, *head.parameters()))
        return _WithGradients.apply(loss.detach(), found, x, weight, bias)

    weight, bias = (p.detach().clone().requires_grad_() for p in head.parameters())
    assert torch.autograd.gradcheck(of, (x.requires_grad_(), weight, bias))


class _WithGradients(torch.autograd.Function):
    """The loss with the gradients that were found for it, the sparse ones made dense for gradcheck."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, found: tuple[Tensor, ...], *inputs: Tensor) -> Tensor:
        ctx.found = [g.to_dense() if g.is_sparse else g for g in found]
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *(gradients[0] * g for g in ctx.found)


def test_rows_updated_inside_backward_end_where_an_optimizer_takes_them() -> None:
    make = partial(RowSGD, lr=0.1, momentum=0.9)
    plain, x = case(torch.float32, samples=9)
    fused, _ = case(torch.float32, samples=9, row_update="fused", row_optimizer=make)
    optimizer = make(plain.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        plain(x, SEVERAL).backward()
        optimizer.step()
        fused(x, SEVERAL).backward()
        assert fused.weight.grad is None
    for name, value in plain.state_dict().items():
        assert torch.equal(fused.state_dict()[name], value)


def test_with_many_draws_the_loss_approaches_that_of_full_softmax() -> None:
    head, x = case(samples=200_000)
    torch.testing.assert_close(head(x, SEVERAL), head.eval()(x, SEVERAL), rtol=0.01, atol=0)


def test_in_eval_the_loss_is_exact_and_nothing_is_drawn() -> None:
    head, x = case(samples=3)
    head.eval()
    state = head.get_extra_state()
    y = torch.tensor([1, 2, 3, 4])
    torch.testing.assert_close(head(x, y), functional.cross_entropy(functional.linear(x, head.weight, head.bias), y))
    assert torch.equal(head.get_extra_state(), state)


def test_predictions_are_exact() -> None:
    head, x = case(samples=3)
    expected = functional.linear(x, head.weight, head.bias).log_softmax(1)
    torch.testing.assert_close(head.log_prob(x), expected)
    values, ids = expected.sort(dim=1, descending=True)
    assert torch.equal(head.topk(x, 6).classes, ids[:, :6])
    torch.testing.assert_close(head.topk(x, 6).log_probs, values[:, :6])
    assert torch.equal(head.predict(x), ids[:, 0])


def test_the_state_dict_and_a_copy_go_on_with_the_same_draws() -> None:
    head, x = case(samples=10)
    head(x, SEVERAL)
    other = SampledSoftmax(5, CLASSES, samples=10, seed=77, dtype=torch.float64)
    other.load_state_dict(head.state_dict())
    twin = copy.deepcopy(head)
    for _ in range(3):
        loss = head(x, SEVERAL)
        assert torch.equal(loss, other(x, SEVERAL))
        assert torch.equal(loss, twin(x, SEVERAL))
    assert not torch.equal(loss, head(x, SEVERAL))


def test_it_shares_its_weights_with_linear_layers() -> None:
    linear = nn.Linear(4, 9)
    head = SampledSoftmax.from_linear(linear, samples=2)
    assert {"weight", "bias"} <= head.state_dict().keys()
    assert head.weight is linear.weight
    assert head.to_linear().bias is linear.bias
    SampledSoftmax(4, 9).load_state_dict(linear.state_dict())
    with pytest.raises(RuntimeError, match="Missing"):
        SampledSoftmax(4, 9).load_state_dict({"weight": linear.weight})


def test_autocast_changes_nothing() -> None:
    head, x = case(torch.float32)
    twin = copy.deepcopy(head)
    plain = head(x, SEVERAL)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(twin(x, SEVERAL), plain)


def test_impossible_samplers_are_refused() -> None:
    with pytest.raises(ConfigError, match="sampler='zipf' is unknown; choose 'uniform', 'log_uniform'"):
        SampledSoftmax(3, 4, sampler="zipf")
    with pytest.raises(InputError, match=r"samples=0 is below 1"):
        SampledSoftmax(3, 4, samples=0)
    for frequencies, message in (
        (torch.ones(5), r"sampler has shape \(5,\); expected \(4,\)"),
        (torch.tensor([1.0, -1, 1, 1]), r"sampler\[1\]=-1.0; frequencies are finite and at least 0"),
        (torch.tensor([1.0, 1, math.nan, 1]), r"sampler\[2\]=nan"),
        (torch.zeros(4), "sampler holds only zeros"),
    ):
        with pytest.raises(InputError, match=message):
            SampledSoftmax(3, 4, sampler=frequencies)
    with pytest.raises(InputTypeError, match=r"sampler has dtype torch\.bool"):
        SampledSoftmax(3, 4, sampler=torch.ones(4) > 0)
