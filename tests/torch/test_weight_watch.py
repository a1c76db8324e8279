"""Weights that change from outside are noticed; rows that known gradients moved are re-hashed, all of them."""

import contextlib
import gc
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from head_cases import rehashed
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from manyclass import HashConfig
from manyclass.torch import CandidateSoftmax, RowAdam, RowSGD, load_checkpoint, save_checkpoint, weight_watch
from manyclass.torch.approximation_meter import ApproximationWarning

CLASSES, FEATURES = 2_000, 24
pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.approximation_meter.ApproximationWarning")


def new_head(**settings: Any) -> CandidateSoftmax:
    torch.manual_seed(0)
    return CandidateSoftmax(
        FEATURES, CLASSES, config=HashConfig.flat_sketch(64), meter_every=0, **{"mined_examples": 32, **settings}
    )


def recall(head: CandidateSoftmax) -> float:
    """Return the share of the exact best ten among 50 candidates."""
    x = torch.randn(200, FEATURES, generator=torch.Generator().manual_seed(7))
    found = head.shortlist(head.prepared(x), 50)
    with head.exact():
        best = head.topk(x, 10).classes
    return float((best[:, :, None] == found[:, None, :]).any(2).float().mean())


def other_weights() -> Tensor:
    return torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(9))


def loaded(head: CandidateSoftmax) -> None:
    head.load_state_dict(new_head().state_dict() | {"weight": other_weights()})


def five_percent(head: CandidateSoftmax) -> None:
    rows = np.random.default_rng(3).choice(CLASSES, CLASSES // 20, replace=False)
    head.weight.data[rows] = 10 * other_weights()[rows]


EDITS: dict[str, Callable[[CandidateSoftmax], object]] = {
    "copy_": lambda head: head.weight.detach().copy_(other_weights()),
    "init": lambda head: nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(4)),
    "one row": lambda head: head.weight.detach().__setitem__(5, 10 * other_weights()[5]),
    "data": lambda head: head.weight.data.copy_(other_weights()),
    "data, five percent": five_percent,
    "new data": lambda head: setattr(head.weight, "data", other_weights()),
    "bias": lambda head: nn.init.uniform_(head.bias, -9, 9, generator=torch.Generator().manual_seed(4)),
    "bias data": lambda head: head.bias.data.copy_(5 * other_weights()[:, 0]),
    "load_state_dict": loaded,
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("settings", [{}, {"normalize": True}], ids=str)
def test_a_searched_head_notices(edit: str, settings: dict[str, Any]) -> None:
    head, fresh = new_head(**settings).eval(), new_head(**settings).eval()
    recall(head)  # builds the index
    with torch.no_grad():
        EDITS[edit](head)
        EDITS[edit](fresh)
    assert recall(head) == recall(fresh) > 0.5


def test_an_averaged_model_is_searched_by_its_own_weights() -> None:
    head = new_head().eval()
    averaged = AveragedModel(head, avg_fn=lambda old, new, _: 0.5 * old + 0.5 * new)
    recall(averaged.module)
    for _ in range(3):
        with torch.no_grad():
            head.weight.copy_(torch.randn_like(head.weight))
        averaged.update_parameters(head)
        fresh = new_head().eval()
        fresh.load_state_dict(averaged.module.state_dict())
        assert recall(averaged.module) == recall(fresh)


def test_rows_named_by_their_owner_cost_no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    head = new_head().eval()
    recall(head)
    monkeypatch.setattr(head.index, "build", pytest.fail)
    with torch.no_grad():
        head.weight[[3, 5]] = 10 * other_weights()[[3, 5]]
    head.rebuild([5, 3])
    x = other_weights()[[3, 5]]
    assert head.topk(x, 1).classes[:, 0].tolist() == [3, 5]


def test_many_outside_changes_are_said_once() -> None:
    head = new_head().eval()
    x = torch.randn(2, FEATURES)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(15):
            head.topk(x, 1)
            with torch.no_grad():
                head.weight.mul_(1.01)
    assert [str(warning.message) for warning in said if warning.category is ApproximationWarning] == [
        "the head's weights were changed from outside 10 times, and each time all classes are hashed again; after "
        "changing a few rows yourself, call head.rebuild(ids)"
    ]


# Known gradients


def optimizers(head: CandidateSoftmax) -> dict[str, torch.optim.Optimizer]:
    return {
        "RowSGD": RowSGD(head.parameters(), lr=0.5, momentum=0.9),
        "RowAdam": RowAdam(head.parameters(), lr=0.1),
        "SparseAdam": torch.optim.SparseAdam(list(head.parameters()), lr=0.1),
        "SGD": torch.optim.SGD(head.parameters(), lr=0.5),
    }


@pytest.mark.parametrize("name", ["RowSGD", "RowAdam", "SparseAdam", "SGD"])
@pytest.mark.parametrize("micro_batches", [1, 2, 4, 8])
def test_every_moved_row_is_hashed_again(name: str, micro_batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    head = new_head(candidates=4, mined_candidates=4, tail=8, refresh_limit=400, refresh_steps=10**6)
    optimizer = optimizers(head)[name]
    seen = rehashed(head, monkeypatch)
    built = []
    monkeypatch.setattr(head.index, "build", lambda *args: built.append(1) or type(head.index).build(head.index, *args))
    moved: set[int] = set()
    generator = torch.Generator().manual_seed(1)
    for step in range(3 * micro_batches + 1):
        x, y = torch.randn(8, FEATURES, generator=generator), torch.randint(CLASSES, (8,), generator=generator)
        head(x, y).backward()
        if (step + 1) % micro_batches == 0 and step < 3 * micro_batches:
            before = head.weight.detach().clone()
            optimizer.step()
            optimizer.zero_grad()
            moved |= set((head.weight != before).any(1).nonzero()[:, 0].tolist())
    assert len(moved) > 50
    assert moved <= {row for ids in seen for row in ids}
    assert len(built) == 1  # an optimizer's step is no outside change


def test_a_dense_gradient_is_a_known_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    head = new_head()
    optimizer = RowSGD(head.parameters(), lr=0.1)
    x, y = torch.randn(8, FEATURES), torch.arange(8)
    head(x, y)
    monkeypatch.setattr(head.index, "build", pytest.fail)
    for _ in range(3):
        optimizer.zero_grad()
        with head.exact():
            head(x, y).backward()
        optimizer.step()
        head(x, y)


@pytest.mark.parametrize("make", [partial(RowSGD, lr=0.1, momentum=0.9), partial(RowAdam, lr=0.1)], ids=["sgd", "adam"])
@pytest.mark.parametrize("shared", [True, False])
def test_rows_that_move_inside_backward_are_known(make: Any, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    head = new_head(candidates=4, tail=8, shared=shared, row_update="fused", row_optimizer=make)
    x, y = torch.randn(8, FEATURES), torch.arange(8)
    head(x, y).backward()
    monkeypatch.setattr(head.index, "build", pytest.fail)
    for _ in range(3):
        head(x, y).backward()


@pytest.mark.parametrize("edited", ["weight", "bias"])
@pytest.mark.parametrize("name", ["RowSGD", "RowAdam", "SparseAdam", "SGD", "fused", "at_step"])
def test_a_step_does_not_hide_an_edit_before_it(name: str, edited: str) -> None:
    moving = {"row_update": name, "row_optimizer": partial(RowSGD, lr=0.1)} if name in ("fused", "at_step") else {}
    head = new_head(mined_examples=0, tail=8, **moving)
    optimizer = optimizers(head)["RowSGD" if moving else name]
    x, y = torch.randn(8, FEATURES, generator=torch.Generator().manual_seed(1)), torch.arange(20, 28)
    assert not (head.eval().topk(x, 1).classes == 7).all()  # there is an index
    with torch.no_grad():
        if edited == "bias":
            head.bias[7] += 50
        else:
            head.weight[7] = 20 * x.sum(0)
    head.train()
    with head.exact() if name == "SGD" else contextlib.nullcontext():
        head(x, y).backward()
    optimizer.step()
    with head.exact():
        best = head.eval().topk(x, 1).classes
    assert (best == 7).any()
    assert torch.equal(head.topk(x, 1).classes, best)


def test_a_step_with_a_closure_does_not_hide_an_edit_before_it() -> None:
    head = new_head(mined_examples=0, tail=8)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    x, y = torch.randn(8, FEATURES, generator=torch.Generator().manual_seed(1)), torch.arange(20, 28)
    head.eval().topk(x, 1)
    with torch.no_grad():
        head.weight[7] = 20 * x.sum(0)
    head.train()

    def closure() -> Tensor:
        optimizer.zero_grad()
        with head.exact():
            loss = head(x, y)
        loss.backward()
        return loss

    assert all(parameter.grad is None for parameter in head.parameters())
    optimizer.step(closure)
    with head.exact():
        best = head.eval().topk(x, 1).classes
    assert (best == 7).any()
    assert torch.equal(head.topk(x, 1).classes, best)


@pytest.mark.parametrize("sparse", [False, True])
def test_tied_rows_that_move_at_the_step_are_no_outside_change(sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    head = new_head(candidates=4, tail=8, bias=False, row_update="at_step", row_optimizer=partial(RowSGD, lr=0.1))
    embedding = nn.Embedding(CLASSES, FEATURES, sparse=sparse)
    head.weight = embedding.weight
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
    x, y = torch.randn(8, FEATURES, generator=torch.Generator().manual_seed(1)), torch.arange(8)
    head(x, y).backward()
    monkeypatch.setattr(head.index, "build", pytest.fail)
    for _ in range(4):
        optimizer.zero_grad()
        (head(x + embedding(y), y) + embedding(y).sum()).backward()
        before = head.weight.detach().clone()
        optimizer.step()
        assert (head.weight != before).any(1).sum() > 8  # those of the loss, too
        head(x, y)


def test_a_checkpoint_after_an_edit_holds_no_index_of_before(tmp_path: Path) -> None:
    head, other = nn.ModuleDict({"head": new_head()}).eval(), nn.ModuleDict({"head": new_head()}).eval()
    x = other_weights()[:20]
    head["head"].topk(x, 1)
    with torch.no_grad():
        head["head"].weight.copy_(other_weights())
    save_checkpoint(tmp_path / "edited", head)
    load_checkpoint(tmp_path / "edited", other)
    assert torch.equal(other["head"].topk(x, 1).classes, head["head"].topk(x, 1).classes)
    assert recall(other["head"]) == recall(head["head"]) > 0.5


def test_rows_that_never_move_leave_nothing_that_piles_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyclass.torch.refresh_schedule.MOST_PULLED", 3)
    head = new_head(candidates=4, tail=8)
    generator = torch.Generator().manual_seed(1)
    for _ in range(10):
        x, y = torch.randn(8, FEATURES, generator=generator), torch.randint(CLASSES, (8,), generator=generator)
        head(x, y).backward()
        assert len(head.index.schedule.pulled) <= 3
    RowSGD(head.parameters(), lr=0.1).step()
    assert head.weight.grad is not None
    assert set(head.index.schedule.touched.tolist()) == set(head.weight.grad._indices()[0].tolist())


def test_what_is_listened_to_is_forgotten_with_its_parameter() -> None:
    gc.collect()
    before = len(weight_watch._WATCHERS), len(weight_watch._AFTER_STEP)
    head = new_head(row_update="at_step", row_optimizer=partial(RowSGD, lr=0.1))
    head(torch.randn(2, FEATURES), torch.tensor([1, 2])).backward()
    assert len(weight_watch._WATCHERS) == before[0] + 2
    assert len(weight_watch._AFTER_STEP) == before[1] + 2
    del head
    gc.collect()
    assert (len(weight_watch._WATCHERS), len(weight_watch._AFTER_STEP)) == before
