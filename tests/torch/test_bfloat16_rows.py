"""Heads whose rows are bfloat16: they learn like float32, hold their rows once, and come back bit for bit."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import PIPELINES
from head_cases import CLASSES, FEATURES, random_tensor, small_head
from torch import Tensor

from manyclass import ClassIndex, InputError
from manyclass._row_types import BF16
from manyclass.torch import (
    CandidateSoftmax,
    HierarchicalSoftmax,
    RowAdagrad,
    RowAdam,
    RowSGD,
    SampledSoftmax,
    load_checkpoint,
    save_checkpoint,
)

BF = torch.bfloat16
OPTIMIZERS: dict[str, Any] = {
    "sgd": partial(RowSGD, lr=2.0),
    "lazy momentum": partial(RowSGD, lr=0.5, momentum=0.8, row_momentum="lazy"),
    "adagrad": partial(RowAdagrad, lr=0.3),
    "adam": partial(RowAdam, lr=0.05),
}
HEADS: dict[str, Any] = {
    "candidate": partial(CandidateSoftmax, tail=64),
    "own candidates": partial(CandidateSoftmax, tail=64, shared=False, candidates=32),
    "cosine": partial(CandidateSoftmax, tail=64, normalize=True, temperature=0.1),
    "sampled": partial(SampledSoftmax, samples=128),
    "hierarchical": HierarchicalSoftmax,
}
quiet = pytest.mark.filterwarnings("ignore::manyclass.torch.ApproximationWarning")


def batch(step: int, classes: int = 300, features: int = 24, count: int = 64) -> tuple[Tensor, Tensor]:
    """Return noisy centres of random classes, and which they are."""
    random = torch.Generator().manual_seed(step)
    target = torch.randint(classes, (count,), generator=random)
    centres = random_tensor(classes, features, seed=5)
    return centres[target] + 0.3 * torch.randn(count, features, generator=random), target


def trained(head: Any, steps: range, optimizer: Any = None) -> Any:
    for step in steps:
        x, y = batch(step)
        head(x, y).backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
    return head


def accuracy(head: Any) -> float:
    x, y = batch(10_000, count=2000)
    head.eval()
    right = (head.predict(x) == y).float().mean()
    head.train()
    return float(right)


def new_head(kind: str, dtype: torch.dtype, optimizer: str = "sgd", **settings: Any) -> Any:
    torch.manual_seed(0)
    return HEADS[kind](24, 300, dtype=dtype, row_update="fused", row_optimizer=OPTIMIZERS[optimizer], **settings)


@quiet
@pytest.mark.parametrize("kind", HEADS)
def test_every_head_learns_about_as_well_as_with_float32(kind: str) -> None:
    narrow, wide = (trained(new_head(kind, dtype), range(150)) for dtype in (BF, torch.float32))
    assert narrow.weight.dtype == BF
    assert narrow.bias.dtype == torch.float32
    assert accuracy(wide) > 0.4  # else it says nothing
    assert accuracy(narrow) > accuracy(wide) - 0.03


@quiet
@pytest.mark.parametrize("mode", ["fused", "at_step", "gradient"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_learns_about_as_well_as_with_float32(optimizer: str, mode: Any) -> None:
    found = {}
    for dtype in (BF, torch.float32):
        torch.manual_seed(0)
        make = OPTIMIZERS[optimizer]
        given = {} if mode == "gradient" else {"row_update": mode, "row_optimizer": make}
        head = SampledSoftmax(24, 300, samples=128, dtype=dtype, **given)
        outer = {"gradient": make, "at_step": partial(torch.optim.SGD, lr=0.1), "fused": lambda _: None}[mode]
        trained(head, range(120), outer(head.parameters()))
        found[dtype] = accuracy(head)
        if mode != "gradient":
            states = head.row_optimizer.state.get(head.weight, {}).values()
            assert all(state.dtype == dtype or not state.dim() for state in states)
    assert found[torch.float32] > 0.4
    assert found[BF] > found[torch.float32] - 0.03


@quiet
@pytest.mark.parametrize("kind", ["candidate", "own candidates", "sampled"])
def test_threads_do_not_matter_and_the_seed_does(kind: str) -> None:
    before, weights = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            weights.append(trained(new_head(kind, BF), range(3)).weight.detach())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
    torch.manual_seed(0)
    other = HEADS[kind](24, 300, dtype=BF, row_update="fused", row_optimizer=partial(RowSGD, lr=2.0, seed=1))
    assert not torch.equal(trained(other, range(3)).weight, weights[0])


@quiet
@pytest.mark.parametrize("settings", [{}, {"normalize": True}], ids=["plain", "cosine"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("fused", [True, False])
def test_a_resumed_run_goes_on_bit_for_bit(
    optimizer: str, fused: bool, settings: dict[str, Any], tmp_path: Path
) -> None:
    def made() -> tuple[Any, Any]:
        if fused:
            return new_head("candidate", BF, optimizer, refresh_steps=20, **settings), None
        torch.manual_seed(0)
        head = CandidateSoftmax(24, 300, tail=64, dtype=BF, refresh_steps=20, **settings)
        return head, OPTIMIZERS[optimizer](head.parameters())

    first, step = made()
    trained(first, range(4), step)
    save_checkpoint(tmp_path / "run", first, step)
    other, other_step = made()
    load_checkpoint(tmp_path / "run", other, other_step)
    assert torch.equal(other.weight, first.weight)
    for head, steps in ((first, step), (other, other_step)):
        trained(head, range(4, 8), steps)
    assert torch.equal(other.weight, first.weight)
    assert torch.equal(other.bias, first.bias)


@quiet
def test_the_index_looks_at_the_rows_themselves() -> None:
    head = small_head(dtype=BF, meter_every=0)
    head(random_tensor(5, FEATURES), torch.tensor([3, 59, 7, 20, 11]))
    built = head.index.built
    assert built is not None
    assert built.rows.dtype == BF16
    assert built.rows.__array_interface__["data"][0] == head.weight.data_ptr()
    cosine = small_head(dtype=BF, normalize=True)
    cosine.rebuild()
    assert cosine.index.built is not None
    assert cosine.index.built.rows.dtype == BF16


@quiet
def test_the_index_finds_what_one_over_the_same_numbers_in_float32_finds() -> None:
    narrow = small_head(dtype=BF)
    wide = small_head()
    with torch.no_grad():
        wide.weight.copy_(narrow.weight.float())
        wide.bias.copy_(narrow.bias)
    x = random_tensor(9, FEATURES, seed=4)
    assert torch.equal(narrow.shortlist(x, 7), wide.shortlist(x, 7))
    with narrow.exact(), wide.exact():
        torch.testing.assert_close(narrow.topk(x, 5).log_probs, wide.topk(x, 5).log_probs)
    narrow.eval(), wide.eval()
    left, right = narrow.topk(x, 5), wide.topk(x, 5)
    assert torch.equal(left.classes, right.classes)
    torch.testing.assert_close(left.logits, right.logits)


def bits(rows: Tensor) -> Any:
    return rows.view(torch.uint16).numpy().view(BF16)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_kind_of_index_is_built_from_marked_bits(pipeline: str) -> None:
    weight, queries = random_tensor(300, 40, seed=3).to(BF), random_tensor(6, 40, seed=4).numpy()
    narrow, wide = (
        ClassIndex.build(rows, config=PIPELINES[pipeline]) for rows in (bits(weight), weight.float().numpy())
    )
    np.testing.assert_array_equal(narrow.search(queries, 9).classes, wide.search(queries, 9).classes)


def test_an_index_that_configures_itself_does_so_from_marked_bits() -> None:
    weight, queries = random_tensor(3000, 24, seed=3).to(BF), random_tensor(400, 24, seed=4).numpy()
    narrow, wide = (ClassIndex.build(rows, queries=queries) for rows in (bits(weight), weight.float().numpy()))
    assert narrow.config == wide.config
    np.testing.assert_array_equal(narrow.search(queries, 9).classes, wide.search(queries, 9).classes)


def test_an_index_over_marked_bits_is_one_over_the_same_numbers(tmp_path: Path) -> None:
    weight = random_tensor(CLASSES, FEATURES, seed=3).to(BF)
    queries, more = random_tensor(8, FEATURES, seed=4).numpy(), random_tensor(3, FEATURES, seed=6).to(BF)
    narrow, wide = ClassIndex.build(bits(weight)), ClassIndex.build(weight.float().numpy())
    for change in ("built", "refreshed", "appended"):
        if change == "refreshed":
            narrow.refresh([1, 5], bits(more[:2]))
            wide.refresh([1, 5], more[:2].float().numpy())
        if change == "appended":
            narrow.append(bits(more))
            wide.append(more.float().numpy())
        left, right = narrow.search(queries, 5), wide.search(queries, 5)
        np.testing.assert_array_equal(left.classes, right.classes)
        np.testing.assert_array_equal(left.logits, right.logits)
    narrow.save(tmp_path / "index.mc")
    loaded = ClassIndex.load(tmp_path / "index.mc")
    np.testing.assert_array_equal(loaded.search(queries, 5).classes, narrow.search(queries, 5).classes)
    with pytest.raises(InputError, match="overflows"):
        narrow.refresh([0], np.float32([[3.4e38, *[0] * (FEATURES - 1)]]))


def test_a_bias_of_float32_and_a_linear_layer_of_one_type() -> None:
    head = small_head(dtype=BF)
    linear = head.to_linear()
    assert linear.weight is head.weight
    assert linear.bias.dtype == BF
    assert linear(random_tensor(2, FEATURES).to(BF)).dtype == BF


def test_rows_that_are_not_contiguous_are_refused() -> None:
    weight = torch.nn.Parameter(torch.randn(4, 6).to(BF).T)
    weight.grad = torch.sparse_coo_tensor([[1]], torch.ones(1, 4).to(BF), weight.shape, check_invariants=True)
    before = weight.detach().clone()
    with pytest.raises(InputError, match="contiguous"):
        RowSGD([weight], lr=0.1).step()
    assert torch.equal(weight, before)


def test_a_gradient_of_float32_is_not_rounded_first() -> None:
    weight = torch.nn.Parameter(torch.zeros(1, 4000, dtype=BF))
    gradient = torch.full((1, 4000), -(1 + 2.0**-10))
    RowSGD([weight], lr=1.0).update_rows(weight, torch.tensor([0]), gradient)
    assert 0.05 < float((weight > 1).float().mean()) < 0.3  # one in eight goes up; rounded to nearest, none would
