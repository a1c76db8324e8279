"""The data sets of the benchmarks, made once from a seed and cached as memory-mapped float32."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.index.cache import cached_arrays, create_array
from experiments.index.imagenet_like import fill_imagenet_like
from experiments.index.wordnet import fill_wordnet
from experiments.peers.judging import ExactAnswer, same_logit

CHUNK = 100_000  # rows generated or scored at a time


@dataclass(frozen=True)
class Dataset:
    """Rows (classes, features), an optional bias (classes,), and queries with the class each belongs to."""

    name: str
    rows: np.ndarray
    bias: np.ndarray | None
    queries: np.ndarray
    labels: np.ndarray

    def head(self, classes: int) -> "Dataset":
        """Return the first `classes` rows and the queries that belong to them, for quick checks."""
        kept = np.flatnonzero(self.labels < classes)
        bias = None if self.bias is None else self.bias[:classes]
        return Dataset(f"{self.name}-{classes}", self.rows[:classes], bias, self.queries[kept], self.labels[kept])


def load(name: str, fill: Callable[[Path], None]) -> Dataset:
    """Return the cached data set called `name`, made by `fill` the first time."""
    arrays = cached_arrays(name, fill)
    return Dataset(name, arrays["rows"], arrays.get("bias"), arrays["queries"], arrays["labels"])


def wordnet() -> Dataset:
    """Return 117,659 gloss embeddings (384-d, unit length) and 4,000 lemma-with-example queries."""
    return load("wordnet", fill_wordnet)


def imagenet_like(classes: int = 21_900, features: int = 4096) -> Dataset:
    """Return a stand-in for a trained AlexNet's last layer: see `experiments.index.imagenet_like`."""
    return load(f"imagenet_like-{classes}x{features}", lambda folder: fill_imagenet_like(folder, classes, features))


def synthetic_million(classes: int = 1_000_000, features: int = 128) -> Dataset:
    """Return rows of unequal norm with biases, and 4,000 queries that are half-masked rows plus noise."""
    return load(f"synthetic-{classes}x{features}", lambda folder: _fill_synthetic(folder, classes, features))


def planted(classes: int, features: int = 64) -> Dataset:
    """Return isotropic unit rows, and 2,000 unit queries at cosine exactly .8 to the row they belong to."""
    return load(f"planted-{classes}x{features}", lambda folder: _fill_planted(folder, classes, features))


BY_NAME = {"wordnet": wordnet, "synthetic": synthetic_million, "imagenet": imagenet_like}


def exact_top1(dataset: Dataset) -> ExactAnswer:
    """Return the exact answer to every query of the data set, cached. Cost: one product with all rows."""
    arrays = cached_arrays(f"{dataset.name}-exact", lambda folder: _fill_exact(folder, dataset))
    top10 = np.asarray(arrays["top10"])
    return ExactAnswer(top10, float(np.mean(same_logit(dataset, top10[:, 0], dataset.labels))))


def _fill_synthetic(folder: Path, classes: int, features: int, query_count: int = 4000, seed: int = 1) -> None:
    random = np.random.default_rng(seed)
    rows = create_array(folder, "rows", (classes, features))
    for start in range(0, classes, CHUNK):
        part = random.standard_normal((min(CHUNK, classes - start), features), dtype=np.float32)
        rows[start : start + CHUNK] = part * random.lognormal(0, 0.5, (len(part), 1)).astype(np.float32)
    labels = random.choice(classes, query_count, replace=False)
    own = rows[labels]
    masked_order = random.random(own.shape).argsort(axis=1) < features // 2  # exactly half of each row's coordinates
    noise = random.standard_normal(own.shape, dtype=np.float32) * (0.3 * own.std(axis=1, keepdims=True))
    np.save(folder / "queries.npy", np.where(masked_order, np.float32(0), own) + noise)
    np.save(folder / "labels.npy", labels.astype(np.int64))
    np.save(folder / "bias.npy", random.standard_normal(classes, dtype=np.float32))


def _fill_planted(folder: Path, classes: int, features: int, query_count: int = 2000, seed: int = 2) -> None:
    random = np.random.default_rng(seed)
    rows = create_array(folder, "rows", (classes, features))
    for start in range(0, classes, CHUNK):
        part = random.standard_normal((min(CHUNK, classes - start), features), dtype=np.float32)
        rows[start : start + CHUNK] = part / np.linalg.norm(part, axis=1, keepdims=True)
    labels = random.choice(classes, query_count, replace=False)
    own = rows[labels]
    away = random.standard_normal(own.shape, dtype=np.float32)
    away -= (away * own).sum(axis=1, keepdims=True) * own  # orthogonal to the row, so the cosine is exactly .8
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    np.save(folder / "queries.npy", np.float32(0.8) * own + np.float32(0.6) * away)
    np.save(folder / "labels.npy", labels.astype(np.int64))


def _fill_exact(folder: Path, dataset: Dataset, depth: int = 10) -> None:
    queries = np.asarray(dataset.queries)
    best_logits = np.full((len(queries), depth), -np.inf, np.float32)
    best_classes = np.zeros((len(queries), depth), np.int64)
    for start in range(0, len(dataset.rows), CHUNK // 4):
        stop = min(start + CHUNK // 4, len(dataset.rows))
        logits = queries @ np.asarray(dataset.rows[start:stop]).T
        if dataset.bias is not None:
            logits += dataset.bias[start:stop]
        local = np.argpartition(logits, -depth, axis=1)[:, -depth:]
        all_logits = np.hstack([best_logits, np.take_along_axis(logits, local, axis=1)])
        all_classes = np.hstack([best_classes, local + start])
        order = np.argsort(-all_logits, axis=1, kind="stable")[:, :depth]
        best_logits = np.take_along_axis(all_logits, order, axis=1)
        best_classes = np.take_along_axis(all_classes, order, axis=1)
    np.save(folder / "top10.npy", best_classes)
