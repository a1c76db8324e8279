"""A head whose classes are spread over processes: train, checkpoint, serve in parts.

    torchrun --standalone --nproc-per-node=2 examples/sharded_head.py --classes 1000000

On several machines, start it on each with `torchrun --nnodes=… --rdzv-endpoint=HOST:PORT …`, and name a folder that all
of them see. The data is made on the spot: every class is a point, and an example is one of them with noise.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import manyclass as mc
import manyclass.torch as mct

WIDTH, HIDDEN, BATCH = 32, 64, 64


def points_of(classes: Tensor) -> Tensor:
    """Return the point of each class, (n, WIDTH), without a table of all of them."""
    waves = torch.arange(1, WIDTH + 1, dtype=torch.float64).sqrt()
    return (torch.sin((classes[:, None] + 1) * waves * 12.9898) * 1.41).float()


def batch(step: int, rank: int, classes: int) -> tuple[Tensor, Tensor]:
    """Return the examples that this rank learns from in a step: each rank has its own."""
    generator = torch.Generator().manual_seed(step * 1000 + rank)
    target = torch.randint(classes, (BATCH,), generator=generator)
    return points_of(target) + 0.2 * torch.randn(BATCH, WIDTH, generator=generator), target


def train(classes: int, steps: int, folder: Path) -> nn.ModuleDict:
    """Return the model of this rank: a copy of the network, and the rows of this rank's classes."""
    torch.manual_seed(0)  # the network starts alike on all ranks; a head's rows follow from its own seed
    below = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.BatchNorm1d(HIDDEN))
    model = nn.ModuleDict({"trunk": DistributedDataParallel(below), "head": mct.ShardedSoftmax(HIDDEN, classes)})
    optimizer = mct.RowSGD(model.parameters(), lr=0.3, momentum=0.9)
    for step in range(steps):
        x, y = batch(step, dist.get_rank(), classes)
        loss = model["head"](model["trunk"](x), y)  # of the examples of all ranks: the same number on each
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 100 == 0:
            print(f"step {step}: loss {loss.item():.2f}")
    mct.save_sharded_checkpoint(folder / "checkpoint", model, optimizer, step=steps)
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--folder", type=Path, default=Path("sharded"))
    options = parser.parse_args()
    dist.init_process_group("gloo")
    model = train(options.classes, options.steps, options.folder)
    x, y = batch(-1, dist.get_rank(), options.classes)
    with torch.no_grad():
        inputs = model["trunk"](x)
        found = model["head"].topk(inputs, 10)  # of all ranks' classes, for this rank's inputs
    right = (found.classes[:, 0] == y).float().mean()
    dist.all_reduce(right)
    share = right.item() / dist.get_world_size()
    if dist.get_rank() == 0:
        print(f"{len(model['head'].weight)} rows on this rank; {share:.0%} of the examples of all ranks are right")

    parts = mct.save_index_shards(options.folder / "index", model["head"])
    if dist.get_rank() == 0:  # serving: one process per part, or ShardedIndex.on_ray(parts) with one machine for each
        index = mc.ShardedIndex.load(parts, mmap=True)
        same = index.search(inputs.numpy(), 1, candidates=300).classes[:, 0] == found.classes[:, 0].numpy()
        print(f"{index}: {np.mean(same):.0%} of the best classes are those of the head")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
