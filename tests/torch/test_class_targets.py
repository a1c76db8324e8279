"""Label smoothing and class weights: each head gives what torch's cross entropy gives over all classes."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from manyclass import ConfigError, InputError, InputTypeError
from manyclass.torch import CandidateSoftmax, FullSoftmax, HierarchicalSoftmax, SampledSoftmax
from manyclass.torch.class_sampler import Drawn
from manyclass.torch.step_classes import sampled_classes

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.approximation_meter.ApproximationWarning")
CLASSES, FEATURES = 30, 6
ONE = torch.tensor([4, 0, -100, 29, 4])
SEVERAL = torch.tensor([[4, -1, -1], [0, 2, 29], [-1, -1, -1], [1, 6, -1], [5, 5, -1]])
WEIGHT = (torch.arange(CLASSES) % 5) / 2  # zeros among them, and one of the targets is
EVERYTHING = Drawn(torch.arange(CLASSES), torch.zeros(CLASSES, dtype=torch.float64))

ALL_MINED: dict[str, Any] = {"mined_examples": 32, "mined_candidates": CLASSES, "meter_every": 0}
HEADS: dict[str, Any] = {
    "full": lambda **options: FullSoftmax(FEATURES, CLASSES, **options),
    "shared": lambda **options: CandidateSoftmax(FEATURES, CLASSES, tail=0, **ALL_MINED, **options),
    "own": lambda **options: CandidateSoftmax(FEATURES, CLASSES, candidates=CLASSES, shared=False, tail=0, **options),
    "cosine": lambda **options: CandidateSoftmax(
        FEATURES, CLASSES, tail=0, normalize=True, temperature=0.3, **ALL_MINED, **options
    ),
    "sampled": lambda **options: SampledSoftmax(FEATURES, CLASSES, **options),
}


def made(name: str, dtype: torch.dtype, **options: Any) -> tuple[Any, Tensor]:
    """Return a head that looks at all classes in training, and an input."""
    torch.manual_seed(0)
    head = HEADS[name](dtype=dtype, **options)
    if name == "sampled":
        head.sampler.draw = lambda _: EVERYTHING
    return head, torch.randn(5, FEATURES, dtype=dtype, requires_grad=True)


def logits_of(head: Any, x: Tensor) -> Tensor:
    if getattr(head, "normalize", False):
        rows, bias = functional.normalize(head.weight), head.bias
        return functional.linear(functional.normalize(x), rows, bias) / head.temperature
    return functional.linear(x, head.weight, head.bias)


def soft(target: Tensor, dtype: torch.dtype) -> Tensor:
    """Return several positives as probabilities of all classes, (examples, classes)."""
    wanted = torch.zeros(len(target), CLASSES, dtype=dtype)
    for example, ids in enumerate(target.tolist()):
        own = {i for i in ids if i >= 0}
        wanted[example, list(own)] = 1 / max(1, len(own))
    return wanted


def from_torch(logits: Tensor, target: Tensor, reduction: str, smoothing: float, weight: Tensor | None) -> Tensor:
    settings = {"label_smoothing": smoothing, "weight": None if weight is None else weight.to(logits.dtype)}
    if target.dim() == 1:
        return functional.cross_entropy(logits, target, reduction=reduction, **settings)
    counted = (target >= 0).any(1)
    losses = functional.cross_entropy(logits, soft(target, logits.dtype), reduction="none", **settings) * counted
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / counted.sum()}[reduction]


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("target", [ONE, SEVERAL], ids=["one", "several"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["alike", "weighted"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_every_head_gives_the_loss_and_gradients_of_torch(
    name: str, dtype: torch.dtype, target: Tensor, smoothing: float, weight: Tensor | None, reduction: str
) -> None:
    options = {"label_smoothing": smoothing, "class_weight": weight, "reduction": reduction}
    head, x = made(name, dtype, **options)
    found, expected = [], []
    for values, loss in ((found, head(x, target)), (expected, None)):
        loss = from_torch(logits_of(head, x), target, reduction, smoothing, weight) if loss is None else loss
        values += [loss, *torch.autograd.grad((loss * torch.linspace(1, 2, loss.numel())).sum(), (x, head.weight))]
    tolerance = {"rtol": 1e-4, "atol": 2e-5} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.to_dense() if ours.is_sparse else ours, theirs, **tolerance)


@pytest.mark.parametrize("name", ["shared", "own", "cosine", "sampled"])
def test_what_is_not_approximated_is_torchs_too(name: str) -> None:
    head, x = made(name, torch.float64, label_smoothing=0.2, class_weight=WEIGHT, reduction="sum")
    expected = from_torch(logits_of(head, x), SEVERAL, "sum", 0.2, WEIGHT)
    if name == "sampled":
        torch.testing.assert_close(head.eval()(x, SEVERAL), expected)
    else:
        with head.exact():
            torch.testing.assert_close(head(x, SEVERAL), expected)


@pytest.mark.parametrize("sampled", [False, True])
def test_what_is_spread_is_estimated_without_bias(sampled: bool) -> None:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"label_smoothing": 0.5, "class_weight": WEIGHT, "dtype": torch.float64}
    head: Any = SampledSoftmax(FEATURES, CLASSES, samples=20, **settings)
    if not sampled:
        settings["tail_sampler"] = "uniform"  # the same batch again and again is no random one
        head = CandidateSoftmax(FEATURES, CLASSES, tail=20, mined_examples=32, meter_every=0, **settings)
        head._looked_up = lambda x, refresh=False: torch.arange(3).expand(len(x), -1)
    x, target = torch.randn(4, FEATURES, dtype=torch.float64), torch.tensor([1, 2, 3, 9])
    exact = (0.5 / CLASSES * WEIGHT * functional.linear(x, head.weight, head.bias)).sum(1)
    estimates = []
    with torch.no_grad():
        for _ in range(400):
            classes, positives = _classes_of(head, x, target), target[:, None]
            wanted = head._targets(positives, classes.ids, classes.log_weights)
            logits = functional.linear(x, head.weight[classes.ids], head.bias[classes.ids])
            own = classes.ids == positives
            kept = torch.where(own, 0.5 / CLASSES * WEIGHT[positives], wanted.spread)
            estimates.append((kept * logits).sum(1))
    found = torch.stack(estimates)
    # Four examples, four standard errors each: false alarm about 1 in 4,000 (the seed is fixed anyway).
    assert ((found.mean(0) - exact).abs() <= 4 * found.std(0) / 20).all()


def _classes_of(head: Any, x: Tensor, target: Tensor) -> Any:
    if isinstance(head, SampledSoftmax):
        return sampled_classes(target[:, None], head.sampler.draw(head.samples))
    return head._step_classes(x, target[:, None], learning=True)


def test_a_batch_whose_targets_weigh_nothing_has_no_loss() -> None:
    head, x = made("full", torch.float32, class_weight=WEIGHT, label_smoothing=0.1)
    loss = head(x, torch.tensor([0, 5, 10, 0, 0]))
    loss.backward()
    assert loss.item() == 0
    assert not x.grad.any()


def test_a_tree_weighs_its_classes() -> None:
    torch.manual_seed(0)
    head, x = HierarchicalSoftmax(FEATURES, CLASSES, class_weight=WEIGHT, reduction="none"), torch.randn(5, FEATURES)
    log_probs = head.log_prob(x)
    expected = -(soft(SEVERAL, torch.float32) * WEIGHT * log_probs).sum(1)
    torch.testing.assert_close(head(x, SEVERAL), expected)
    head.reduction = "mean"
    counted = ONE >= 0
    expected = functional.nll_loss(log_probs[counted], ONE[counted], WEIGHT)
    torch.testing.assert_close(head(x, ONE), expected)


def test_weights_follow_classes_that_come_and_go() -> None:
    head, x = made("shared", torch.float32, class_weight=WEIGHT, label_smoothing=0.3)
    head.add_classes(2)
    assert torch.equal(head.class_weight, torch.cat([WEIGHT, torch.ones(2)]))
    head.remove_classes([1, 7])
    left = [i for i in range(CLASSES + 2) if i not in (1, 7)]
    target = torch.tensor([4, 2, 31, 29, 4])
    expected = functional.cross_entropy(
        logits_of(head, x)[:, left], torch.tensor([left.index(i) for i in target.tolist()]),
        weight=head.class_weight[left], label_smoothing=0.3,
    )  # fmt: skip
    torch.testing.assert_close(head(x, target), expected)
    with head.exact():
        torch.testing.assert_close(head(x, target), expected)
    head.compact()
    assert torch.equal(head.class_weight, torch.cat([WEIGHT, torch.ones(2)])[left])


@pytest.mark.parametrize("name", ["full", "shared", "sampled"])
def test_weights_are_saved_and_loaded(name: str) -> None:
    head, _ = made(name, torch.float32, class_weight=WEIGHT)
    other, _ = made(name, torch.float32, class_weight=torch.ones(CLASSES))
    other.load_state_dict(head.state_dict())
    assert torch.equal(other.class_weight, WEIGHT)
    assert torch.equal(copy.deepcopy(head).class_weight, WEIGHT)
    assert "class_weight" not in made(name, torch.float32)[0].state_dict()
    other.load_state_dict(nn.Linear(FEATURES, CLASSES).state_dict())
    assert torch.equal(other.class_weight, WEIGHT)


def test_given_weights_are_copied() -> None:
    weight = WEIGHT.clone()
    head, _ = made("full", torch.float32, class_weight=weight)
    weight[:] = -1
    assert torch.equal(head.class_weight, WEIGHT)


@pytest.mark.parametrize("name", ["full", "shared", "sampled"])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"label_smoothing": -0.1}, ConfigError, r"label_smoothing=-0.1 .* from 0 to 1"),
        ({"label_smoothing": 1.5}, ConfigError, r"label_smoothing=1.5"),
        ({"label_smoothing": float("nan")}, ConfigError, r"label_smoothing=nan"),
        ({"label_smoothing": True}, ConfigError, r"label_smoothing=True"),
        ({"class_weight": [1.0] * CLASSES}, InputTypeError, "class_weight is list"),
        ({"class_weight": torch.ones(CLASSES, dtype=torch.bool)}, InputTypeError, "class_weight is torch.bool"),
        ({"class_weight": torch.ones(CLASSES - 1)}, InputError, r"shape \(29,\); expected \(30,\)"),
        ({"class_weight": -WEIGHT}, InputError, r"class_weight\[1\]=-0.5"),
        ({"class_weight": WEIGHT / 0}, InputError, r"class_weight\[0\]=nan"),
    ],
)
def test_bad_values_are_refused(name: str, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        HEADS[name](**options)


@pytest.mark.parametrize("name", ["full", "shared"])
@pytest.mark.parametrize("options", [{"label_smoothing": 0.1}, {"class_weight": WEIGHT}])
def test_logistic_outputs_have_neither(name: str, options: Any) -> None:
    with pytest.raises(ConfigError, match="belong to output='softmax'"):
        HEADS[name](output="logistic", **options)
