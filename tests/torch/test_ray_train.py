"""A sharded head under Ray Train: what torchrun saved goes on there, with the numbers of the head in one process."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import ROOT
from ray_cases import run_with_ray
from sharded_cases import in_processes

from examples import sharded_head as example
from manyclass.torch import CandidateSoftmax, RowSGD, ShardedSoftmax, load_sharded_checkpoint
from manyclass.torch.class_shards import ClassShards, drawn_rows

CLASSES = 3_000  # of which a step samples a part
STEPS, MORE = 3, 6  # on three ranks of torchrun, and then on two workers of Ray Train
RATE: dict[str, float] = {"lr": 0.3, "momentum": 0.9}


def by_torchrun(folder: Path) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    script = [str(ROOT / "examples" / "sharded_head.py"), "--classes", str(CLASSES), "--steps", str(STEPS)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, *launcher, *script]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def in_one_process() -> tuple[list[float], CandidateSoftmax]:
    """Return the losses of CandidateSoftmax on the batches of all ranks, and the head."""
    below, head = example.trunk(), CandidateSoftmax(example.HIDDEN, CLASSES)
    with torch.no_grad():
        for parameter in (head.weight, head.bias):
            assert parameter is not None
            drawn_rows(ClassShards(CLASSES, 0, 1), example.HIDDEN, example.HIDDEN**-0.5, 0, parameter)
    optimizer = RowSGD([*below.parameters(), *head.parameters()], **RATE)
    losses = []
    for step in range(MORE):
        parts = [example.batch(step, rank, CLASSES) for rank in range(3 if step < STEPS else 2)]
        inputs = torch.cat([below(x) for x, _ in parts])  # one by one: batch normalisation is of each rank's examples
        loss = head(inputs, torch.cat([y for _, y in parts]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, head


def on_one_rank(rank: int, ranks: int, folder: str, checkpoint: str) -> Any:
    """Return step and rows of what two workers have saved."""
    below = torch.nn.parallel.DistributedDataParallel(example.trunk())
    model = torch.nn.ModuleDict({"trunk": below, "head": ShardedSoftmax(example.HIDDEN, CLASSES)})
    info = load_sharded_checkpoint(checkpoint, model, RowSGD(model.parameters(), **RATE))
    head = model["head"]
    return {"step": info.step, "weight": head.weight.detach(), "bias": head.bias.detach()}


def first_and_last(printed: list[str]) -> list[float]:
    found = re.search(r"3 steps; loss ([\d.]+) at first, ([\d.]+) at last", "\n".join(printed))
    assert found, printed
    return [float(found[1]), float(found[2])]


@pytest.mark.skipif(not (find_spec("ray") and find_spec("pyarrow")), reason="needs the extra ray-train")
def test_ray_train_goes_on_from_other_ranks_as_one_process_does(tmp_path: Path) -> None:
    before = by_torchrun(tmp_path)
    script = str(ROOT / "examples" / "ray_train_head.py")
    after = run_with_ray(script, "--classes", str(CLASSES), "--steps", str(MORE), "--workers", "2", folder=tmp_path)
    losses, head = in_one_process()
    expected = [losses[0], losses[STEPS - 1], losses[STEPS], losses[-1]]
    assert [*first_and_last(before), *first_and_last(after)] == pytest.approx(expected, abs=1e-5)
    assert "1500 rows on this rank" in after[1]
    assert "3,000 classes × 64 features in 2 parts" in after[2]

    (loaded,) = in_processes(on_one_rank, 1, tmp_path, str(tmp_path / "sharded" / "checkpoint"))
    assert loaded["step"] == MORE
    torch.testing.assert_close(loaded["weight"], head.weight.detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(loaded["bias"], head.bias.detach(), rtol=0, atol=1e-5)
