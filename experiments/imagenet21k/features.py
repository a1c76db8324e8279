"""Stages `features` and `variance`, and what later stages open: the features of the pictures, kept in 16 bits, how far
those of a class lie apart, and the exact layer that is trained on them."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from experiments.datasets.kept_features import Features, read_features
from experiments.frame.stages import Run
from experiments.frame.whole_folder import whole_folder
from experiments.imagenet21k.data import CHUNK, TEST_SEED, Images, Numbers, held_out, pictures
from experiments.imagenet21k.model import Plan, alexnet_of, standardization_of, trained_network
from experiments.peers.problem import Problem
from manyclass.errors import CorruptFileError, InputError
from manyclass.training.progress import Show

Halves = npt.NDArray[np.float16]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
VARIANCE_CHUNK = 4096  # examples at a time; the features of a full run do not fit in memory
BINS = 40
VARIANCE_EXAMPLES = 60_000  # a gigabyte in memory; of the full run about a quarter of the classes


class FeatureBatches:
    """Step → (features, classes), every training example once per epoch, in the same random order every time."""

    def __init__(self, features: Features, size: int, seed: int) -> None:
        self.features, self.size = features, size
        self.order = np.random.default_rng(seed).permutation(len(features.train))

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        places = np.arange(step * self.size, (step + 1) * self.size) % len(self.order)
        return self.features.examples("train", np.sort(self.order[places]))  # reads the file from front to back


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


def open_layer(run: Run, tests: int | None = None) -> Problem:
    """Return the exact layer with so many held-out features as its queries, or all."""
    features = open_features(run)
    rows, bias = (np.load(run.cache / "layer" / f"{name}.npy") for name in ("rows", "bias"))
    return Problem(rows, bias, np.asarray(features.test[:tests], np.float32), features.test_labels[:tests])


# In-class variance


def run_variance(run: Run) -> None:
    """Record how far the pictures of a class lie apart."""
    features = open_features(run)
    labels = np.asarray(features.train_labels)
    rank = np.argsort(np.random.default_rng(run.options.seed).permutation(labels.max() + 1))
    chosen = np.sort(np.argsort(rank[labels], kind="stable")[:VARIANCE_EXAMPLES])  # whole classes, any of them
    found = in_class_variance(features.train[chosen], labels[chosen])
    run.records.write(stage="variance", kind="result", **found)


def in_class_variance(features: npt.NDArray[Any], labels: npt.ArrayLike) -> dict[str, Any]:
    """Return the histogram over the classes of their in-class variance, and what it compares with.

    A class's variance is the sum over its examples of |x - mean|², divided by their number less one; classes of a
    single example have none and are left out. `edges`, `counts`, `mean`, `median` are of features scaled to unit
    length, `raw_edges`, `raw_counts` of the features as they are, divided by the variance of all of them; `between` is
    the mean squared distance of two classes' means, unit length. features: (n, d) of any float type, read twice.
    """
    wanted = np.asarray(labels)
    if features.ndim != 2 or wanted.shape != features.shape[:1]:
        raise InputError(f"features has shape {features.shape} and labels {wanted.shape}; give one label per row")
    _, members, sizes = np.unique(wanted, return_inverse=True, return_counts=True)
    several = sizes >= 2
    if not several.any():
        raise InputError(f"labels has {len(sizes)} classes of one example each; a variance needs two of some class")
    means = _class_means(features, members, sizes)
    spread = {name: np.zeros(len(sizes)) for name in means}
    overall, centre = 0.0, _mean_of_all(means["raw"], sizes)
    for ids, chunk in _chunks(features, members):
        for name, x in chunk.items():
            spread[name] += np.bincount(ids, _squared_lengths(x - means[name][ids]), len(sizes))
        overall += float(_squared_lengths(chunk["raw"] - centre).sum())
    unit, raw = (spread[name][several] / (sizes[several] - 1) for name in ("unit", "raw"))
    counts, edges = _histogram(unit)
    raw_counts, raw_edges = _histogram(raw / (overall / (len(features) - 1) or 1.0))
    return {
        "edges": edges, "counts": counts, "mean": float(unit.mean()), "median": float(np.median(unit)),
        "classes": int(several.sum()), "examples": int(sizes[several].sum()),
        "between": _mean_squared_distance(means["unit"][several]), "raw_edges": raw_edges, "raw_counts": raw_counts,
    }  # fmt: skip


def _chunks(features: npt.NDArray[Any], members: Numbers) -> Iterator[tuple[Numbers, dict[str, Floats]]]:
    """Yield class numbers and features, as they are and at unit length; a vector of zeros stays one."""
    for start in range(0, len(features), VARIANCE_CHUNK):
        raw = np.asarray(features[start : start + VARIANCE_CHUNK], np.float32)
        lengths = np.sqrt(_squared_lengths(raw))
        unit = (raw / np.where(lengths > 0, lengths, 1)[:, None]).astype(np.float32, copy=False)
        yield members[start : start + VARIANCE_CHUNK], {"raw": raw, "unit": unit}


def _class_means(features: npt.NDArray[Any], members: Numbers, sizes: Numbers) -> dict[str, Floats]:
    sums = {name: np.zeros((len(sizes), features.shape[1]), np.float32) for name in ("raw", "unit")}
    for ids, chunk in _chunks(features, members):
        order = np.argsort(ids, kind="stable")
        present, starts = np.unique(ids[order], return_index=True)
        for name, x in chunk.items():
            sums[name][present] += np.add.reduceat(x[order], starts, axis=0)
    for total in sums.values():
        total /= sizes[:, None].astype(np.float32)
    return sums


def _mean_of_all(means: Floats, sizes: Numbers) -> Floats:
    mean: Doubles = sizes @ means / sizes.sum()
    return mean.astype(np.float32)


def _squared_lengths(vectors: Floats) -> Doubles:
    lengths: Doubles = np.einsum("nd,nd->n", vectors, vectors).astype(np.float64)
    return lengths


def _mean_squared_distance(points: Floats) -> float:
    """Return the mean over all pairs of different points: twice the variance."""
    if len(points) < 2:
        return 0.0
    return float(2 * _squared_lengths(points - points.mean(axis=0)).sum() / (len(points) - 1))


def _histogram(values: Doubles) -> tuple[list[int], list[float]]:
    counts, edges = np.histogram(values, bins=BINS, range=(0, float(values.max()) or 1.0))
    return counts.tolist(), edges.tolist()
