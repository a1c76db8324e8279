"""Stages `features` and `variance`: what the trained network says of the pictures, kept in 16 bits."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from experiments.frame.stages import Run
from experiments.frame.whole_folder import whole_folder
from experiments.imagenet21k.base_network import (
    BASE_HEAD,
    alexnet_of,
    base_checkpoint,
    new_network,
    standardization_of,
)
from experiments.imagenet21k.examples import CHUNK, TEST_SEED, Numbers, held_out, pictures
from experiments.imagenet21k.images import Images
from experiments.imagenet21k.plan import Plan
from experiments.imagenet21k.variance import in_class_variance
from manyclass.errors import CorruptFileError
from manyclass.torch.checkpoint import load_checkpoint
from manyclass.training.progress import Show

Halves = npt.NDArray[np.float16]
Floats = npt.NDArray[np.float32]
VARIANCE_EXAMPLES = 60_000  # a gigabyte in memory; of the full run about a quarter of the classes


@dataclass(frozen=True)
class Features:
    """Inputs of the output layer for training and for testing, with their classes.

    mean and scale are those by which the network standardizes its features before the output layer.
    """

    train: Halves  # (examples, features)
    train_labels: Numbers
    test: Halves
    test_labels: Numbers
    mean: Floats  # (features,)
    scale: Floats

    def standardized(self, features: Halves) -> Tensor:
        """Return features as an output layer is trained on them, float32."""
        return torch.from_numpy((np.asarray(features, np.float32) - self.mean) * self.scale)

    def folded(self, rows: Floats, bias: Floats) -> tuple[Floats, Floats]:
        """Return the rows and the bias that give on features as they are what the given ones give on standardized."""
        scaled: Floats = rows * self.scale
        return scaled, (bias - scaled @ self.mean).astype(np.float32)


def open_features(run: Run) -> Features:
    """Return the kept features."""
    folder = run.cache / "features"
    names = ("train", "train_labels", "test", "test_labels", "mean", "scale")
    try:
        return Features(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in names))
    except (OSError, ValueError, EOFError) as problem:
        raise CorruptFileError(
            f"{folder} cannot be read ({problem}); remove {run.out} and run the experiment again"
        ) from problem


def run_features(run: Run, images: Images, plan: Plan) -> None:
    """Pass pictures through the trained network and keep its last layer; the folder appears whole or not at all."""
    torch.set_num_threads(run.options.threads)
    network = new_network(plan, images.classes, BASE_HEAD, run.options.seed)
    load_checkpoint(base_checkpoint(run), network)
    below = alexnet_of(network.eval())
    chosen = np.random.default_rng(run.options.seed).permutation(images.train)[: plan.examples]
    tests = held_out(images, plan.tests)
    folder = run.cache / "features"
    shutil.rmtree(folder, ignore_errors=True)  # of a killed session: written, but not yet recorded
    with whole_folder(folder) as unfinished:
        with run.progress(len(chosen) + len(tests), "pictures") as show:
            zeros = _write(unfinished, "train", below, images, chosen, run.options.seed + 1, show, 0)
            _write(unfinished, "test", below, images, tests, TEST_SEED, show, len(chosen))
        mean, scale = standardization_of(network)
        np.save(unfinished / "mean.npy", mean)
        np.save(unfinished / "scale.npy", scale)
    run.records.write(
        stage="features", kind="result", train_examples=len(chosen), test_examples=len(tests), features=plan.features,
        zero_share=zeros, gigabytes=2 * plan.features * (len(chosen) + len(tests)) / 1e9,
    )  # fmt: skip


@torch.inference_mode()
def _write(
    folder: Path, name: str, trunk: nn.Module, images: Images, numbers: Numbers, seed: int, show: Show, done: int
) -> float:
    """Write features and labels of these pictures; return the share of zeros among the features."""
    kept: np.memmap[tuple[int, int], np.dtype[np.float16]] | None = None
    zeros = 0
    for start in range(0, len(numbers), CHUNK):
        x, _ = pictures(images, numbers[start : start + CHUNK], seed + start)
        found = trunk(x).clamp_(max=65504).half().numpy()
        if kept is None:
            shape = (len(numbers), found.shape[1])
            kept = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float16, shape)
        kept[start : start + len(found)] = found
        zeros += int((found == 0).sum())
        show(done + start + len(found), name)
    assert kept is not None
    kept.flush()
    np.save(folder / f"{name}_labels.npy", images.labels[numbers].astype(np.int64))
    return zeros / kept.size


def run_variance(run: Run) -> None:
    """Record how far the pictures of a class lie apart."""
    features = open_features(run)
    labels = np.asarray(features.train_labels)
    rank = np.argsort(np.random.default_rng(run.options.seed).permutation(labels.max() + 1))
    chosen = np.sort(np.argsort(rank[labels], kind="stable")[:VARIANCE_EXAMPLES])  # whole classes, any of them
    found = in_class_variance(features.train[chosen], labels[chosen])
    run.records.write(stage="variance", kind="result", **found)
