"""Loss and gradients of the head against a dense float64 reference, its tail, and its predictions."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from head_cases import (
    CLASSES,
    EXAMPLES,
    FEATURES,
    POSITIVES,
    chosen_classes,
    dense,
    padded,
    random_tensor,
    reference_logits,
    reference_losses,
    small_head,
)
from torch import Tensor, nn

from manyclass import ConfigError, HashConfig, InputError, InputTypeError
from manyclass.torch import CandidateSoftmax
from manyclass.torch.candidate_softmax import MEAN_RATE

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.approximation_meter.ApproximationWarning")

SINGLE = [[some[0]] for some in POSITIVES]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "temperature": {"temperature": 0.7},
    "cosine": {"normalize": True, "temperature": 0.3},
    "centred": {"subtract_mean": True},
    "centred cosine": {"subtract_mean": True, "normalize": True},
}
SETS: dict[str, dict[str, Any]] = {
    "all": {"candidates": CLASSES},
    "more than all, tail": {"candidates": 2 * CLASSES, "tail": 9},
    "few": {"candidates": 4, "tail": 0},
    "few, tail": {"candidates": 4, "tail": 9},
    "few, tail alone": {"candidates": 4, "tail": 9, "tail_sampler": "uniform"},
    "one, long tail": {"candidates": 1, "tail": 30},
}
CASES = [
    case
    for case in itertools.product(
        OPTIONS, SETS, [True, False], ["softmax", "logistic"], [True, False], [SINGLE, POSITIVES]
    )
    if case[0] == "plain" or (case[4] and case[1].startswith("few"))  # without bias, and all classes: plain logits only
]


def names_of(case: tuple[Any, ...]) -> str:
    option, chosen, shared, output, bias, positives = case
    parts = [option, chosen, "shared" if shared else "own", output, "bias" if bias else "no bias"]
    return ", ".join([*parts, "single" if positives is SINGLE else "several"])


@pytest.mark.parametrize("case", CASES, ids=names_of)
@pytest.mark.parametrize("double", [False, True], ids=["native", "float64"])
def test_loss_and_gradients_match_the_dense_reference(case: tuple[Any, ...], double: bool) -> None:
    option, chosen, shared, output, bias, positives = case
    settings: dict[str, Any] = {"reduction": "none", "meter_every": 0, **OPTIONS[option], **SETS[chosen]}
    head = small_head(shared=shared, output=output, bias=bias, **settings)
    head = head.double() if double else head
    x = random_tensor(EXAMPLES, FEATURES).to(head.weight.dtype).requires_grad_()
    upstream = random_tensor(EXAMPLES, seed=5).double()
    mean = head.input_mean
    if mean is not None:  # the batch counts in the mean it is centred with
        before = mean.clone()
        mean.lerp_(x.detach().mean(0), MEAN_RATE)
    stands_for = chosen_classes(head, x, positives)
    ours, weight, our_bias = dense(x), dense(head.weight), dense(head.bias)
    expected = reference_losses(head, reference_logits(head, ours, weight, our_bias), positives, stands_for)
    expected.backward(upstream)
    if mean is not None:
        mean.copy_(before)

    losses = head(x, padded(positives) if positives is POSITIVES else torch.tensor(positives)[:, 0])
    losses.backward(upstream.to(losses.dtype))
    close = {"rtol": 1e-9, "atol": 1e-9} if double else {"rtol": 1e-4, "atol": 3e-5}
    torch.testing.assert_close(losses.double(), expected, **close)
    torch.testing.assert_close(x.grad.double(), ours.grad, **close)
    touched = (stands_for > 0).any(0).nonzero()[:, 0].tolist()
    for parameter, reference in ((head.weight, weight), (head.bias, our_bias)):
        if parameter is not None:
            assert parameter.grad.is_sparse
            assert parameter.grad._indices()[0].tolist() == touched
            torch.testing.assert_close(parameter.grad.to_dense().double(), reference.grad, **close)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("config", [None, HashConfig.flat_sketch(32)], ids=["default", "ranked"])
def test_all_candidates_make_full_softmax(option: str, shared: bool, config: HashConfig | None) -> None:
    head = small_head(shared=shared, candidates=CLASSES, config=config, **OPTIONS[option]).eval()
    x, target = random_tensor(EXAMPLES, FEATURES), torch.tensor(SINGLE)[:, 0]
    logits = reference_logits(head, x.double(), head.weight.double(), head.bias.double())
    torch.testing.assert_close(head(x, target).double(), F.cross_entropy(logits, target), rtol=1e-5, atol=1e-5)
    with head.exact():
        torch.testing.assert_close(head(x, target).double(), F.cross_entropy(logits, target), rtol=1e-5, atol=1e-5)
    several = torch.zeros(EXAMPLES, CLASSES, dtype=torch.float64)
    for share, some in zip(several, POSITIVES, strict=True):
        share[some] = 1 / len(set(some))
    expected = F.cross_entropy(logits, several)
    torch.testing.assert_close(head(x, padded(POSITIVES)).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("output", ["softmax", "logistic"])
def test_gradcheck_of_the_whole_head(option: str, shared: bool, output: str) -> None:
    head = small_head(shared=shared, candidates=4, tail=9, output=output, **OPTIONS[option]).double().eval()
    x = random_tensor(EXAMPLES, FEATURES).double().requires_grad_()
    start = head.sampler.generator.get_state()
    head(x, padded(POSITIVES))  # builds the tables

    def run(x: Tensor) -> Tensor:
        head.sampler.generator.set_state(start)
        loss: Tensor = head(x, padded(POSITIVES))
        return loss

    assert torch.autograd.gradcheck(run, (x,))


def test_a_shared_set_holds_the_best_of_few_classes_too() -> None:
    head = small_head(config=None, candidates=1, tail=0, reduction="none").eval()
    x, target = random_tensor(2, FEATURES), torch.tensor([0, 0])
    logits = reference_logits(head, x.double(), head.weight.double(), head.bias.double())
    chosen = [0, *logits.argmax(1).tolist()]
    expected = logits[:, chosen].logsumexp(1) - logits[:, 0]
    torch.testing.assert_close(head(x, target).double(), expected, rtol=1e-5, atol=1e-5)


# The tail


def mean_and_error(values: Tensor) -> tuple[float, float]:
    return float(values.mean()), float(values.std() / len(values) ** 0.5)


@pytest.mark.parametrize("settings", [{"shared": True}, {"shared": False}, {"targets_for_all": False}], ids=str)
def test_the_estimated_normaliser_is_unbiased(settings: dict[str, Any]) -> None:
    head = small_head(**settings, candidates=3, tail=8, reduction="none").double()
    x, target = random_tensor(2, FEATURES).double(), torch.tensor([3, 40])
    logits = reference_logits(head, x, head.weight, head.bias)
    of_positives = logits.gather(1, target[:, None])[:, 0]
    with torch.no_grad():
        estimates = torch.stack([(head(x, target) + of_positives).exp() for _ in range(600)])
    for estimate, exact in zip(estimates.T, logits.exp().sum(1), strict=True):
        mean, error = mean_and_error(estimate)
        assert error < 0.03 * exact  # or the next line says little
        assert abs(mean - exact) < 4.5 * error  # normal error: by chance once in 150,000 seeds


def test_targets_that_are_not_for_all_move_by_their_own_examples_alone() -> None:
    """With no hard and no random class there is nothing to be mistaken for but the example's other targets."""
    settings: dict[str, Any] = {"mined_examples": 0, "tail": 0, "reduction": "none"}
    head = small_head(**settings, targets_for_all=False)
    x, target = random_tensor(2, FEATURES), torch.tensor([[3, 7], [40, -1]])
    losses = head(x, target)
    logits = F.linear(x, head.weight, head.bias)
    expected = logits[0, [3, 7]].logsumexp(0) - logits[0, [3, 7]].mean()
    torch.testing.assert_close(losses, torch.stack([expected, torch.zeros(())]), rtol=1e-5, atol=1e-5)
    assert head.targets_for_all != small_head(**settings).targets_for_all
    assert (small_head(**settings)(x, target) > losses).all()


def test_evaluation_draws_the_same_tail_each_time_and_leaves_training_alone() -> None:
    head = small_head(candidates=3, tail=8).eval()
    x, target = random_tensor(2, FEATURES), torch.tensor([3, 40])
    before = head.sampler.generator.get_state()
    assert head(x, target) == head(x, target)
    first, again = (head.topk(x, 2, normalizer="estimated").log_probs for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(head.sampler.generator.get_state(), before)


def test_the_tail_counts_where_tables_find_fewer_than_they_may() -> None:
    """With nearly as many candidates as classes, tables miss those that share no bucket."""
    config = HashConfig.paper(codes=6, bands=2)
    settings: dict[str, Any] = {"shared": False, "candidates": CLASSES - 1, "reduction": "none", "config": config}
    x, target = random_tensor(2, FEATURES), torch.tensor([3, 40])
    head = small_head(tail=20_000, **settings).eval()
    assert (head.shortlist(x, CLASSES - 1) < 0).any()
    exact = F.cross_entropy(F.linear(x, head.weight, head.bias), target, reduction="none")
    torch.testing.assert_close(head(x, target), exact, rtol=0, atol=0.05)


@pytest.mark.parametrize("shared", [True, False])
def test_the_bias_of_the_loss_shrinks_as_one_over_the_samples(shared: bool) -> None:
    settings: dict[str, Any] = {"shared": shared, "candidates": 1, "reduction": "none"}
    x, target = random_tensor(1, FEATURES), torch.tensor([3])
    bias = []
    for samples in (8, 32, 128):
        head = small_head(tail=samples, **settings).double()
        with torch.no_grad(), head.exact():
            exact = head(x, target)
        with torch.no_grad():
            logs = torch.stack([head(x, target) for _ in range(400)]) - exact
        # estimate/exact - 1 is zero on average, as tested above: without it the same mean has far less noise.
        mean, error = mean_and_error(logs - logs.expm1())
        assert error < -mean / 6  # the log of an unbiased estimate is too low
        bias.append(mean)
    for few, more in itertools.pairwise(bias):
        assert 2 < few / more < 8  # 4 times the samples


# Predictions


@pytest.mark.parametrize("option", OPTIONS)
def test_topk_orders_by_logit_and_normalises_as_told(option: str) -> None:
    head = small_head(candidates=6, tail=0, **OPTIONS[option]).eval()
    x = random_tensor(EXAMPLES, FEATURES)
    logits = reference_logits(head, x.double(), head.weight.double(), head.bias.double())
    found = head.shortlist(head.prepared(x), 6)
    over_found = logits.gather(1, found).logsumexp(1, keepdim=True)
    expected, order = logits.gather(1, found).sort(1, descending=True)
    top = head.topk(x, 4)
    assert torch.equal(top.classes, found.gather(1, order)[:, :4])
    torch.testing.assert_close(top.log_probs.double(), (expected - over_found)[:, :4], rtol=1e-4, atol=1e-4)
    exact = head.topk(x, 4, normalizer="exact")
    assert torch.equal(exact.classes, top.classes)
    expected = expected - logits.logsumexp(1, keepdim=True)
    torch.testing.assert_close(exact.log_probs.double(), expected[:, :4], rtol=1e-4, atol=1e-4)
    assert torch.equal(head.predict(x), top.classes[:, 0])


def test_topk_with_an_estimated_normaliser_is_near_the_exact_one() -> None:
    head = small_head(candidates=6, tail=40_000).eval()
    x = random_tensor(EXAMPLES, FEATURES)
    estimated, exact = (head.topk(x, 3, normalizer=how) for how in ("estimated", "exact"))
    assert torch.equal(estimated.classes, exact.classes)
    torch.testing.assert_close(estimated.log_probs, exact.log_probs, rtol=0, atol=0.05)
    assert not torch.allclose(head.topk(x, 3).log_probs, exact.log_probs, atol=0.05)
    without_tail = small_head(candidates=6, tail=0).eval()
    torch.testing.assert_close(
        without_tail.topk(x, 3, normalizer="estimated").log_probs, exact.log_probs, rtol=0, atol=0.5
    )


def test_topk_of_equal_logits_gives_the_lowest_ids() -> None:
    head = small_head(config=None)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.zero_()
    x = random_tensor(3, FEATURES)
    assert head.topk(x, 5).classes.tolist() == [[0, 1, 2, 3, 4]] * 3
    with head.exact():
        assert head.topk(x, 5).classes.tolist() == [[0, 1, 2, 3, 4]] * 3


def test_more_candidates_for_one_search() -> None:
    head = small_head(candidates=2).eval()
    x = random_tensor(EXAMPLES, FEATURES)
    with head.exact():
        exact = head.topk(x, 10)
    found = head.topk(x, 10, candidates=10 * CLASSES)
    assert torch.equal(found.classes, exact.classes)
    torch.testing.assert_close(found.log_probs, exact.log_probs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.logits, exact.logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("output", ["softmax", "logistic"])
def test_nothing_found_is_no_class_and_minus_infinity(output: str) -> None:
    config = HashConfig.paper(codes=30, bands=10)
    head = small_head(candidates=5, config=config, output=output).eval()
    with torch.no_grad():
        head.weight.zero_()  # constant rows are in no table
    x = random_tensor(2, FEATURES)
    top = head.topk(x, 3)
    assert (top.classes == -1).all()
    assert top.log_probs.isneginf().all()
    assert head.log_prob(x).isneginf().all()


@pytest.mark.parametrize("output", ["softmax", "logistic"])
def test_log_prob_of_all_classes(output: str) -> None:
    head = small_head(candidates=6, output=output).eval()
    x = random_tensor(EXAMPLES, FEATURES)
    found = head.log_prob(x)
    assert found.shape == (EXAMPLES, CLASSES)
    assert (found.isfinite().sum(1) == 6).all()
    top = head.topk(x, 6)
    torch.testing.assert_close(found.gather(1, top.classes), top.log_probs, rtol=1e-5, atol=1e-5)
    if output == "softmax":
        torch.testing.assert_close(found.exp().sum(1), torch.ones(EXAMPLES), rtol=1e-5, atol=1e-5)
    with head.exact():
        logits = F.linear(x, head.weight, head.bias)
        expected = F.logsigmoid(logits) if output == "logistic" else logits.log_softmax(1)
        torch.testing.assert_close(head.log_prob(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("normalizer", ["candidates", "exact"])
def test_log_prob_of_given_classes_counts_repeated_ones_once(normalizer: Any) -> None:
    head = small_head(candidates=6).eval()
    x = random_tensor(EXAMPLES, FEATURES)
    found = head.shortlist(x, 6)
    asked = torch.stack([found[:, 2], torch.full((EXAMPLES,), 1), found[:, 2], torch.full((EXAMPLES,), 1)], 1)
    logits = F.linear(x, head.weight, head.bias).double()
    ours = head.log_prob(x, asked, normalizer=normalizer).double()
    for e in range(EXAMPLES):
        over = sorted({*found[e].tolist(), 1}) if normalizer == "candidates" else list(range(CLASSES))
        expected = logits[e, asked[e]] - logits[e, over].logsumexp(0)
        torch.testing.assert_close(ours[e], expected, rtol=1e-5, atol=1e-5)
    with head.exact():
        expected = logits.log_softmax(1).gather(1, asked)
        torch.testing.assert_close(head.log_prob(x, asked).double(), expected, rtol=1e-5, atol=1e-5)


# From and to nn.Linear


def test_from_linear_shares_its_parameters() -> None:
    linear = nn.Linear(FEATURES, CLASSES)
    head = CandidateSoftmax.from_linear(linear, candidates=9, temperature=2.0)
    assert head.weight is linear.weight
    assert head.bias is linear.bias
    assert [id(p) for p in head.parameters()] == [id(p) for p in linear.parameters()]
    assert CandidateSoftmax.from_linear(nn.Linear(FEATURES, 4, bias=False)).bias is None
    x = random_tensor(EXAMPLES, FEATURES)
    assert torch.equal(head.predict(x), linear(x).argmax(1))


def test_from_linear_wants_a_linear() -> None:
    with pytest.raises(InputTypeError, match=r"Conv1d.*nn\.Linear"):
        CandidateSoftmax.from_linear(nn.Conv1d(3, 4, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("option", ["plain", "temperature", "centred"])
def test_to_linear_has_the_same_logits(option: str, bias: bool) -> None:
    head = small_head(bias=bias, **OPTIONS[option])
    linear = head.to_linear()
    x = random_tensor(EXAMPLES, FEATURES)
    expected = reference_logits(head, x.double(), head.weight.double(), dense(head.bias))
    torch.testing.assert_close(linear(x).double(), expected, rtol=1e-4, atol=1e-4)
    assert (linear.weight is head.weight) == (option == "plain")


def test_to_linear_refuses_cosine_logits() -> None:
    with pytest.raises(ConfigError, match="normalize=True"):
        small_head(normalize=True).to_linear()


def test_exact_ends_with_its_context_also_after_an_error() -> None:
    head = small_head(candidates=4, tail=0).eval()
    x = random_tensor(EXAMPLES, FEATURES)
    approximate = head.log_prob(x)
    with head.exact(), head.exact():
        assert head.log_prob(x).isfinite().all()
    assert torch.equal(head.log_prob(x), approximate)
    with pytest.raises(InputError), head.exact():
        head.topk(x, CLASSES + 1)
    assert torch.equal(head.log_prob(x), approximate)
