"""Stages `features` and `variance`, and what later stages open: the features of the pictures, kept in 16 bits, how far
those of a class lie apart, and the exact layer that is trained on them."""

import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from experiments.datasets.kept_features import Features, read_features
from experiments.frame.stages import Run
from experiments.frame.whole_folder import whole_folder
from experiments.imagenet21k.data import CHUNK, TEST_SEED, Images, Numbers, held_out, pictures
from experiments.imagenet21k.model import Plan, alexnet_of, standardization_of, trained_network
from experiments.peers.problem import Problem
from experiments.vision.in_class_variance import in_class_variance
from manyclass.errors import CorruptFileError
from manyclass.training.progress import Show

Floats = npt.NDArray[np.float32]
VARIANCE_EXAMPLES = 60_000  # a gigabyte in memory; of the full run about a quarter of the classes
SAMPLE = 6_000  # training features from which an index learns what it will be asked


def open_features(run: Run) -> Features:
    """Return the kept features."""
    try:
        return read_features(run.cache / "features")
    except (OSError, ValueError, EOFError) as problem:
        raise CorruptFileError(
            f"{run.cache / 'features'} cannot be read ({problem}); remove {run.out} and run the experiment again"
        ) from problem


def run_features(run: Run, images: Images, plan: Plan) -> None:
    """Pass pictures through the trained network and keep its last layer; the folder appears whole or not at all."""
    network = trained_network(run, images.classes, plan)
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


def keep_layer(run: Run, rows: Floats, bias: Floats) -> None:
    """Write rows and bias of the exact layer in the place of those of a killed session."""
    folder = run.cache / "layer"
    shutil.rmtree(folder, ignore_errors=True)
    with whole_folder(folder) as unfinished:
        np.save(unfinished / "rows.npy", rows)
        np.save(unfinished / "bias.npy", bias)


def open_layer(run: Run) -> Problem:
    """Return the exact layer with the held-out features as its queries."""
    features = open_features(run)
    rows, bias = (np.load(run.cache / "layer" / f"{name}.npy") for name in ("rows", "bias"))
    return Problem(rows, bias, np.asarray(features.test, np.float32), features.test_labels)


def query_sample(run: Run) -> Floats:
    """Return features of some training pictures: what whoever serves the layer has to show an index beforehand."""
    features = open_features(run).train
    chosen = np.random.default_rng(run.options.seed).permutation(len(features))[:SAMPLE]
    return np.asarray(features[np.sort(chosen)], np.float32)


# In-class variance


def run_variance(run: Run) -> None:
    """Record how far the pictures of a class lie apart."""
    features = open_features(run)
    labels = np.asarray(features.train_labels)
    rank = np.argsort(np.random.default_rng(run.options.seed).permutation(labels.max() + 1))
    chosen = np.sort(np.argsort(rank[labels], kind="stable")[:VARIANCE_EXAMPLES])  # whole classes, any of them
    found = in_class_variance(features.train[chosen], labels[chosen])
    run.records.write(stage="variance", kind="result", **found)
