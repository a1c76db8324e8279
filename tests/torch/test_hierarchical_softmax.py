"""Hierarchical softmax: equal to a dense float64 reference, exact search, the same tree after loading."""

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import backend
from torch import Tensor

from manyclass import InputError, InputTypeError
from manyclass.torch.hierarchical_softmax import HierarchicalSoftmax
from manyclass.torch.row_optimizers import RowSGD

COUNTS = torch.tensor([3, 0, 50, 7, 7, 1, 0, 0, 20, 9, 2])
SEVERAL = torch.tensor([[4, -1, -1], [0, 2, 10], [-1, 5, 5], [1, 6, -1], [8, 8, 8]])


def case(dtype: torch.dtype = torch.float32, **settings: Any) -> tuple[HierarchicalSoftmax, Tensor]:
    torch.manual_seed(0)
    head = HierarchicalSoftmax(6, len(COUNTS), counts=COUNTS, dtype=dtype, **settings)
    return head, torch.randn(5, 6, dtype=dtype)


def dense_log_probs(head: HierarchicalSoftmax, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return log probabilities of all classes, by walking from each class to the root."""
    size = head.tree.nodes + head.tree.classes
    parents, sides = np.empty(size, np.int64), np.empty(size, np.int8)
    head.tree.links(parents, sides)
    logits = F.linear(x, weight, bias)
    columns = []
    for leaf in range(head.num_classes):
        at, total = head.tree.nodes + leaf, x.new_zeros(len(x))
        while parents[at] >= 0:
            total = total + F.logsigmoid(int(sides[at]) * logits[:, parents[at]])
            at = int(parents[at])
        columns.append(total)
    return torch.stack(columns, 1)


def dense_copy(head: HierarchicalSoftmax, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return inputs, weight and bias in float64, ready for gradients."""
    bias = None if head.bias is None else head.bias.detach().double().requires_grad_()
    return x.detach().double().requires_grad_(), head.weight.detach().double().requires_grad_(), bias


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("target", [SEVERAL, torch.tensor([0, 2, 10, 2, 7])])
@pytest.mark.parametrize("which", ["native", "reference"])
def test_loss_and_gradients_equal_a_dense_reference(dtype: torch.dtype, bias: bool, target: Tensor, which: str) -> None:
    with backend(which):
        head, x = case(dtype, bias=bias, reduction="none")
        x.requires_grad_()
        losses = head(x, target)
        weighting = torch.arange(1, 6, dtype=dtype)
        (losses * weighting).sum().backward()
        inputs, weight, offsets = dense_copy(head, x)
        log_probs = dense_log_probs(head, inputs, weight, offsets)
    positives = [sorted({c for c in row if c >= 0}) for row in target.reshape(5, -1).tolist()]
    expected = torch.stack([-log_probs[i, own].mean() for i, own in enumerate(positives)])
    (expected * weighting).sum().backward()
    torch.testing.assert_close(losses, expected.to(dtype))
    pairs = [(x.grad, inputs.grad), (head.weight.grad, weight.grad)]
    if head.bias is not None and offsets is not None:
        pairs.append((head.bias.grad, offsets.grad))
    for found, reference in pairs:
        assert found is not None
        assert reference is not None
        assert found.is_sparse == (found is not x.grad)
        torch.testing.assert_close(found.to_dense(), reference.to(dtype))


def test_only_the_rows_on_the_paths_are_touched() -> None:
    head, x = case()
    head(x[:2], torch.tensor([2, 8])).backward()
    nodes, sides = (np.empty((2, head.tree.depth), kind) for kind in (np.int64, np.int8))
    head.tree.paths(np.array([2, 8]), nodes, sides, 1)
    assert head.weight.grad is not None
    touched = head.weight.grad._indices()[0].tolist()
    assert touched == sorted(set(nodes[nodes >= 0].tolist()))
    assert len(touched) < head.tree.nodes / 2


@pytest.mark.parametrize("which", ["native", "reference"])
@pytest.mark.parametrize("bias", [True, False])
def test_predictions_are_exact(bias: bool, which: str) -> None:
    with backend(which):
        head, x = case(bias=bias)
        expected = dense_log_probs(head, *dense_copy(head, x)).detach().float()
        torch.testing.assert_close(head.log_prob(x), expected)
        torch.testing.assert_close(head.log_prob(x).exp().sum(1), torch.ones(5))
        chosen = torch.tensor([[0, 3], [10, 10], [2, 1], [5, 4], [9, 6]])
        torch.testing.assert_close(head.log_prob(x, chosen), expected.gather(1, chosen))
        values, ids = expected.sort(dim=1, descending=True)
        for k in (1, 4, 11):
            best = head.topk(x, k)
            assert torch.equal(best.classes, ids[:, :k])
            torch.testing.assert_close(best.log_probs, values[:, :k])
        assert torch.equal(head.predict(x.reshape(5, 1, 6)), ids[:, :1])


def test_the_best_class_need_not_be_at_the_end_of_the_greedy_path() -> None:
    # The root prefers the side of four classes, .6 against .4; they share it evenly, and the other side is sure.
    head = HierarchicalSoftmax(1, 5, counts=torch.tensor([4, 1, 1, 1, 1]))
    x = torch.ones(1, 1)
    size = head.tree.nodes + head.tree.classes
    parents, sides = np.empty(size, np.int64), np.empty(size, np.int8)
    head.tree.links(parents, sides)
    assert parents[head.tree.nodes] == 0  # class 0 hangs on the root
    with torch.no_grad():
        head.weight.zero_()
        assert head.bias is not None
        head.bias.zero_()
        head.bias[0] = float(sides[head.tree.nodes]) * float(np.log(0.4 / 0.6))
    best = head.topk(x, 3)
    assert best.classes.tolist() == [[0, 1, 2]]
    torch.testing.assert_close(best.log_probs.exp(), torch.tensor([[0.4, 0.15, 0.15]]))


def test_it_learns() -> None:
    torch.manual_seed(0)
    head = HierarchicalSoftmax(64, 50)  # more features than classes: any question can be answered
    x, y = torch.randn(50, 64), torch.arange(50)
    for _ in range(100):
        head.zero_grad()
        loss = head(x, y)
        loss.backward()
        with torch.no_grad():
            for parameter in head.parameters():
                assert parameter.grad is not None
                parameter -= 5 * parameter.grad.to_dense()
    assert torch.equal(head.predict(x), y)


@pytest.mark.parametrize("target", [SEVERAL, torch.tensor([0, 2, 10, 2, 7])])
def test_rows_updated_inside_backward_end_where_an_optimizer_takes_them(target: Tensor) -> None:
    make = partial(RowSGD, lr=0.1, momentum=0.9)
    plain, x = case()
    fused, _ = case(row_update="fused", row_optimizer=make)
    optimizer = make(plain.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        plain(x, target).backward()
        optimizer.step()
        fused(x, target).backward()
        assert fused.weight.grad is None
    for name, value in plain.state_dict().items():
        assert torch.equal(fused.state_dict()[name], value)


def test_a_loaded_or_copied_head_has_the_same_tree() -> None:
    head, x = case()
    state = head.state_dict()
    assert all(isinstance(value, Tensor) for value in state.values())
    other = HierarchicalSoftmax(6, len(COUNTS))
    before = other.log_prob(x)  # builds the balanced tree
    other.load_state_dict(state)
    assert not torch.allclose(other.log_prob(x), before)
    assert torch.equal(other.counts, COUNTS)
    twin = copy.deepcopy(head)
    for same in (other, twin):
        assert torch.equal(same.log_prob(x), head.log_prob(x))
        assert torch.equal(same(x, SEVERAL), head(x, SEVERAL))
    with torch.no_grad():
        twin.weight.zero_()
    assert head.weight.abs().sum() > 0
    with pytest.raises(RuntimeError, match="_extra_state"):
        other.load_state_dict({"weight": state["weight"], "bias": state["bias"]})


def test_nothing_is_built_on_meta() -> None:
    head = HierarchicalSoftmax(4, 1000, device="meta")
    assert head._tree is None
    assert head.weight.is_meta
    assert head.weight.shape == (999, 4)


def test_one_and_two_classes_work() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    certain = HierarchicalSoftmax(4, 1)
    loss = certain(x, torch.zeros(3, dtype=torch.int64))
    loss.backward()
    assert loss.item() == 0
    assert x.grad is not None
    assert not x.grad.any()
    assert certain.topk(x, 1).classes.tolist() == [[0]] * 3
    assert certain.log_prob(x).tolist() == [[0]] * 3
    assert certain.log_prob(x, torch.zeros(3, 2, dtype=torch.int64)).tolist() == [[0, 0]] * 3
    two = HierarchicalSoftmax(4, 2)
    expected = F.binary_cross_entropy_with_logits(F.linear(x, two.weight, two.bias)[:, 0], torch.tensor([0.0, 1, 1]))
    torch.testing.assert_close(two(x, torch.tensor([0, 1, 1])), expected)


def test_an_empty_batch_is_fine() -> None:
    head, x = case()
    assert head.topk(x[:0], 3).classes.shape == (0, 3)
    assert head.log_prob(x[:0]).shape == (0, 11)
    assert head(x[:0], SEVERAL[:0, 0]).item() == 0


def test_autocast_changes_nothing() -> None:
    head, x = case()
    plain = head(x, SEVERAL), head.topk(x, 3).log_probs, head.log_prob(x, SEVERAL[:, :1].clamp(min=0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = head(x, SEVERAL), head.topk(x, 3).log_probs, head.log_prob(x, SEVERAL[:, :1].clamp(min=0))
    for left, right in zip(plain, under, strict=True):
        assert torch.equal(left, right)


def test_impossible_counts_are_refused() -> None:
    for counts, message in (
        (torch.ones(5, dtype=torch.int64), r"counts has shape \(5,\); expected \(4,\)"),
        (torch.tensor([1, 2, -3, 4]), r"counts\[2\]=-3; counts are at least 0"),
        (torch.full((4,), 2**62), "counts add up to more than"),
    ):
        with pytest.raises(InputError, match=message):
            HierarchicalSoftmax(3, 4, counts=counts)
    with pytest.raises(InputTypeError, match=r"counts is torch\.float32; give a tensor of whole numbers"):
        HierarchicalSoftmax(3, 4, counts=torch.ones(4))
    with pytest.raises(InputTypeError, match="counts is list"):
        HierarchicalSoftmax(3, 4, counts=[1, 2, 3, 4])  # type: ignore[arg-type]
