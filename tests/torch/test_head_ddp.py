"""Data-parallel training on gloo, in two real processes."""

import os
import warnings
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from head_cases import CLASSES, FEATURES, random_tensor, rehashed, small_head
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from manyclass import ConfigError
from manyclass.torch import RowSGD

RANKS, STEPS, BATCH, INPUTS = 2, 3, 4, 6
ALL: dict[str, Any] = {"shared": False, "candidates": CLASSES}  # full softmax: the same whatever the split
FEW: dict[str, Any] = {"shared": True, "candidates": 3, "tail": 7, "refresh_steps": 5}


class Model(nn.Module):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.head = small_head(**settings)
        self.trunk = nn.Linear(INPUTS, FEATURES)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        loss: Tensor = self.head(self.trunk(x), target)
        return loss


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(10 * step + rank)
    return random_tensor(BATCH, INPUTS, seed=100 + 10 * step + rank), torch.randint(
        CLASSES, (BATCH,), generator=generator
    )


def run(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    optimizer = RowSGD(model.parameters(), lr=0.1, momentum=0.9, row_momentum="lazy")
    for x, target in batches:
        optimizer.zero_grad()
        model(x, target).backward()
        optimizer.step()
    return {name.removeprefix("module."): value for name, value in model.state_dict().items()}


def moved_but_not_hashed(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> list[int]:
    """Return rows that a step moved, also by gradients of other processes, and that the next one did not re-hash."""
    head = model.module.head
    optimizer = RowSGD(model.parameters(), lr=0.1)
    hashed = rehashed(head, pytest.MonkeyPatch())  # of this process alone, which ends with the test
    moved: set[int] = set()
    for x, target in batches:
        optimizer.zero_grad()
        model(x, target).backward()
        left = moved - {row for some in hashed for row in some}
        before = head.weight.detach().clone()
        optimizer.step()
        moved = set((head.weight != before).any(1).nonzero()[:, 0].tolist())
        hashed.clear()
        if left:
            return sorted(left)
    return []


def work(rank: int, folder: str) -> None:
    warnings.simplefilter("ignore")  # few classes: most are touched
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS, timeout=timedelta(seconds=120)
    )
    batches = [batch(step, rank) for step in range(STEPS)]
    results: dict[str, Any] = {
        "all": run(DistributedDataParallel(Model(**ALL)), batches),
        "few": run(DistributedDataParallel(Model(**FEW)), batches),
    }
    # Each step re-hashes what moved, and one in turn.
    once: dict[str, Any] = {"candidates": 3, "tail": 7, "refresh_steps": 10**6, "meter_every": 0}
    results["left"] = moved_but_not_hashed(DistributedDataParallel(Model(**once)), batches)
    changed = Model(**FEW)
    run(DistributedDataParallel(changed), batches)
    changed.head.add_classes(rows=random_tensor(2, FEATURES, seed=4))
    targets = {int(c) for step in range(STEPS) for other in range(RANKS) for c in batch(step, other)[1]}
    changed.head.remove_classes(sorted(set(range(CLASSES)) - targets)[:9])
    results["changed"] = run(DistributedDataParallel(changed), batches)  # what knew the old size is made anew
    if rank == 1:  # nothing to learn from here: the other's gradients must come through
        batches[1] = (batches[1][0], torch.full_like(batches[1][1], -100))
    results["ignored"] = run(DistributedDataParallel(Model(**FEW)), batches)
    fused = Model(row_update="fused", row_optimizer=partial(RowSGD, lr=0.1))
    before = fused.head.weight.detach().clone()
    try:
        fused(*batches[0])
    except ConfigError as error:
        results["refused"] = str(error)
    results["untouched"] = torch.equal(fused.head.weight, before)
    torch.save(results, f"{folder}/{rank}")
    torch.distributed.destroy_process_group()


def test_two_processes_train_one_head(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(work, (str(tmp_path),), nprocs=RANKS)
    first, second = (torch.load(tmp_path / str(rank)) for rank in range(RANKS))
    for name in ("all", "few", "ignored", "changed"):
        for key, value in first[name].items():
            assert torch.equal(value, second[name][key]), (name, key)
    assert not torch.equal(first["few"]["head.weight"], first["ignored"]["head.weight"])

    parts = [[batch(step, rank) for rank in range(RANKS)] for step in range(STEPS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        single = run(Model(**ALL), [tuple(torch.cat(part) for part in zip(*both, strict=True)) for both in parts])
    start = Model(**ALL).state_dict()
    for key, value in single.items():
        assert not torch.equal(value, start[key])
        torch.testing.assert_close(first["all"][key], value, rtol=1e-5, atol=1e-6)

    assert first["left"] == second["left"] == []
    assert "row_update='gradient'" in first["refused"]
    assert first["untouched"]
