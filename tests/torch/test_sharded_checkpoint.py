"""Checkpoints of sharded heads: same ranks, the same bits; other ranks, the same rows and states."""

import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from sharded_cases import CLASSES, FEATURES, INPUTS, MINED, batch, in_processes, rows_of, sharded, trunk
from torch import Tensor, nn

from manyclass import ManyclassError
from manyclass._atomic_file import _TEMP_SUFFIX
from manyclass.torch import (
    RowAdagrad,
    RowAdam,
    ShardedSoftmax,
    load_checkpoint,
    load_sharded_checkpoint,
    save_checkpoint,
    save_sharded_checkpoint,
)

STEPS = 3


class Model(nn.Module):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.trunk, self.head = trunk(), sharded(**{**MINED, **settings})

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        loss: Tensor = self.head(self.trunk(x), target)
        return loss


def train(model: Model, optimizer: Any, rank: int, first: int) -> list[float]:
    losses = []
    for step in range(first, first + STEPS):
        optimizer.zero_grad()
        loss = model(*batch(step, rank % 3))
        loss.backward()
        model.trunk.weight.grad = None  # each rank's would differ: only the head is of interest
        model.trunk.bias.grad = None
        optimizer.step()
        losses.append(loss.item())
    return losses


def states(model: Model, optimizer: Any) -> dict[str, Tensor]:
    """Return rows and states of all ranks by class."""
    found = rows_of(model.head)
    for name in ("weight", "bias"):
        for key, value in optimizer.state[getattr(model.head, name)].items():
            if value.dim():
                found[f"{name} {key}"] = model.head._of_all_ranks(value)
    return found


def made(kind: Any = RowAdam, **settings: Any) -> tuple[Model, Any]:
    model = Model(**settings)
    return model, kind(model.parameters(), lr=0.05)


def save(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    model, optimizer = made()
    train(model, optimizer, rank, 0)
    save_sharded_checkpoint(f"{folder}/saved", model, step=1)  # replaced by the next
    if rank == 0:  # what a writer leaves that was killed
        Path(folder, "saved", f".rank-00001-of-00002-{'0' * 16}.safetensors.{'0' * 16}{_TEMP_SUFFIX}").touch()
    save_sharded_checkpoint(f"{folder}/saved", model, optimizer, step=STEPS, extra={"note": "here"})
    found = {"states": states(model, optimizer), "losses": train(model, optimizer, rank, STEPS)}
    again, other = made()
    info = load_sharded_checkpoint(f"{folder}/saved", again, other)
    found |= {"info": [info.step, info.extra], "again": states(again, other)}
    found["losses again"] = train(again, other, rank, STEPS)
    fused = Model(row_update="fused", row_optimizer=partial(RowAdagrad, lr=0.05))
    train(fused, torch.optim.SGD(fused.trunk.parameters(), lr=0.1), rank, 0)
    save_sharded_checkpoint(f"{folder}/fused", fused)
    found["fused"] = states(fused, fused.head.row_optimizer)
    own = next(Path(folder, "saved").glob(f"rank-{1 - rank:05d}*"))
    found["refused"] = refusal(lambda: load_checkpoint(own, again, other))
    found["of one rank"] = refusal(lambda: save_checkpoint(f"{folder}/one{rank}", again))
    return found


def load(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    model, optimizer = made()
    load_sharded_checkpoint(f"{folder}/saved", model, optimizer)
    found: dict[str, Any] = {"states": states(model, optimizer), "losses": train(model, optimizer, rank, STEPS)}
    found["mining"] = model.head.mining.settings()
    fused = Model(row_update="fused", row_optimizer=partial(RowAdagrad, lr=0.05))
    load_sharded_checkpoint(f"{folder}/fused", fused)
    found["fused"] = states(fused, fused.head.row_optimizer)
    model, optimizer = made()
    untouched = states(model, optimizer)
    found["damaged"] = refusal(lambda: load_sharded_checkpoint(f"{folder}/damaged", model, optimizer))
    found["missing"] = refusal(lambda: load_sharded_checkpoint(f"{folder}/missing", model, optimizer))
    found["nowhere"] = refusal(lambda: load_sharded_checkpoint(f"{folder}/nowhere", model, optimizer))
    found["changed"] = any(not torch.equal(part, untouched[name]) for name, part in states(model, optimizer).items())
    larger = nn.ModuleDict({"trunk": trunk(), "head": ShardedSoftmax(FEATURES, CLASSES + 1)})
    found["larger"] = refusal(lambda: load_sharded_checkpoint(f"{folder}/saved", larger))
    plain = nn.Linear(INPUTS, 2)
    found["no head"] = refusal(lambda: save_sharded_checkpoint(f"{folder}/none", plain))
    return found


def refusal(call: Any) -> str:
    try:
        call()
    except (ManyclassError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def saved(folder: Path) -> list[dict[str, Any]]:
    return in_processes(save, 2, folder)


@pytest.fixture(scope="module")
def loaded(folder: Path, saved: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for name in ("damaged", "missing"):
        shutil.copytree(folder / "saved", folder / name)
    file = sorted((folder / "damaged").glob("rank-00001*"))[0]
    content = bytearray(file.read_bytes())
    content[-40] ^= 1
    file.write_bytes(content)
    os.remove(sorted((folder / "missing").glob("rank-00000*"))[0])
    return in_processes(load, 3, folder)


def assert_equal(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert got.keys() == expected.keys()
    for name, part in expected.items():
        assert torch.equal(got[name], part), name


def test_the_same_ranks_go_on_with_the_same_bits(saved: list[dict[str, Any]]) -> None:
    for of_rank in saved:
        assert of_rank["info"] == [STEPS, {"note": "here"}]
        assert len(of_rank["states"]) == 6
        assert_equal(of_rank["again"], of_rank["states"])
        assert of_rank["losses again"] == of_rank["losses"]


def test_three_ranks_read_what_two_have_saved(saved: list[dict[str, Any]], loaded: list[dict[str, Any]]) -> None:
    for of_rank in loaded:
        assert_equal(of_rank["states"], saved[0]["states"])
        assert_equal(of_rank["fused"], saved[0]["fused"])
        assert of_rank["losses"] == loaded[0]["losses"]
        assert of_rank["mining"] == loaded[0]["mining"]
        assert of_rank["mining"]["look_ups"] > STEPS


def test_nothing_but_the_newest_files_is_kept(folder: Path, saved: list[dict[str, Any]]) -> None:
    manifest = json.loads((folder / "saved" / "manifest.json").read_text())
    assert sorted(manifest["files"]) == sorted(path.name for path in (folder / "saved").glob("rank*"))
    assert len(manifest["files"]) == 2
    assert len(list((folder / "saved").iterdir())) == 3


def test_bad_files_are_refused_on_every_rank(saved: list[dict[str, Any]], loaded: list[dict[str, Any]]) -> None:
    for of_rank in saved:  # the other rank's file, which has another row or another owner
        assert "build the model as it was" in of_rank["refused"]
        assert "let every rank call save_sharded_checkpoint" in of_rank["of one rank"]
    for of_rank in loaded:
        assert "checksum" in of_rank["damaged"]
        assert "is missing; copy the whole folder" in of_rank["missing"]
        assert "No such file" in of_rank["nowhere"]
        assert not of_rank["changed"]
        assert f"{CLASSES} classes in 'head', the model {CLASSES + 1}" in of_rank["larger"]
        assert "has no ShardedSoftmax" in of_rank["no head"]
