"""Laws of checkpoints: all comes back bit for bit, a resumed run is the uninterrupted one, damage changes nothing.

Heads here are stand-ins with the methods a checkpoint asks for; those of the library are tested beside them.
"""

import copy
import itertools
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import PIPELINES
from safetensors.torch import load_file
from torch import Tensor, nn

from manyclass.config import HashConfig
from manyclass.errors import CorruptFileError, FileError, FileVersionError, InputError, InputTypeError
from manyclass.torch import tensor_file as _tensor_file
from manyclass.torch.candidate_softmax import CandidateSoftmax
from manyclass.torch.checkpoint import checkpoint_info, load_checkpoint, save_checkpoint
from manyclass.torch.row_head import RowHead
from manyclass.torch.row_optimizers import RowAdagrad, RowAdam, RowSGD
from manyclass.torch.row_products import pair_logits
from manyclass.torch.tensor_file import read_tensors, write_tensors
from manyclass.training.loop import TrunkAndHead

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, betas=(0.8, 0.95)),
    "tensor rate": lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(0.01)),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
}


class CountingHead(nn.Module):
    """A head with a table that lags behind its weight, a cursor and a generator of its own."""

    def __init__(self, features: int = 6, classes: int = 9) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, features) * 0.1)
        self.generator = torch.Generator().manual_seed(5)
        self.cursor = 0
        self.table = self.weight.detach().clone()

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        noise = torch.randn(input.shape, generator=self.generator) * 0.1
        self.cursor = (self.cursor + 1) % len(self.weight)
        self.table[self.cursor] = self.weight.detach()[self.cursor]
        return nn.functional.cross_entropy((input + noise) @ (self.weight + 0.1 * self.table).T, target)

    def extra_tensors(self, index: bool = True) -> dict[str, Tensor]:
        kept = {"generator": self.generator.get_state()}
        return kept | {"tables.only": self.table} if index else kept

    def extra_settings(self) -> dict[str, Any]:
        return {"cursor": self.cursor}

    def check_restore(self, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
        if not 0 <= settings["cursor"] < len(self.weight):
            raise FileError(f"cursor={settings['cursor']} is beyond the classes")

    def restore(self, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
        self.cursor = settings["cursor"]
        self.generator.set_state(tensors["generator"])
        self.table = tensors["tables.only"].clone() if "tables.only" in tensors else self.weight.detach().clone()


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3))
        self.head = CountingHead()

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return self.head(self.trunk(input), target)


def network(seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return Network()


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, begin: int, end: int) -> list[float]:
    losses = []
    for step in range(begin, end):
        generator = torch.Generator().manual_seed(step)
        target = torch.randint(9, (8,), generator=generator)
        input = torch.randn(8, 4, generator=generator) + target[:, None]
        optimizer.zero_grad()
        loss = model(input, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def snapshot(model: nn.Module) -> dict[str, Any]:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    heads = [module for module in model.modules() if isinstance(module, CountingHead)]
    return state | {f"head {number}": head.extra_settings() for number, head in enumerate(heads)} | {
        f"head {number} {name}": tensor.clone()
        for number, head in enumerate(heads) for name, tensor in head.extra_tensors().items()
    }  # fmt: skip


def same(left: Any, right: Any) -> bool:
    """Equal to the last bit, types included."""
    if isinstance(left, Tensor):
        if not isinstance(right, Tensor) or left.dtype != right.dtype or left.shape != right.shape:
            return False
        return left.reshape(-1).view(torch.uint8).equal(right.reshape(-1).view(torch.uint8))
    if isinstance(left, dict):
        return set(left) == set(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.safetensors"


# What goes in comes out


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_resumed_run_is_bit_identical_to_the_uninterrupted_one(path: Path, name: str) -> None:
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    steps(model, optimizer, 0, 5)
    save_checkpoint(path, model, optimizer, step=5, extra={"note": [1, None, "x"]})
    expected = steps(model, optimizer, 5, 12)

    resumed = network(seed=1)
    resumed_optimizer = OPTIMIZERS[name](resumed.parameters())
    steps(resumed, resumed_optimizer, 20, 23)  # whatever was there before must not matter
    info = load_checkpoint(path, resumed, resumed_optimizer)
    assert (info.step, info.extra, info.index) == (5, {"note": [1, None, "x"]}, True)
    assert checkpoint_info(path) == info
    assert steps(resumed, resumed_optimizer, 5, 12) == expected
    assert same(snapshot(resumed), snapshot(model))
    assert same(resumed_optimizer.state_dict(), optimizer.state_dict())


class SomeRows(RowHead):
    """A head that touches the rows near each positive."""

    def _losses(self, input: Tensor, positives: Tensor) -> Tensor:
        ids = (positives[:, :1] + torch.arange(4)) % self.num_classes
        logits = pair_logits(input, ids, self.weight, self.bias, self._update)
        return logits.logsumexp(1) - logits[:, 0]


ROW_OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": partial(RowSGD, lr=0.1, momentum=0.9, row_momentum="lazy"),
    "adagrad": partial(RowAdagrad, lr=0.1),
    "adam": partial(RowAdam, lr=0.01),
}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", ROW_OPTIMIZERS)
def test_row_optimizers_resume_bit_identically(path: Path, name: str, fused: bool) -> None:
    make = ROW_OPTIMIZERS[name]

    def start(seed: int) -> tuple[TrunkAndHead, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        trunk = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3))
        if fused:
            model = TrunkAndHead(trunk, SomeRows(6, 9, row_update="fused", row_optimizer=make))
            return model, torch.optim.AdamW(trunk.parameters(), lr=0.01)
        model = TrunkAndHead(trunk, SomeRows(6, 9))
        return model, make(model.parameters())

    model, optimizer = start(0)
    steps(model, optimizer, 0, 5)
    save_checkpoint(path, model, optimizer, step=5)
    expected = steps(model, optimizer, 5, 12)
    resumed, resumed_optimizer = start(1)
    load_checkpoint(path, resumed, resumed_optimizer)
    assert steps(resumed, resumed_optimizer, 5, 12) == expected
    assert same(dict(resumed.state_dict()), dict(model.state_dict()))
    assert same(resumed_optimizer.state_dict(), optimizer.state_dict())
    if fused:
        assert same(resumed.head.row_optimizer.state_dict(), model.head.row_optimizer.state_dict())
        assert resumed.head.row_optimizer.state  # there was something to bring back


WTA: dict[str, dict[str, Any]] = {
    "all classes": {},
    "flat sketch": {"config": PIPELINES["flat sketch"]},
    "two sketches, own candidates": {"config": PIPELINES["flat sketch, re-ranked"], "shared": False},
    "tables and sketch, cosine": {"config": PIPELINES["tables and sketch"], "normalize": True, "temperature": 0.1},
    "probes and sketch, centred": {"config": PIPELINES["probes and sketch"], "subtract_mean": True, "bias": False},
    "re-score, logistic": {"config": PIPELINES["re-score"], "output": "logistic"},
    "paper, names": {"config": PIPELINES["paper"], "shared": False, "tail": 0, "names": [f"{n} ü" for n in range(200)]},
}


def wta_steps(model: nn.Module, optimizer: torch.optim.Optimizer, begin: int, end: int) -> list[float]:
    losses = []
    for step in range(begin, end):
        generator = torch.Generator().manual_seed(step)
        target = torch.randint(200, (8,), generator=generator)
        optimizer.zero_grad()
        loss = model(torch.randn(8, 12, generator=generator), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.filterwarnings("ignore:a batch touches")
@pytest.mark.parametrize("name", WTA)
def test_a_wta_head_resumes_bit_identically_with_its_tables(path: Path, name: str) -> None:
    def start(seed: int) -> tuple[TrunkAndHead, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        settings = {"candidates": 10, "tail": 8, "refresh_limit": 12, "refresh_steps": 20, "meter_every": 3} | WTA[name]
        model = TrunkAndHead(nn.Linear(12, 16), CandidateSoftmax(16, 200, **settings))
        return model, RowSGD(model.parameters(), lr=0.05, momentum=0.9)

    model, optimizer = start(0)
    wta_steps(model, optimizer, 0, 9)
    save_checkpoint(path, model, optimizer, step=9)
    before = model.head.shortlist(torch.randn(5, 16), 10)
    expected = wta_steps(model, optimizer, 9, 25)

    resumed, resumed_optimizer = start(1)
    resumed.head.names = None
    wta_steps(resumed, resumed_optimizer, 50, 53)
    load_checkpoint(path, resumed, resumed_optimizer)
    assert resumed.head.shortlist(torch.randn(5, 16), 10).equal(before)
    assert wta_steps(resumed, resumed_optimizer, 9, 25) == expected
    assert same(dict(resumed.state_dict()), dict(model.state_dict()))
    assert resumed.head.meter.report() == model.head.meter.report()
    assert (resumed.head.index.schedule.hashed_at == model.head.index.schedule.hashed_at).all()
    assert resumed.head.names == model.head.names == WTA[name].get("names")


def test_a_wta_head_without_tables_builds_them_from_the_loaded_weights(path: Path) -> None:
    model, other = (CandidateSoftmax(16, 200, candidates=10, config=PIPELINES["tables and sketch"]) for _ in range(2))
    query = torch.randn(5, 16)
    expected = model.shortlist(query, 10)
    assert not other.shortlist(query, 10).equal(expected)
    save_checkpoint(path, model, index=False)
    load_checkpoint(path, other)
    assert other.shortlist(query, 10).equal(expected)


def test_tables_follow_a_loaded_state_dict() -> None:
    config = PIPELINES["tables and sketch"]
    model = nn.Sequential(CandidateSoftmax(16, 200, config=config))
    other = nn.Sequential(CandidateSoftmax(16, 200, config=config))
    query = torch.randn(5, 16)
    before = other[0].shortlist(query, 10)
    other.load_state_dict(model.state_dict())
    assert other[0].shortlist(query, 10).equal(model[0].shortlist(query, 10))
    assert not other[0].shortlist(query, 10).equal(before)


def test_tables_hashed_in_another_way_are_refused(path: Path) -> None:
    model, other = (CandidateSoftmax(16, 200, config=HashConfig(bands=bands, codes=96, window=4)) for bands in (32, 48))
    model.shortlist(torch.randn(1, 16), 5)
    save_checkpoint(path, model)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with pytest.raises(FileError, match="hashed in another way"):
        load_checkpoint(path, other)
    assert same(dict(other.state_dict()), before)
    load_checkpoint(path, other, index=False)
    assert same(dict(other.state_dict()), dict(model.state_dict()))
    fresh = CandidateSoftmax(16, 200, config=other.index.config)
    fresh.load_state_dict(model.state_dict())
    query = torch.randn(3, 16)
    assert other.shortlist(query, 10).equal(fresh.shortlist(query, 10))


def test_weights_of_a_fused_head_go_to_one_that_is_not_and_back(path: Path) -> None:
    fused = SomeRows(6, 9, row_update="fused", row_optimizer=ROW_OPTIMIZERS["sgd"])
    plain = SomeRows(6, 9)
    save_checkpoint(path, fused)
    load_checkpoint(path, plain)
    assert same(dict(plain.named_parameters()), dict(fused.named_parameters()))
    other = SomeRows(6, 9)
    save_checkpoint(path, other, ROW_OPTIMIZERS["sgd"](other.parameters()))
    load_checkpoint(path, fused)
    assert same(dict(fused.named_parameters()), dict(other.named_parameters()))
    with pytest.raises(FileError, match="holds no state of this RowSGD"):
        load_checkpoint(path, fused, ROW_OPTIMIZERS["sgd"](fused.parameters()))


def test_without_tables_they_are_rebuilt_from_the_weights(path: Path) -> None:
    model = network()
    steps(model, OPTIMIZERS["momentum"](model.parameters()), 0, 5)
    assert not model.head.table.equal(model.head.weight)
    save_checkpoint(path, model, index=False)
    resumed = network(seed=1)
    info = load_checkpoint(path, resumed)
    assert not info.index
    assert resumed.head.table.equal(model.head.weight)
    assert resumed.head.cursor == model.head.cursor


def test_the_model_alone_can_be_loaded_and_leaves_the_random_state_alone(path: Path) -> None:
    model = network()
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    steps(model, optimizer, 0, 3)
    save_checkpoint(path, model, optimizer)
    resumed = network(seed=1)
    before = torch.get_rng_state()
    load_checkpoint(path, resumed)
    assert torch.get_rng_state().equal(before)
    assert same(snapshot(resumed), snapshot(model))


def test_groups_come_back_with_their_settings(path: Path) -> None:
    model = network()

    def grouped(order: int) -> torch.optim.Optimizer:
        trunk = list(model.trunk.parameters())[::order]
        return torch.optim.SGD(
            [{"params": trunk, "lr": 0.5}, {"params": model.head.parameters()}], lr=0.1, momentum=0.9
        )

    optimizer = grouped(1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    steps(model, optimizer, 0, 3)
    schedule.step()
    save_checkpoint(path, model, optimizer)
    resumed = grouped(-1)  # another order within a group is the same group
    load_checkpoint(path, model, resumed)
    assert [group["lr"] for group in resumed.param_groups] == [0.25, 0.05]
    for parameter in model.parameters():
        assert same(resumed.state[parameter], optimizer.state[parameter])


def test_state_keeps_its_dtype(path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model.weight]["touched"] = torch.tensor([2**40 + 1, 3])
    optimizer.state[model.weight]["note"] = "as it was"
    optimizer.state[model.bias]["flags"] = torch.tensor([True, False])
    save_checkpoint(path, model, optimizer)
    resumed = torch.optim.SGD(model.parameters(), lr=0.3)
    load_checkpoint(path, model, resumed)
    assert same(dict(resumed.state[model.weight]), dict(optimizer.state[model.weight]))
    assert same(dict(resumed.state[model.bias]), dict(optimizer.state[model.bias]))
    assert resumed.param_groups[0]["lr"] == 0.1


def test_tied_tensors_are_stored_once_and_stay_tied(path: Path) -> None:
    def tied() -> nn.ModuleDict:
        model = nn.ModuleDict({"embedding": nn.Embedding(1000, 16), "output": nn.Linear(16, 1000, bias=False)})
        model["output"].weight = model["embedding"].weight
        return model

    model = tied()
    save_checkpoint(path, model)
    assert path.stat().st_size < 1.5 * 1000 * 16 * 4
    resumed = tied()
    load_checkpoint(path, resumed)
    assert same(resumed.state_dict(), model.state_dict())
    assert resumed["output"].weight is resumed["embedding"].weight
    untied = nn.ModuleDict({"embedding": nn.Embedding(1000, 16), "output": nn.Linear(16, 1000, bias=False)})
    load_checkpoint(path, untied)
    assert same(untied.state_dict(), model.state_dict())
    save_checkpoint(
        path, nn.ModuleDict({"embedding": nn.Embedding(1000, 16), "output": nn.Linear(16, 1000, bias=False)})
    )
    with pytest.raises(FileError, match="is tied to another tensor in the model"):
        load_checkpoint(path, resumed)


AWKWARD: dict[str, Tensor] = {
    "scalar": torch.tensor(2.5, dtype=torch.float64),
    "nothing": torch.empty(0, 4, dtype=torch.int64),
    "flags": torch.tensor([True, False, True]),
    "strided": torch.arange(12, dtype=torch.int16).reshape(3, 4).T[::2],
    "one of many": torch.arange(12)[::5][1:2],
    "none of many": torch.from_numpy(np.empty(0, np.int64)),
    "conjugate": torch.randn(2, 3, dtype=torch.complex64).conj(),
    "half": torch.randn(3, 5).half(),
    "brain": torch.randn(7).bfloat16(),
    "not finite": torch.tensor([float("nan"), float("inf"), -0.0]),
    "bytes": torch.arange(7, dtype=torch.uint8),
    "wide": torch.tensor([2**63 - 1, -(2**63)]),
    "complex": torch.randn(3, dtype=torch.complex64),
    "tiny floats": torch.randn(5).to(torch.float8_e4m3fn),
    "unsigned": torch.tensor([1, 2**32 - 1], dtype=torch.uint32),
    'quoted " name /': torch.ones(1),
}
PLAIN = {name: torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor) for name, tensor in AWKWARD.items()}


@pytest.mark.parametrize("chunk", [1, 8, 4 << 20])
def test_every_kind_of_tensor_comes_back(path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tensor_file, "CHUNK", chunk)
    write_tensors(path, "test", {"a": ["b", 1.5]}, AWKWARD)
    settings, found = read_tensors(path, "test")
    assert settings == {"a": ["b", 1.5]}
    assert same(found, PLAIN)
    for tensor in found.values():
        if tensor.element_size() > 1 and not tensor.is_complex():
            tensor.zero_()  # private: does not reach the file
    assert same(read_tensors(path, "test")[1], PLAIN)


def test_the_safetensors_library_reads_the_file(path: Path) -> None:
    model = network()
    save_checkpoint(path, model, OPTIMIZERS["adamw"](model.parameters()))
    found = load_file(path)
    assert same({name: found[name] for name in model.state_dict()}, dict(model.state_dict()))
    write_tensors(path, "test", {}, AWKWARD)
    assert same(load_file(path), PLAIN)


def test_same_content_gives_the_same_bytes(path: Path) -> None:
    model = network()
    save_checkpoint(path, model)
    content = path.read_bytes()
    save_checkpoint(path, model)
    assert path.read_bytes() == content


# A wrong file, model or optimizer


def wrong_models() -> dict[str, nn.Module]:
    wide, double, more, headless, less = (network(seed=1) for _ in range(5))
    wide.trunk[0] = nn.Linear(5, 6)
    double.trunk[0].double()
    more.trunk.append(nn.Linear(6, 6))
    headless.head = nn.Linear(6, 9, bias=False)  # type: ignore[assignment]
    del less.trunk[1]
    return {"shape": wide, "dtype": double, "more": more, "head": headless, "less": less}


@pytest.mark.parametrize("name", ["shape", "dtype", "more", "head", "less"])
def test_another_model_is_refused_and_unchanged(path: Path, name: str) -> None:
    save_checkpoint(path, network())
    model = wrong_models()[name]
    before = snapshot(model)
    with pytest.raises(FileError, match="build the"):
        load_checkpoint(path, model)
    assert same(snapshot(model), before)


def test_another_optimizer_is_refused_and_nothing_changes(path: Path) -> None:
    model = network()
    save_checkpoint(path, model, OPTIMIZERS["momentum"](model.parameters()))
    other = network(seed=1)
    before, random_state = snapshot(other), torch.get_rng_state()
    wrong = [
        OPTIMIZERS["adamw"](other.parameters()),
        OPTIMIZERS["momentum"](other.head.parameters()),
        OPTIMIZERS["momentum"]([{"params": other.trunk.parameters()}, {"params": other.head.parameters()}]),
    ]
    for optimizer in wrong:
        state = copy.deepcopy(optimizer.state_dict())
        with pytest.raises(FileError, match=r"holds the state of SGD|other parameter groups"):
            load_checkpoint(path, other, optimizer)
        assert same(optimizer.state_dict(), state)
    save_checkpoint(path, model)
    with pytest.raises(FileError, match="holds no state of this SGD"):
        load_checkpoint(path, other, OPTIMIZERS["momentum"](other.parameters()))
    with pytest.raises(InputError, match="not in the model"):
        save_checkpoint(path, model, OPTIMIZERS["momentum"](other.parameters()))
    assert same(snapshot(other), before)
    assert torch.get_rng_state().equal(random_state)


def test_what_a_head_refuses_changes_nothing(path: Path) -> None:
    model = network()
    model.head.cursor = 99
    save_checkpoint(path, model)
    other = network(seed=1)
    before = snapshot(other)
    with pytest.raises(FileError, match="cursor=99"):
        load_checkpoint(path, other)
    assert same(snapshot(other), before)


def test_what_cannot_be_stored_is_refused_and_the_old_file_stays(path: Path) -> None:
    model = network()
    save_checkpoint(path, model)
    content = path.read_bytes()
    odd = OPTIMIZERS["sgd"](model.parameters())
    odd.state[model.head.weight]["history"] = [torch.ones(1)]
    sparse = OPTIMIZERS["sgd"](model.parameters())
    sparse.state[model.head.weight]["buffer"] = torch.eye(3).to_sparse()
    with torch.device("meta"):
        empty = Network()
    refused: list[tuple[type[Exception], Callable[[], None]]] = [
        (InputTypeError, lambda: save_checkpoint(path, model, extra={"a": (1, 2)})),
        (InputTypeError, lambda: save_checkpoint(path, model, extra={"a": float("nan")})),
        (InputTypeError, lambda: save_checkpoint(path, model, extra={"a": object()})),
        (InputTypeError, lambda: save_checkpoint(path, model, odd)),
        (InputTypeError, lambda: save_checkpoint(path, model, sparse)),
        (InputTypeError, lambda: save_checkpoint(path, model, step=1.5)),  # type: ignore[arg-type]
        (InputError, lambda: save_checkpoint(path, model, step=-1)),
        (InputError, lambda: save_checkpoint(path, empty)),
        (InputTypeError, lambda: write_tensors(path, "test", {}, {"a": [1]})),  # type: ignore[dict-item]
    ]
    for error, call in refused:
        with pytest.raises(error):
            call()
    assert path.read_bytes() == content
    with pytest.raises(InputError, match="meta"):
        load_checkpoint(path, empty)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_other_files_are_refused(path: Path, tmp_path: Path) -> None:
    model = network()
    with pytest.raises(FileNotFoundError):
        load_checkpoint(path, model)
    with pytest.raises(FileError, match="not a regular file"):
        load_checkpoint(tmp_path, model)
    write_tensors(path, "something else", {}, {})
    with pytest.raises(FileError, match="holds 'something else'"):
        load_checkpoint(path, model)
    path.write_bytes(b"not a checkpoint at all".ljust(200))
    with pytest.raises(CorruptFileError):
        load_checkpoint(path, model)


def test_a_newer_version_asks_for_an_upgrade(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(_tensor_file, "VERSION", 2)
        save_checkpoint(path, network())
    with pytest.raises(FileVersionError, match="format version 2"):
        load_checkpoint(path, network())


# Damage


def small(path: Path) -> bytes:
    tensors = {"a": torch.arange(5.0), "b": torch.arange(3, dtype=torch.uint8), "none": torch.empty(0)}
    write_tensors(path, "test", {"x": 1}, tensors)
    return path.read_bytes()


def test_every_flipped_bit_is_noticed(path: Path) -> None:
    content = small(path)
    with path.open("r+b", buffering=0) as file:
        for position, bit in itertools.product(range(len(content)), range(8)):
            file.seek(position)
            file.write(bytes([content[position] ^ (1 << bit)]))
            with pytest.raises(CorruptFileError):
                read_tensors(path, "test")
            file.seek(position)
            file.write(content[position : position + 1])
    read_tensors(path, "test")


def test_every_truncation_and_appended_bytes_are_noticed(path: Path) -> None:
    content = small(path)
    for damaged in [content[:length] for length in range(len(content))] + [content + b"\0", content + content]:
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError):
            read_tensors(path, "test")


def test_a_damaged_checkpoint_changes_nothing(path: Path) -> None:
    model = network()
    optimizer = OPTIMIZERS["momentum"](model.parameters())
    steps(model, optimizer, 0, 2)
    save_checkpoint(path, model, optimizer)
    content = path.read_bytes()
    other = network(seed=1)
    other_optimizer = OPTIMIZERS["momentum"](other.parameters())
    before, random_state = snapshot(other), torch.get_rng_state()
    picks = random.Random(0)
    for _ in range(150):
        position = picks.randrange(len(content))
        flipped = bytearray(content)
        flipped[position] ^= 1 << picks.randrange(8)
        for damaged in (bytes(flipped), content[:position]):
            path.write_bytes(damaged)
            with pytest.raises(CorruptFileError):
                load_checkpoint(path, other, other_optimizer)
    assert same(snapshot(other), before)
    assert not other_optimizer.state
    assert torch.get_rng_state().equal(random_state)


def forged(header: dict[str, Any], data: bytes = b"") -> bytes:
    """Return a file with a correct header checksum."""
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-(8 + len(encoded)) % 64)
    place = len(_tensor_file.PREFIX)
    encoded = encoded[:place] + b"%08x" % _tensor_file.zlib.crc32(encoded) + encoded[place + 8 :]
    return struct.pack("<Q", len(encoded)) + encoded + data


METADATA = {"header_crc32": "0" * 8, "kind": "test", "version": "1", "crc32": "ed82cd11", "settings": "{}"}
ENTRY: dict[str, Any] = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


def test_the_forger_can_forge(path: Path) -> None:
    path.write_bytes(forged({"__metadata__": METADATA, "a": ENTRY}, b"abcd"))
    assert read_tensors(path, "test")[1]["a"].tolist() == [97, 98, 99, 100]


@pytest.mark.parametrize(
    ("metadata", "entry"),
    [
        ({}, {"shape": [5]}),
        ({}, {"shape": [-4]}),
        ({}, {"shape": [True, 4]}),
        ({}, {"shape": [2**62, 2**62]}),
        ({}, {"shape": 4}),
        ({}, {"shape": [4.0]}),
        ({}, {"data_offsets": [1, 5]}),
        ({}, {"data_offsets": [0, 3], "shape": [3]}),
        ({}, {"data_offsets": [0]}),
        ({}, {"data_offsets": None}),
        ({}, {"dtype": "U9"}),
        ({}, {"dtype": None}),
        ({"crc32": ""}, {}),
        ({"crc32": "ed82cd11" * 2}, {}),
        ({"crc32": None}, {}),
        ({"settings": "{"}, {}),
        ({"settings": "[]"}, {}),
        ({"settings": None}, {}),
        ({"version": "x"}, {}),
        ({"version": None}, {}),
    ],
)
def test_impossible_headers_are_noticed_despite_correct_checksums(path: Path, metadata: Any, entry: Any) -> None:
    path.write_bytes(forged({"__metadata__": METADATA | metadata, "a": ENTRY | entry}, b"abcd"))
    with pytest.raises(CorruptFileError):
        read_tensors(path, "test")


# Killed while saving

SAVER = """
import sys
import torch
from torch import nn
from manyclass.torch.checkpoint import load_checkpoint, save_checkpoint
model = nn.Linear(512, 512)
step = 0
while True:
    step += 1
    with torch.no_grad():
        model.weight.fill_(step)
    save_checkpoint(sys.argv[1], model, step=step)
    print(step, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_a_kill_during_a_save_leaves_the_old_file_or_the_new(path: Path) -> None:
    picks = random.Random(0)
    model = nn.Linear(512, 512)
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(picks.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        finished = [line for line in process.communicate()[0].splitlines() if line]
        info = load_checkpoint(path, model)
        assert bool((model.weight == info.step).all())
        assert info.step in range(1, int(finished[-1]) + 2 if finished else 3)
    save_checkpoint(path, model)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # what killed writers left is tidied up


def test_names_that_sound_like_a_head_s_own_are_kept(path: Path) -> None:
    def model() -> nn.ModuleDict:
        return nn.ModuleDict(
            {"narrow_state": nn.Linear(2, 2), "removed_classes_x": nn.Linear(2, 2), "h": CandidateSoftmax(4, 50)}
        )

    saved, loaded = model(), model()
    nn.init.ones_(saved["narrow_state"].weight)
    nn.init.ones_(saved["removed_classes_x"].weight)
    save_checkpoint(path, saved)
    load_checkpoint(path, loaded)
    assert torch.equal(loaded["narrow_state"].weight, torch.ones(2, 2))
    assert torch.equal(loaded["removed_classes_x"].weight, torch.ones(2, 2))
