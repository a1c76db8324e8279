"""A sharded head computes what the one-process head computes: losses, gradients, steps, predictions; 2 and 3 ranks."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sharded_cases import (
    CASES,
    CLASSES,
    FEATURES,
    OPTIMIZERS,
    STEPS,
    batch,
    in_processes,
    one_process,
    rows_of,
    sharded,
    together,
    train,
    trunk,
)
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from manyclass.torch import ShardedSoftmax, leave_out_of_ddp

pytestmark = pytest.mark.filterwarnings("ignore:a batch touches")


def trained(name: str, ranks: int, rank: int, optimizer: str = "sgd", several: bool = False) -> dict[str, Any]:
    head, below = sharded(**CASES[name]), trunk()
    before = rows_of(head)
    batches = [batch(step, rank, several) for step in range(STEPS)]
    losses, first = train(head, DistributedDataParallel(below), batches, optimizer)
    meter = {key: value for key, value in head.meter.report().items() if key in ("recall_at_10", "missed_mass")}
    return {"before": before, "after": rows_of(head), "losses": losses, "first": first, "meter": meter,
            "noise": head.mining.noise}  # fmt: skip


def work(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    found: dict[str, Any] = {"cases": {name: trained(name, ranks, rank) for name in CASES}}
    found["several"] = trained("mined", ranks, rank, several=True)
    found["optimizers"] = {name: trained("mined", ranks, rank, optimizer=name) for name in OPTIMIZERS}
    return found


@pytest.fixture(scope="module", params=[2, 3])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return in_processes(work, request.param, tmp_path_factory.mktemp("ranks"))


def compare(got: list[dict[str, Any]], settings: dict[str, Any], optimizer: str = "sgd", several: bool = False) -> None:
    ranks = len(got)
    head, below = one_process(got[0]["before"], **settings), trunk()
    losses, first = train(head, below, [together(step, ranks, several) for step in range(STEPS)], optimizer)
    for of_rank in got:
        torch.testing.assert_close(of_rank["losses"], losses, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(of_rank["first"], first, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(of_rank["after"]["weight"], head.weight.detach(), rtol=1e-5, atol=1e-5)
        if head.bias is not None:
            torch.testing.assert_close(of_rank["after"]["bias"], head.bias.detach(), rtol=1e-5, atol=1e-5)
        expected = {key: value for key, value in head.meter.report().items() if key in of_rank["meter"]}
        assert of_rank["meter"] == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert of_rank["noise"] == pytest.approx(head.mining.noise, rel=1e-4)
    assert not torch.equal(got[0]["before"]["weight"], head.weight)


@pytest.mark.parametrize("name", CASES)
def test_losses_gradients_and_steps_are_those_of_one_process(found: list[dict[str, Any]], name: str) -> None:
    compare([of_rank["cases"][name] for of_rank in found], CASES[name])
