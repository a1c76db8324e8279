"""A head whose classes are spread over processes: train, checkpoint, serve in parts.

    torchrun --standalone --nproc-per-node=2 examples/sharded_head.py

On several machines, start it on each with `torchrun --nnodes=… --rdzv-endpoint=HOST:PORT …`, and name a folder that all
of them see. Started again, with as many processes or others, it goes on from the checkpoint in the folder. The data is
made on the spot: every class is a point, and an example is one of them with noise. ray_train_head.py has the same work
done by Ray Train.
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
CHECKPOINT_EVERY = 250  # steps


def points_of(classes: Tensor) -> Tensor:
    """Return the point of each class, (n, WIDTH), without a table of all of them."""
    waves = torch.arange(1, WIDTH + 1, dtype=torch.float64).sqrt()
    return (torch.sin((classes[:, None] + 1) * waves * 12.9898) * 1.41).float()


def batch(step: int, rank: int, classes: int) -> tuple[Tensor, Tensor]:
    """Return the examples that this rank learns from in a step: each rank has its own."""
    generator = torch.Generator().manual_seed(step * 1000 + rank)
    target = torch.randint(classes, (BATCH,), generator=generator)
    return points_of(target) + 0.2 * torch.randn(BATCH, WIDTH, generator=generator), target


def trunk() -> nn.Module:
    """Return the network below the head, with the same first weights on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.BatchNorm1d(HIDDEN))


def train(classes: int, steps: int, folder: Path) -> tuple[nn.ModuleDict, list[float]]:
    """Return this rank's copy of the network with the rows of its classes, and the losses of the steps done here."""
    model = nn.ModuleDict({"trunk": DistributedDataParallel(trunk()), "head": mct.ShardedSoftmax(HIDDEN, classes)})
    optimizer = mct.RowSGD(model.parameters(), lr=0.3, momentum=0.9)
    done = 0
    if (folder / "manifest.json").exists():
        done = mct.load_sharded_checkpoint(folder, model, optimizer).step
    losses = []
    for step in range(done, steps):
        x, y = batch(step, dist.get_rank(), classes)
        loss = model["head"](model["trunk"](x), y)  # of the examples of all ranks: the same number on each
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if dist.get_rank() == 0 and step % 100 == 0:
            print(f"step {step}: loss {losses[-1]:.2f}", flush=True)
        if (step + 1) % CHECKPOINT_EVERY == 0 or step + 1 == steps:
            mct.save_sharded_checkpoint(folder, model, optimizer, step=step + 1)
    return model.eval(), losses


def work(classes: int, steps: int, folder: Path) -> list[str]:
    """Train, ask and serve; return what there is to tell. Every rank calls it, in a process group."""
    model, losses = train(classes, steps, folder / "checkpoint")
    x, y = batch(-1, dist.get_rank(), classes)
    with torch.no_grad():
        inputs = model["trunk"](x)
        found = model["head"].topk(inputs, 10)  # of all ranks' classes, for this rank's inputs
    right = (found.classes[:, 0] == y).float().mean()
    dist.all_reduce(right)
    share = right.item() / dist.get_world_size()
    told = [f"{len(losses)} steps; loss {losses[0]:.6f} at first, {losses[-1]:.6f} at last"] if losses else []
    told.append(f"{len(model['head'].weight)} rows on this rank; {share:.0%} of the examples of all ranks are right")

    parts = mct.save_index_shards(folder / "index", model["head"])
    if dist.get_rank() == 0:  # serving: one process per part, or ShardedIndex.on_ray(parts) with one machine for each
        index = mc.ShardedIndex.load(parts, mmap=True)
        same = index.search(inputs.numpy(), 1, candidates=300).classes[:, 0] == found.classes[:, 0].numpy()
        told.append(f"{index}: {np.mean(same):.0%} of the best classes are those of the head")
    dist.barrier()
    return told


def arguments(about: str) -> argparse.ArgumentParser:
    """Return the parser of what `work` is given."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--classes", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--folder", type=Path, default=Path("sharded"))
    return parser


def main() -> None:
    options = arguments(__doc__).parse_args()
    dist.init_process_group("gloo")
    told = work(options.classes, options.steps, options.folder)
    if dist.get_rank() == 0:
        print(*told, sep="\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
