"""The loss over shared classes: native against plain operations, gradients of all kinds, nothing that is needless."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from manyclass.torch import shared_loss
from manyclass.torch.class_targets import Targets, even_targets
from manyclass.torch.row_optimizers import RowAdam, RowSGD
from manyclass.torch.row_products import ClassLayer
from manyclass.torch.shared_loss import shared_losses
from manyclass.torch.step_classes import StepClasses

CLASSES = 60
POSITIVES = torch.tensor([[3], [10], [40], [3], [59]])
SEVERAL = torch.tensor([[3, -1], [10, 3], [40, 11], [3, 59], [59, -1]])


def step(positives: Tensor) -> StepClasses:
    """Return classes that count once, several times, or for their own examples only."""
    ids = torch.tensor([0, 3, 5, 10, 11, 22, 30, 40, 55, 59])
    log_weights = torch.tensor([0, 0, 2, 0, -1, 3, 2, -torch.inf, 2, -torch.inf], dtype=torch.float64)
    return StepClasses(ids, log_weights)


def problem(dtype: torch.dtype = torch.float32, features: int = 7) -> tuple[Tensor, nn.Parameter, nn.Parameter]:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(len(POSITIVES), features), torch.randn(CLASSES, features), torch.randn(CLASSES)
    return x.to(dtype).requires_grad_(), nn.Parameter(weight.to(dtype)), nn.Parameter(bias.to(dtype))


def targets(positives: Tensor, smooth: bool, logistic: bool) -> Targets:
    even = even_targets(positives, logistic)
    return even._replace(spread=torch.linspace(0, 0.02, 10, dtype=torch.float64)) if smooth else even


@pytest.mark.parametrize("positives", [POSITIVES, SEVERAL], ids=["one", "several"])
@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("unit_rows", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_float32_gives_what_plain_operations_give_in_float64(
    positives: Tensor, logistic: bool, smooth: bool, unit_rows: bool, bias: bool
) -> None:
    found, wanted = [], []
    for dtype, kept in ((torch.float32, found), (torch.float64, wanted)):
        x, weight, offsets = problem(dtype)
        layer = ClassLayer(weight, offsets if bias else None, unit_rows=unit_rows, temperature=0.7)
        out = shared_losses(layer, x, step(positives), targets(positives, smooth, logistic), logistic=logistic)
        (out.losses * torch.arange(1, 6)).sum().backward()
        gradients = [x.grad, weight.grad.to_dense()] + ([offsets.grad.to_dense()] if bias else [])
        kept += [*out, *gradients]
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=1e-4, atol=1e-5)


def test_a_sparse_gradient_holds_the_rows_of_the_step() -> None:
    x, weight, bias = problem()
    shared_losses(ClassLayer(weight, bias), x, step(POSITIVES), even_targets(POSITIVES)).losses.sum().backward()
    for part in (weight, bias):
        assert part.grad is not None
        assert part.grad._indices()[0].tolist() == step(POSITIVES).ids.tolist()


def test_nothing_that_nobody_wants_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Spy:
        def __init__(self, *given: Any) -> None:
            self.native = core().SharedStep(*given)

        def __getattr__(self, name: str) -> Any:
            def call(*given: Any) -> None:
                asked.append((name, given[8]) if name == "losses" else name)
                getattr(self.native, name)(*given)

            return call

    core = shared_loss.core
    monkeypatch.setattr(shared_loss, "core", lambda: type("Core", (), {"SharedStep": Spy}))
    x, weight, bias = problem()
    layer = ClassLayer(weight, bias)
    shared_losses(layer, x.detach(), step(POSITIVES), even_targets(POSITIVES)).losses.sum().backward()
    assert asked == [("losses", True), "row_gradients"]
    asked.clear()
    frozen = ClassLayer(weight.detach(), bias.detach())
    shared_losses(frozen, x, step(POSITIVES), even_targets(POSITIVES)).losses.sum().backward()
    assert asked == [("losses", True), "input_gradients"]
    asked.clear()
    with torch.no_grad():
        shared_losses(layer, x, step(POSITIVES), even_targets(POSITIVES))
    assert asked == [("losses", False)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [RowSGD, RowAdam])
def test_rows_that_move_inside_backward_move_as_by_their_gradient(dtype: torch.dtype, kind: Any) -> None:
    ends = []
    for fused in (False, True):
        x, weight, bias = problem(dtype)
        optimizer = kind([weight, bias], lr=0.1)
        layer = ClassLayer(weight, bias, optimizer if fused else None)
        shared_losses(layer, x, step(SEVERAL), even_targets(SEVERAL)).losses.mean().backward()
        if not fused:
            optimizer.step()
        assert fused == (weight.grad is None) == (bias.grad is None)
        ends.append((x.grad, weight.detach(), bias.detach()))
    for apart, at_once in zip(*ends, strict=True):
        assert torch.equal(apart, at_once)


@pytest.mark.parametrize("logistic", [False, True])
def test_gradients_are_those_of_the_loss(logistic: bool) -> None:
    x, weight, bias = problem(torch.float64)

    def of(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ids = torch.arange(CLASSES)
        classes = StepClasses(ids, torch.where(ids % 3 == 0, 1.5, 0.0).double())
        wanted = even_targets(SEVERAL, logistic)._replace(spread=torch.full((CLASSES,), 0.01))
        return shared_loss._plain_losses(x, weight, bias, 0.7, classes, wanted, logistic).losses

    assert torch.autograd.gradcheck(of, (x, weight, bias))


def test_second_derivatives_of_the_inputs() -> None:
    found = []
    for dtype in (torch.float32, torch.float64):
        x, weight, bias = problem(dtype)
        losses = shared_losses(ClassLayer(weight, bias), x, step(SEVERAL), even_targets(SEVERAL)).losses
        (gradient,) = torch.autograd.grad(losses.sum(), x, create_graph=True)
        gradient.square().sum().backward()
        found.append((x.grad, weight.grad.to_dense()))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs.float(), rtol=1e-4, atol=1e-5)


def test_backward_runs_twice_over_one_graph() -> None:
    x, weight, bias = problem()
    loss = shared_losses(ClassLayer(weight, bias), x, step(SEVERAL), even_targets(SEVERAL)).losses.sum()
    first = torch.autograd.grad(loss, (x, weight), retain_graph=True)
    second = torch.autograd.grad(loss, (x, weight))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1].to_dense(), second[1].to_dense())


def test_the_number_of_threads_does_not_show() -> None:
    before, ends = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            x, weight, bias = problem(features=33)
            out = shared_losses(ClassLayer(weight, bias), x, step(SEVERAL), even_targets(SEVERAL))
            out.losses.sum().backward()
            ends.append([part.detach().clone() for part in (*out, x.grad, weight.grad._values(), bias.grad._values())])
    finally:
        torch.set_num_threads(before)
    for other in ends[1:]:
        assert all(torch.equal(left, right) for left, right in zip(ends[0], other, strict=True))
