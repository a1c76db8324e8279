"""How far the examples of a class lie apart in the features of a network."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass.errors import InputError

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
VARIANCE_CHUNK = 4096  # examples at a time; the features of a full run do not fit in memory
BINS = 40


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
