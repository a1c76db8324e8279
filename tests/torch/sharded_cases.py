"""What the tests of sharded heads share: real processes on gloo, and the one-process head on the batch of all ranks."""

import multiprocessing
import os
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing
from torch import Tensor, nn

from manyclass.torch import CandidateSoftmax, RowAdagrad, RowAdam, RowSGD, ShardedSoftmax

CLASSES, FEATURES, INPUTS, STEPS = 61, 12, 7, 4
SIZES = [(3, 5, 4), (4, 0, 2), (1, 6, 3), (5, 2, 1)]  # examples of each rank, step by step
OPTIMIZERS = {"sgd": RowSGD, "adagrad": RowAdagrad, "adam": RowAdam}
MINED: dict[str, Any] = {"mined_every": 1, "mined_examples": 3, "mined_candidates": 4, "tail": 9, "meter_every": 0}
CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "mined": MINED,
    "metered": {**MINED, "meter_every": 2},
    "uniform tail": {**MINED, "tail_sampler": "uniform"},
    "counted tail": {**MINED, "tail_sampler": "counted"},
    "cosine": {**MINED, "normalize": True, "temperature": 0.2},
    "logistic": {**MINED, "output": "logistic"},
    "smoothed": {**MINED, "label_smoothing": 0.1, "class_weight": torch.linspace(0.5, 2, CLASSES)},
    "mean": {**MINED, "subtract_mean": True},
    "no bias": {**MINED, "bias": False, "reduction": "sum"},
    "prior": {**MINED, "prior": torch.arange(1, CLASSES + 1)},
    "targets alone": {**MINED, "targets_for_all": False},
    "own": {"shared": False, "candidates": CLASSES, "tail": 5},
    "own, all": {"shared": False, "candidates": CLASSES, "tail": 0, "label_smoothing": 0.2},
}


def in_processes(work: Callable[..., None], ranks: int, folder: Path, *arguments: Any) -> list[Any]:
    """Run work(rank, folder, *arguments) on so many ranks and return what each has saved."""
    multiprocessing.set_forkserver_preload(["torch", "manyclass.torch"])  # imported once, for all processes to come
    shared = (work, ranks, str(folder), arguments)
    torch.multiprocessing.start_processes(_in_process, shared, nprocs=ranks, start_method="forkserver")
    return [torch.load(folder / f"{rank}") for rank in range(ranks)]


def _in_process(rank: int, work: Callable[..., Any], ranks: int, folder: str, arguments: tuple[Any, ...]) -> None:
    warnings.simplefilter("ignore")  # few classes: most are touched
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    limit = timedelta(seconds=60)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet{ranks}", rank=rank, world_size=ranks, timeout=limit
    )
    torch.save(work(rank, ranks, folder, *arguments), f"{folder}/{rank}")
    torch.distributed.destroy_process_group()


def batch(step: int, rank: int, several: bool = False) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of a rank; some targets do not count."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    size = SIZES[step % STEPS][rank]
    x = torch.randn(size, INPUTS, generator=generator)
    target = torch.randint(CLASSES, (size, 3) if several else (size,), generator=generator)
    return x, target.masked_fill(torch.rand(target.shape, generator=generator) < 0.2, -1 if several else -100)


def together(step: int, ranks: int, several: bool = False) -> tuple[Tensor, Tensor]:
    """Return the batch of all ranks."""
    parts = [batch(step, rank, several) for rank in range(ranks)]
    return torch.cat([x for x, _ in parts]), torch.cat([target for _, target in parts])


def trunk() -> nn.Linear:
    torch.manual_seed(5)
    return nn.Linear(INPUTS, FEATURES)


def sharded(**settings: Any) -> ShardedSoftmax:
    return ShardedSoftmax(FEATURES, CLASSES, **{"seed": 3, **settings})


def one_process(rows: dict[str, Tensor], **settings: Any) -> CandidateSoftmax:
    """Return the head that has all these rows."""
    head = CandidateSoftmax(FEATURES, CLASSES, **{"seed": 3, **settings})
    with torch.no_grad():
        head.weight.copy_(rows["weight"])
        if head.bias is not None:
            head.bias.copy_(rows["bias"])
    return head


def rows_of(head: ShardedSoftmax) -> dict[str, Tensor]:
    """Return the rows of all ranks by class."""
    parts = {"weight": head.weight} if head.bias is None else {"weight": head.weight, "bias": head.bias}
    return {name: head._of_all_ranks(part.detach()) for name, part in parts.items()}


def train(
    head: nn.Module, below: nn.Module, batches: list[tuple[Tensor, Tensor]], optimizer: str
) -> tuple[list[float], Tensor | None]:
    """Return the losses of a few steps, and the first gradient of the network below."""
    moving = OPTIMIZERS[optimizer]([*below.parameters(), *head.parameters()], lr=0.1)
    losses, first = [], None
    for x, target in batches:
        moving.zero_grad()
        loss = head(below(x), target)
        loss.backward()
        gradient = next(below.parameters()).grad
        first = gradient.clone() if first is None and gradient is not None else first
        moving.step()
        losses.append(loss.item())
    return losses, first
