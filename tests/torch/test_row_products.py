"""Products with chosen rows: gradcheck of the plain path, the native one against it, touched rows only."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import backend
from head_cases import random_tensor
from torch import Tensor, nn

from manyclass.torch.row_products import gather_rows, pair_logits

CLASSES = 11
IDS = torch.tensor([[3, -1, 0, 10], [10, 3, 3, -1], [-1, -1, -1, -1]])
DISTINCT = torch.tensor([0, 3, 10])


class Recorder:
    """Keeps what it is told to update."""

    def __init__(self) -> None:
        self.seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def update_rows(self, parameter: Tensor, ids: Tensor, gradient: Tensor) -> None:
        self.seen.append((parameter, ids, gradient))

    def check_numbers(self) -> None:
        """Rows keep their numbers here."""


def problem(features: int, dtype: torch.dtype = torch.float32, bias: bool = True) -> tuple[Tensor, ...]:
    x = random_tensor(len(IDS), features, seed=1).to(dtype).requires_grad_()
    weight = nn.Parameter(random_tensor(CLASSES, features, seed=2).to(dtype))
    return (x, weight, nn.Parameter(random_tensor(CLASSES, seed=3).to(dtype))) if bias else (x, weight)


def finite(logits: Tensor) -> Tensor:
    return logits.masked_fill(IDS < 0, 0)


def touched(parameter: Tensor) -> list[int]:
    """Return the rows of a sparse gradient, as they come: distinct and ascending is for the operator to see to."""
    assert parameter.grad is not None
    rows: list[int] = parameter.grad._indices()[0].tolist()  # torch drops the mark that they are so
    return rows


@pytest.mark.parametrize("bias", [True, False])
def test_gradcheck_of_pair_logits(bias: bool) -> None:
    def run(x: Tensor, *rows: Tensor) -> Tensor:
        return finite(pair_logits(x, IDS, *(part * 1 for part in rows)))  # no leaves: dense gradients

    assert torch.autograd.gradcheck(run, problem(5, torch.float64, bias))


def test_gathered_rows_get_the_gradient_of_plain_indexing() -> None:
    _, weight, _ = problem(5, torch.float64)
    gather_rows(weight, DISTINCT).sin().sum().backward()
    (expected,) = torch.autograd.grad(weight[DISTINCT].sin().sum(), weight)
    assert weight.grad.is_sparse
    assert touched(weight) == DISTINCT.tolist()
    assert torch.equal(weight.grad.to_dense(), expected)


@pytest.mark.parametrize("use", ["native", "reference"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("features", [1, 7, 8, 33])
def test_native_pairs_match_the_plain_path(features: int, bias: bool, use: str) -> None:
    upstream = random_tensor(*IDS.shape, seed=4)
    results = []
    for dtype in (torch.float32, torch.float64):
        tensors = problem(features, dtype, bias)
        with backend(use):
            logits = pair_logits(tensors[0], IDS, *tensors[1:])
            finite(logits).backward(upstream.to(dtype))
        assert logits.dtype == dtype
        assert (logits.isneginf() == (IDS < 0)).all()
        results.append([finite(logits), *(tensor.grad.to_dense() for tensor in tensors)])
    for ours, reference in zip(*results, strict=True):
        torch.testing.assert_close(ours.double(), reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_hold_touched_rows_only(dtype: torch.dtype) -> None:
    x, weight, bias = problem(5, dtype)
    finite(pair_logits(x, IDS, weight, bias)).sum().backward()
    for parameter in (weight, bias):
        assert parameter.grad.is_sparse
        assert parameter.grad.shape == parameter.shape
        assert touched(parameter) == DISTINCT.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_absent_ids_touch_no_row(dtype: torch.dtype) -> None:
    x, weight, bias = problem(5, dtype)
    ids = torch.tensor([[4, -1], [5, 4], [-1, -1]])
    pair_logits(x, ids, weight, bias).masked_fill(ids < 0, 0).sum().backward()
    assert touched(weight) == [4, 5]
    assert touched(bias) == [4, 5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_update_gets_the_gradients_and_no_grad_appears(dtype: torch.dtype) -> None:
    plain, watched = problem(5, dtype), problem(5, dtype)
    finite(pair_logits(plain[0], IDS, *plain[1:])).sum().backward()
    recorder = Recorder()
    finite(pair_logits(watched[0], IDS, *watched[1:], update=recorder)).sum().backward()
    assert watched[1].grad is None
    assert watched[2].grad is None
    assert torch.equal(plain[0].grad, watched[0].grad)
    assert {id(parameter) for parameter, _, _ in recorder.seen} == {id(watched[1]), id(watched[2])}
    for parameter, ids, gradient in recorder.seen:
        expected = plain[1] if parameter is watched[1] else plain[2]
        assert torch.equal(ids, expected.grad._indices()[0])
        assert torch.equal(gradient, expected.grad._values())


@pytest.mark.parametrize("frozen", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_update_leaves_frozen_parameters_alone(dtype: torch.dtype, frozen: int) -> None:
    tensors = problem(5, dtype)
    tensors[frozen].requires_grad_(False)
    recorder = Recorder()
    finite(pair_logits(tensors[0], IDS, *tensors[1:], update=recorder)).sum().backward()
    assert [parameter is tensors[3 - frozen] for parameter, _, _ in recorder.seen] == [True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gathered_rows_with_a_frozen_weight_still_train_the_bias(dtype: torch.dtype) -> None:
    x, weight, bias = problem(5, dtype)
    weight.requires_grad_(False)
    every = torch.arange(CLASSES)
    places = torch.arange(CLASSES)[None].expand(len(x), -1)
    pair_logits(x, places, gather_rows(weight, every), gather_rows(bias, every)).sum().backward()
    assert torch.equal(bias.grad.to_dense(), torch.full((CLASSES,), float(len(x)), dtype=dtype))


def second_order(run: Callable[..., Tensor], *tensors: Any) -> None:
    (gradient,) = torch.autograd.grad(run(*tensors).square().sum(), tensors[0], create_graph=True)
    gradient.square().sum().backward()


def test_a_second_derivative_is_refused_not_wrong() -> None:
    x, weight, bias = problem(5)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        second_order(lambda x: finite(pair_logits(x, IDS, weight, bias)), x)


def test_rows_changed_before_backward_are_noticed() -> None:
    x, weight, _ = problem(5)
    loss = finite(pair_logits(x, IDS, weight)).sum()
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
