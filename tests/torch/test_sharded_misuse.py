"""What goes wrong in one process is one sentence on all of them, and nobody waits for ever."""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from sharded_cases import CLASSES, FEATURES, in_processes, sharded
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from manyclass import ConfigError, ManyclassError
from manyclass.torch import ShardedSoftmax

TIMEOUT = 4.0


def refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except ManyclassError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


class Inside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.below, self.head = nn.Linear(FEATURES, FEATURES), ShardedSoftmax(FEATURES, 60)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.head(self.below(x), target)
        return loss


def work(rank: int, ranks: int, folder: str) -> dict[str, str]:
    x, target = torch.ones(3, FEATURES), torch.tensor([0, 1, 2])
    nan = x.clone().fill_(torch.nan) if rank == 1 else x
    head = sharded()
    before = head.weight.detach().clone()
    make = partial(ShardedSoftmax, FEATURES, CLASSES)
    found = {
        "nan": refusal(lambda: head(nan, target)),
        "target": refusal(lambda: head(x, target + (CLASSES if rank == 0 else 0))),
        "width": refusal(lambda: head(x[:, : FEATURES - rank], target)),
        "mode": refusal(lambda: (head.train(rank == 0), head(x, target))),
        "call": refusal(lambda: head(x, target) if rank == 0 else head.topk(x, 2)),
        "k": refusal(lambda: head.topk(x, 2 + rank)),
        "too many": refusal(lambda: head.topk(x, 9, candidates=4)),
        "normalizer": refusal(lambda: head.log_prob(x, normalizer="wrong" if rank == 1 else "exact")),  # type: ignore[arg-type]
        "features": refusal(lambda: ShardedSoftmax(FEATURES + rank, CLASSES)),
        "classes": refusal(lambda: ShardedSoftmax(FEATURES, CLASSES + rank)),
        "seed": refusal(lambda: make(seed=rank)),
        "settings": refusal(lambda: make(tail=-1 if rank == 0 else 3)),
        "tail": refusal(lambda: make(tail=None if rank == 0 else 3)),
        "few classes": refusal(lambda: ShardedSoftmax(FEATURES, 1)),
        "counted": refusal(lambda: make(prior="counted")),
        "trunk": refusal(lambda: make(trunk_gradients="mean")),
        "timeout": refusal(lambda: make(timeout=0)),
        "add": refusal(lambda: head.add_classes(2)),
        "inside ddp": refusal(lambda: DistributedDataParallel(Inside())(x, target)),
    }
    found["untouched"] = str(torch.equal(head.weight, before))
    head.train()
    found["afterwards"] = f"{head(x, target).item():.6f}"  # the group is as good as new
    waiting = sharded(timeout=TIMEOUT)
    if rank == 1:
        time.sleep(2 * TIMEOUT)
    began = time.monotonic()
    found["late"] = refusal(lambda: waiting(x, target))
    found["waited"] = str(time.monotonic() - began)
    last = sharded(timeout=60.0)
    loss = last(x.requires_grad_(), target)
    if rank == 1:
        torch.save(found, f"{folder}/1")
        os._exit(0)  # killed between forward and backward
    found["gone"] = refusal(loss.backward)
    torch.save(found, f"{folder}/0")
    os._exit(0)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return in_processes(work, 2, tmp_path_factory.mktemp("ranks"))


EXPECTED = {
    "nan": ("rank 1 of 2 could not compute its loss: input[0] has a NaN", "input[0] has a NaN"),
    "target": (f"target holds {CLASSES}", "rank 0 of 2 could not compute its loss: target holds"),
    "width": ("rank 1 of 2 could not compute its loss: input has shape", "input has shape (3, 11)"),
    "mode": ("training mode is 1 on rank 0, 0 on rank 1", "it must be the same on all ranks"),
    "call": ("rank 0 is at 'loss' and rank 1 at 'topk'", "rank 1 is at 'topk' and rank 0 at 'loss'"),
    "k": ("k is 2 on rank 0, 3 on rank 1", "k is 2 on rank 0, 3 on rank 1"),
    "too many": ("k=9 is more than candidates=4", "k=9 is more than candidates=4"),
    "normalizer": ("rank 1 of 2 could not answer log_prob: normalizer='wrong'", "normalizer='wrong' is unknown"),
    "features": ("in_features is 12 on rank 0, 13 on rank 1", "in_features is 12 on rank 0, 13 on rank 1"),
    "classes": ("num_classes is 61 on rank 0, 62 on rank 1", "num_classes is 61 on rank 0, 62 on rank 1"),
    "seed": ("seed is 0 on rank 0, 1 on rank 1", "seed is 0 on rank 0, 1 on rank 1"),
    "settings": ("tail=-1", "rank 0 of 2 could not make a head: tail=-1"),
    "tail": ("tail (-1: default) is -1 on rank 0, 3 on rank 1", "tail (-1: default) is -1 on rank 0, 3 on rank 1"),
    "few classes": ("num_classes=1 is less than one per rank (2)", "num_classes=1 is less than one per rank (2)"),
    "counted": ("give counts: Prior(counts, examples)", "give counts: Prior(counts, examples)"),
    "trunk": ("choose 'averaged' or 'summed'", "choose 'averaged' or 'summed'"),
    "timeout": ("timeout=0 is not a positive number", "timeout=0 is not a positive number"),
    "add": ("cannot add or remove classes", "cannot add or remove classes"),
    "inside ddp": ("rank 1 of 2 could not compute its loss: DDP has copied", "leave_out_of_ddp(model)"),
    "late": ("did not come within 4 s", "another rank has ended, or did not come"),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_every_rank_says_what_is_wrong(found: list[dict[str, str]], case: str) -> None:
    for of_rank, expected in zip(found, EXPECTED[case], strict=True):
        assert expected in of_rank[case]


def test_nothing_has_changed_and_the_head_goes_on(found: list[dict[str, str]]) -> None:
    assert all(of_rank["untouched"] == "True" for of_rank in found)
    assert found[0]["afterwards"] == found[1]["afterwards"]


def test_nobody_waits_longer_than_the_timeout(found: list[dict[str, str]]) -> None:
    assert float(found[0]["waited"]) < TIMEOUT + 3


def test_a_rank_that_is_gone_is_noticed_in_backward(found: list[dict[str, str]]) -> None:
    assert "RankError: gradients of inputs failed: another rank has ended" in found[0]["gone"]


def test_without_a_process_group_it_says_how_to_get_one() -> None:
    with pytest.raises(ConfigError, match="start the script with torchrun"):
        ShardedSoftmax(FEATURES, CLASSES)
