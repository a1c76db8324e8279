"""A head among torch's own tools: functional calls, activation checkpointing, threads, clipping, DataLoader workers."""

import threading
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from head_cases import CLASSES, EXAMPLES, FEATURES, random_tensor, small_head
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from manyclass import InputError
from manyclass.torch import (
    CandidateSoftmax,
    RowAdam,
    RowSGD,
    clip_grad_norm_,
    load_checkpoint,
    make_head,
    save_checkpoint,
)

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.approximation_meter.ApproximationWarning")
X = random_tensor(EXAMPLES, FEATURES)
TARGET = torch.tensor([3, 0, 59, 3, 7])


@pytest.mark.parametrize("name", ["candidate", "wta", "full", "sampled", "hierarchical"])
def test_functional_call_takes_the_heads_own_state_dict(name: str) -> None:
    torch.manual_seed(0)
    head = make_head(name, FEATURES, CLASSES).eval()
    expected = head(X, TARGET)
    for state in (head.state_dict(), dict(head.named_parameters())):
        state = {key: value for key, value in state.items() if key != "_extra_state"}
        assert torch.equal(torch.func.functional_call(head, state, (X, TARGET)), expected)
    moved = {key: 2 * value for key, value in head.named_parameters()}
    assert not torch.equal(torch.func.functional_call(head, moved, (X, TARGET)), expected)
    assert torch.equal(head(X, TARGET), expected)


@pytest.mark.parametrize("name", ["candidate", "own", "wta", "full", "sampled", "hierarchical"])
def test_functional_call_with_computed_weights_has_the_gradients_of_plain_ones(name: str) -> None:
    torch.manual_seed(0)
    own = {"shared": False, "candidates": 5} if name == "own" else {}
    head = make_head("candidate" if name == "own" else name, FEATURES, CLASSES, **own).eval()
    plain = deepcopy(head)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.sub_(0.1)
    computed = {key: value - 0.1 * torch.ones_like(value) for key, value in head.named_parameters()}
    torch.manual_seed(1)
    torch.func.functional_call(head, computed, (X, TARGET)).backward()
    torch.manual_seed(1)
    plain(X, TARGET).backward()
    for (key, ours), (_, theirs) in zip(head.named_parameters(), plain.named_parameters(), strict=True):
        assert ours.grad is not None, key
        assert theirs.grad is not None, key
        torch.testing.assert_close(ours.grad.to_dense(), theirs.grad.to_dense(), msg=key)


@pytest.mark.parametrize("settings", [{}, {"shared": False}, {"subtract_mean": True}], ids=str)
@pytest.mark.parametrize("fused", [False, True])
def test_activation_checkpointing_computes_the_same_step(settings: dict[str, Any], fused: bool) -> None:
    rows: dict[str, Any] = {"row_update": "fused", "row_optimizer": partial(RowSGD, lr=0.1)} if fused else {}
    results = []
    for recompute in (False, True):
        head, trunk = small_head(candidates=3, tail=7, refresh_steps=5, **settings, **rows), nn.Linear(4, FEATURES)
        nn.init.ones_(trunk.weight)
        optimizer = RowSGD([*trunk.parameters(), *([] if fused else head.parameters())], lr=0.1)
        for step in range(4):
            x = random_tensor(EXAMPLES, 4, seed=step)
            optimizer.zero_grad()

            def run(x: Tensor, head: nn.Module = head, trunk: nn.Module = trunk) -> Tensor:
                loss: Tensor = head(trunk(x), TARGET)
                return loss

            loss = checkpoint(run, x, use_reentrant=False) if recompute else run(x)
            loss.backward()
            optimizer.step()
        results.append((head.weight.detach(), trunk.weight.detach(), head.index.schedule.step, head.input_mean))
    for plain, again in zip(*results, strict=True):
        assert torch.equal(plain, again) if isinstance(plain, Tensor) else plain == again


def test_exact_in_one_thread_is_that_threads_alone() -> None:
    head = small_head(candidates=2, tail=0).eval()
    approximate = head.log_prob(X)
    seen: list[Tensor] = []
    with head.exact():
        worker = threading.Thread(target=lambda: seen.append(head.log_prob(X)))
        worker.start()
        worker.join()
        assert head.log_prob(X).isfinite().all()
    assert torch.equal(seen[0], approximate)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_sparse_gradients_are_clipped_as_dense_ones_are(norm_type: float) -> None:
    head, trunk = small_head(candidates=3, tail=7), nn.Linear(4, FEATURES)
    for _ in range(2):
        head(trunk(random_tensor(EXAMPLES, 4)), TARGET).backward()
    parameters = [*trunk.parameters(), *head.parameters()]
    dense = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
    for copy, parameter in zip(dense, parameters, strict=True):
        assert parameter.grad is not None
        copy.grad = parameter.grad.to_dense().clone()
    expected = nn.utils.clip_grad_norm_(dense, 0.1, norm_type)
    torch.testing.assert_close(clip_grad_norm_(parameters, 0.1, norm_type), expected)
    for copy, parameter in zip(dense, parameters, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad.to_dense(), copy.grad)
    assert clip_grad_norm_([], 1.0) == 0
    head.zero_grad()
    head(X, torch.full((EXAMPLES,), -100)).backward()  # rows without any
    assert clip_grad_norm_(head.parameters(), 0.1, norm_type) == 0
    with pytest.raises(InputError, match="max_norm=0"):
        clip_grad_norm_(parameters, 0)


def test_a_checkpoint_between_micro_batches_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    def new() -> tuple[nn.ModuleDict, torch.optim.Optimizer]:
        head = small_head(candidates=3, tail=7, row_update="at_step", row_optimizer=partial(RowAdam, lr=0.1))
        model = nn.ModuleDict({"trunk": nn.Linear(4, FEATURES), "head": head})
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def run(model: nn.ModuleDict, optimizer: torch.optim.Optimizer, begin: int, end: int) -> None:
        for part in range(begin, end):
            model["head"](model["trunk"](random_tensor(EXAMPLES, 4, seed=part)), TARGET).backward()
            model["trunk"].zero_grad()  # its gradient is not part of a checkpoint
            if part % 3 == 2:
                optimizer.step()

    whole, optimizer = new()
    run(whole, optimizer, 0, 4)
    save_checkpoint(tmp_path / "run.safetensors", whole, optimizer)
    run(whole, optimizer, 4, 9)
    resumed, optimizer = new()
    load_checkpoint(tmp_path / "run.safetensors", resumed, optimizer)
    run(resumed, optimizer, 4, 9)
    for ours, theirs in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_data_loader_workers_and_a_head_get_along() -> None:
    head = CandidateSoftmax(FEATURES, CLASSES, candidates=3)
    optimizer = RowSGD(head.parameters(), lr=0.1)
    data = TensorDataset(random_tensor(40, FEATURES), torch.arange(40))
    head(X, TARGET)  # the native threads are up before the workers are forked
    for x, y in DataLoader(data, batch_size=8, num_workers=2):
        optimizer.zero_grad()
        head(x, y).backward()
        optimizer.step()
