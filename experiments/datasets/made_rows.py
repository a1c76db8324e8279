"""Rows made from a seed: planted neighbours, rows of very unequal norm, queries that do not resemble rows. Seconds,
even for ten million."""

from collections.abc import Callable

import numpy as np

from experiments.peers.peer import Floats
from experiments.peers.problem import Problem

CHUNK = 100_000  # rows drawn at a time; part of the definition: other chunks give other rows


def planted(classes: int, features: int = 64, queries: int = 2000, seed: int = 2) -> Problem:
    """Return unit rows in all directions, and unit queries at cosine exactly .8 to the row they belong to."""
    random = np.random.default_rng(seed)
    rows = _in_chunks(classes, features, lambda count: _unit(random.standard_normal((count, features), np.float32)))
    labels = random.choice(classes, queries, replace=False)
    own = rows[labels]
    away = random.standard_normal(own.shape, dtype=np.float32)
    away -= (away * own).sum(axis=1, keepdims=True) * own  # orthogonal to the row, so the cosine is exactly .8
    return Problem(rows, None, np.float32(0.8) * own + np.float32(0.6) * _unit(away), labels)


def unequal_norms(classes: int, features: int = 128, queries: int = 4000, seed: int = 1) -> Problem:
    """Return rows of lognormal length (sigma .5) with biases, and queries that are half-masked rows plus noise."""
    random = np.random.default_rng(seed)

    def some(count: int) -> Floats:
        part = random.standard_normal((count, features), dtype=np.float32)
        return part * random.lognormal(0, 0.5, (count, 1)).astype(np.float32)

    rows = _in_chunks(classes, features, some)
    labels = random.choice(classes, queries, replace=False)
    own = rows[labels]
    masked = random.random(own.shape).argsort(axis=1) < features // 2  # exactly half of each row's coordinates
    noise = random.standard_normal(own.shape, dtype=np.float32) * (0.3 * own.std(axis=1, keepdims=True))
    bias = random.standard_normal(classes, dtype=np.float32)
    return Problem(rows, bias, np.where(masked, np.float32(0), own) + noise, labels)


def off_centre(classes: int, features: int = 64, queries: int = 2000, seed: int = 3) -> Problem:
    """Return rows, and queries unlike them, as a language model has: a common mean, and a few strong directions.

    A query is its row's direction where queries vary little, ten times as much of eight directions in which rows vary
    little, and a mean two thirds of its length.
    """
    random = np.random.default_rng(seed)
    strong = min(8, features // 4)
    row_scale = np.where(np.arange(features) < strong, 0.1, 1).astype(np.float32)
    rows = _in_chunks(
        classes, features, lambda count: random.standard_normal((count, features), np.float32) * row_scale
    )
    labels = random.choice(classes, queries, replace=False)
    states = np.float32(0.6) * rows[labels] + np.float32(0.3) * random.standard_normal((queries, features), np.float32)
    states[:, :strong] += 10 * random.standard_normal((queries, strong), np.float32)
    mean = _unit(random.standard_normal((1, features), np.float32) * np.where(row_scale < 1, 1, 0.1).astype(np.float32))
    states += mean * np.float32(0.9 * np.sqrt(np.mean(np.sum(states**2, axis=1))))
    return Problem(rows, None, states, labels)


def _in_chunks(classes: int, features: int, some: Callable[[int], Floats]) -> Floats:
    rows = np.empty((classes, features), np.float32)
    for start in range(0, classes, CHUNK):
        part = rows[start : start + CHUNK]
        part[:] = some(len(part))
    return rows


def _unit(vectors: Floats) -> Floats:
    unit: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit
