"""Full softmax: torch's own layer and loss, several positives, the logistic loss, exact predictions in pieces."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from manyclass import ConfigError, InputTypeError
from manyclass.torch import all_classes as exact
from manyclass.torch.full_softmax import FullSoftmax

SEVERAL = torch.tensor([[4, -1, -1], [0, 2, 3], [5, 5, -1], [1, 6, -1]])


def case(dtype: torch.dtype = torch.float64, **settings: Any) -> tuple[FullSoftmax, Tensor]:
    torch.manual_seed(0)
    return FullSoftmax(5, 7, dtype=dtype, **settings), torch.randn(4, 5, dtype=dtype)


def uniform(targets: Tensor, classes: int) -> Tensor:
    """Return the uniform distribution over each row's distinct positives, the definition of several positives."""
    hot = torch.zeros(len(targets), classes + 1, dtype=torch.float64)
    hot.scatter_(1, torch.where(targets < 0, classes, targets), 1)
    return hot[:, :-1] / hot[:, :-1].sum(1, keepdim=True)


def assert_same_gradients(loss: Tensor, expected: Tensor, *tensors: Tensor) -> None:
    for left, right in zip(torch.autograd.grad(loss, tensors), torch.autograd.grad(expected, tensors), strict=True):
        assert not left.is_sparse
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("bias", [True, False])
def test_it_starts_and_learns_as_linear_and_cross_entropy_do(bias: bool) -> None:
    torch.manual_seed(3)
    linear = nn.Linear(6, 11, bias=bias)
    head = FullSoftmax(6, 11, bias=bias)
    assert {name: p.shape for name, p in head.named_parameters()} == {n: p.shape for n, p in linear.named_parameters()}
    bound = 6**-0.5
    assert all(bound / 2 < p.abs().max() <= bound for p in head.parameters())
    x, y = torch.randn(9, 6), torch.randint(0, 11, (9,))
    expected = functional.cross_entropy(functional.linear(x, head.weight, head.bias), y)
    torch.testing.assert_close(head(x, y), expected)
    assert_same_gradients(head(x, y), expected, *head.parameters())


def test_several_positives_are_cross_entropy_against_the_uniform_distribution() -> None:
    head, x = case(reduction="none")
    x.requires_grad_()
    logits = functional.linear(x, head.weight, head.bias)
    losses, expected = head(x, SEVERAL), functional.cross_entropy(logits, uniform(SEVERAL, 7), reduction="none")
    torch.testing.assert_close(losses, expected)
    assert_same_gradients(losses.sum(), expected.sum(), x, *head.parameters())


@pytest.mark.parametrize("bias", [True, False])
def test_logistic_loss_is_binary_cross_entropy_summed_over_the_classes(bias: bool) -> None:
    head, x = case(output="logistic", bias=bias)
    x.requires_grad_()
    logits = functional.linear(x, head.weight, head.bias)
    hot = (uniform(SEVERAL, 7) > 0).double()
    expected = functional.binary_cross_entropy_with_logits(logits, hot, reduction="sum") / len(x)
    torch.testing.assert_close(head(x, SEVERAL), expected)
    assert_same_gradients(head(x, SEVERAL), expected, x, *head.parameters())


@pytest.mark.parametrize("output", ["softmax", "logistic"])
@pytest.mark.parametrize("target", [torch.tensor([4, 0, 6, 0]), SEVERAL])
def test_gradients_are_those_of_the_loss(output: str, target: Tensor) -> None:
    head, x = case(output=output)

    def of(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.func.functional_call(head, {"weight": weight, "bias": bias}, (x, target))

    assert torch.autograd.gradcheck(of, (x.requires_grad_(), head.weight, head.bias))


@pytest.mark.parametrize("output", ["softmax", "logistic"])
@pytest.mark.parametrize("logits_at_once", [1, 64, 10_000])
@pytest.mark.parametrize("examples_at_once", [1, 3, 100])
def test_predictions_in_pieces_are_exact(
    output: str, logits_at_once: int, examples_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "LOGITS_AT_ONCE", logits_at_once)
    monkeypatch.setattr(exact, "EXAMPLES_AT_ONCE", examples_at_once)
    torch.manual_seed(1)
    head = FullSoftmax(8, 53, output=output, dtype=torch.float64)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    logits = functional.linear(x, head.weight, head.bias)
    expected = logits.log_softmax(-1) if output == "softmax" else functional.logsigmoid(logits)
    torch.testing.assert_close(head.log_prob(x), expected)
    chosen = torch.randint(0, 53, (2, 5, 4))
    torch.testing.assert_close(head.log_prob(x, chosen), expected.gather(-1, chosen))
    for k in (1, 7, 53):
        best = head.topk(x, k)
        values, ids = expected.sort(dim=-1, descending=True, stable=True)
        assert torch.equal(best.classes, ids[..., :k])
        torch.testing.assert_close(best.log_probs, values[..., :k])
    assert torch.equal(head.predict(x), logits.argmax(-1))


@pytest.mark.parametrize("logits_at_once", [40, 10_000])
def test_of_equal_classes_the_lowest_come_first(logits_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "LOGITS_AT_ONCE", logits_at_once)
    head = FullSoftmax(3, 200, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.randint(0, 3, (200, 1), generator=torch.Generator().manual_seed(0)).float())
    x = torch.tensor([[1.0, 0, 0], [0, 0, 0], [-1.0, 0, 0]])
    logits = x @ head.weight.detach().T
    for k in (1, 5, 100, 200):
        expected = logits.sort(dim=1, descending=True, stable=True).indices[:, :k]
        assert torch.equal(head.topk(x, k).classes, expected)


def test_nothing_in_gives_nothing_out() -> None:
    head = FullSoftmax(3, 9)
    x = torch.empty(0, 3)
    assert head.topk(x, 4).classes.shape == (0, 4)
    assert head.log_prob(x).shape == (0, 9)
    assert head.log_prob(x, torch.empty(0, 2, dtype=torch.int64)).shape == (0, 2)


@pytest.mark.parametrize("bias", [True, False])
def test_it_shares_its_weights_with_linear_layers(bias: bool) -> None:
    linear = nn.Linear(4, 9, bias=bias, dtype=torch.float64)
    head = FullSoftmax.from_linear(linear, reduction="sum")
    assert head.reduction == "sum"
    assert head.state_dict().keys() == linear.state_dict().keys()
    back = head.to_linear()
    for layer in (head, back):
        assert layer.weight is linear.weight
        assert layer.bias is linear.bias
    FullSoftmax(4, 9, bias=bias).load_state_dict(linear.state_dict())


def test_autocast_changes_nothing() -> None:
    head, x = case(torch.float32)
    y = torch.tensor([1, 2, 3, 4])
    plain = head(x, y), head(x, SEVERAL), head.topk(x, 3).log_probs, head.log_prob(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = head(x, y), head(x, SEVERAL), head.topk(x, 3).log_probs, head.log_prob(x)
    for left, right in zip(plain, under, strict=True):
        assert torch.equal(left, right)


def test_a_single_class_is_certain() -> None:
    head = FullSoftmax(3, 1)
    x = torch.randn(2, 3)
    assert head(x, torch.zeros(2, dtype=torch.int64)).item() == 0
    assert head.topk(x, 1).classes.tolist() == [[0], [0]]


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="output='hinge' is unknown; choose 'softmax' or 'logistic'"):
        FullSoftmax(3, 4, output="hinge")
    with pytest.raises(InputTypeError, match=r"linear is a Embedding; pass an nn\.Linear"):
        FullSoftmax.from_linear(nn.Embedding(3, 4))  # type: ignore[arg-type]
