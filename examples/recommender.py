"""A recommender from start to end: train with a DataLoader, keep a checkpoint, build an index, serve, check.

    OMP_WAIT_POLICY=PASSIVE python examples/recommender.py --items 1000000

The data is made on the spot: a user's taste is a point, and the item that comes next is near it. Replace `made_data`
by your own pairs of (what is known of the user, id of the item).
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import manyclass as mc
import manyclass.torch as mct

WIDTH, HIDDEN = 32, 64


def made_data(items: int, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return what is known of `count` users (count, WIDTH), and the item that each of them took next (count,)."""
    generator = torch.Generator().manual_seed(seed)
    tastes = torch.randn(items, WIDTH, generator=torch.Generator().manual_seed(-1))
    taken = torch.randint(items, (count,), generator=generator)
    return tastes[taken] + 0.3 * torch.randn(count, WIDTH, generator=generator), taken


def train(items: int, examples: int, epochs: int, checkpoint: Path) -> nn.ModuleDict:
    """Return a trained model, which is also in the checkpoint."""
    model = nn.ModuleDict({
        "trunk": nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.BatchNorm1d(HIDDEN)),
        "head": mct.CandidateSoftmax(HIDDEN, items),
    })  # fmt: skip
    optimizer = mct.RowSGD(model.parameters(), lr=0.3, momentum=0.9)
    batches = DataLoader(TensorDataset(*made_data(items, examples)), batch_size=256, shuffle=True)
    for epoch in range(epochs):
        for user, item in batches:
            optimizer.zero_grad()
            loss = model["head"](model["trunk"](user), item)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.2f}, {model['head'].meter.report()}")
    mct.save_checkpoint(checkpoint, model, optimizer, step=epochs * len(batches))
    return model.eval()


def build_index(model: nn.ModuleDict, path: Path) -> None:
    """Write an index over the final rows: all that serving needs beside the trunk."""
    layer = model["head"].to_linear()
    index = mc.ClassIndex.build(layer.weight.detach().numpy(), bias=layer.bias.detach().numpy())
    index.save(path)


@torch.no_grad()
def recommend(model: nn.ModuleDict, index: mc.ClassIndex, users: Tensor, count: int) -> np.ndarray:
    """Return the best items of each user, (users, count)."""
    return index.search(model["trunk"](users).numpy(), k=count, candidates=300).classes


def main() -> None:
    """Do it all, and say how much of the exact answer the index keeps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--examples", type=int, default=400_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("recommender-out"))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    model = train(chosen.items, chosen.examples, chosen.epochs, chosen.out / "recommender.safetensors")
    build_index(model, chosen.out / "items.mc")
    index = mc.ClassIndex.load(chosen.out / "items.mc", mmap=True)
    users, items = made_data(chosen.items, 1_000, seed=1)
    found = recommend(model, index, users, 10)
    hits = (found == items.numpy()[:, None]).any(1).mean()
    with torch.no_grad():
        quality = index.check(model["trunk"](users).numpy(), labels=items.numpy())
    print(
        f"the item taken is among the best ten of {hits:.1%}; the exact layer's accuracy is kept to {quality.kept:.1%}"
    )


if __name__ == "__main__":
    main()
