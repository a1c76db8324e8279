"""What the tests share: a config of every pipeline, awkward problems, and all of an index that must match."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manyclass import ClassIndex, HashConfig
from manyclass._search_sizes import search_sizes

Array = npt.NDArray[Any]
ROOT = Path(__file__).resolve().parents[1]
ABSENT = 0xFFFFFFFF  # exported code of a class that is in no table

PIPELINES: dict[str, HashConfig] = {
    "exhaustive": HashConfig.exhaustive(),
    "flat sketch": HashConfig.flat_sketch(96),
    "flat sketch, re-ranked": HashConfig.flat_sketch(32, 160, breadth=3),
    "cells": HashConfig.flat_sketch(96, cells=9, cell_reach=200),
    "cells, re-ranked": HashConfig.flat_sketch(32, 160, breadth=3, cells=40, cell_reach=300),
    "balanced": HashConfig.flat_sketch(96, balance="directions"),
    "balanced cells, few directions": HashConfig.flat_sketch(
        64, 96, breadth=3, cells=9, cell_reach=200, balance="directions", coordinates=24
    ),
    "scaled features": HashConfig.flat_sketch(96, cells=9, balance="features"),
    "balanced tables": HashConfig.paper(
        codes=51, bands=17, rescore=True, breadth=3, always=5, balance="directions", coordinates=40
    ),
    "paper": HashConfig.paper(codes=30, bands=10),
    "paper, fast keys": HashConfig.paper(codes=34, bands=17, keys="fast", skip_silent=True),
    "re-score": HashConfig.paper(codes=51, bands=17, rescore=True, breadth=3, always=5),
    "tables and sketch": HashConfig.paper(codes=51, bands=17, sketch_bits=64, breadth=3),
    "probes and sketch": HashConfig(
        window=4, codes=36, bands=9, keys="fast", probes=8, sketch_bits=160, breadth=6, always=7
    ),
    "probes": HashConfig(window=2, codes=63, bands=9, keys="fast", probes=3, breadth=6, skip_silent=True),
}


class Problem(NamedTuple):
    rows: Array  # (classes, features) float32
    bias: Array  # (classes,)
    queries: Array  # (6, features): ReLU outputs, one of them zero, one constant, one a class row


def fitted(config: HashConfig, features: int) -> HashConfig | None:
    """Return the config with the widest window that fits, or None where tables are impossible."""
    width = config.width(features)
    if not config.bands or width >= config.window:
        return config
    return config.with_(window=1 << (width.bit_length() - 1)) if width > 1 else None


def problem(classes: int, features: int, seed: int = 0) -> Problem:
    """Return a problem with zero, constant and duplicate rows, and queries full of zeros."""
    rng = np.random.default_rng([seed, classes, features])
    rows = rng.normal(size=(classes, features)).astype(np.float32)
    if classes > 4:
        rows[0] = 0
        rows[classes // 2] = 1
        rows[-1] = rows[1]
    queries = np.maximum(rng.normal(size=(6, features)), 0).astype(np.float32)
    queries[3] = 0
    queries[4] = 2
    queries[5] = rows[classes // 3]
    return Problem(rows, rng.normal(size=classes).astype(np.float32), queries)


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Make indexes created inside use this backend: native or reference."""
    before = os.environ.get("MANYCLASS_BACKEND")
    os.environ["MANYCLASS_BACKEND"] = name
    try:
        yield
    finally:
        os.environ.pop("MANYCLASS_BACKEND")
        if before is not None:
            os.environ["MANYCLASS_BACKEND"] = before


def exported_codes(index: ClassIndex) -> Array:
    """Return the bucket number of every class in every band, (classes, bands)."""
    codes = np.empty((index.classes, index.config.bands), np.uint32)
    index.state.core.export_codes(codes)
    return codes


def exported_sketch(index: ClassIndex, kind: str) -> tuple[Array, Array]:
    """Return sign bits and factors of every class; kind: scan or sketch."""
    bits = index.config.scan_bits if kind == "scan" else index.config.sketch_bits
    codes, factors = np.empty((index.classes, bits // 8), np.uint8), np.empty(index.classes, np.float32)
    core = index.state.core
    (core.export_scan if kind == "scan" else core.export_sketch)(codes, factors)
    return codes, factors


def exported_weights(index: ClassIndex) -> tuple[Array, Array]:
    """Return factors and biases of every class as the scan has them: 16-bit fractions of the scales."""
    factors, biases = np.empty(index.classes, np.int16), np.empty(index.classes, np.int16)
    index.state.core.export_weights(factors, biases)
    return factors, biases


def exported_cells(index: ClassIndex) -> tuple[Array, Array]:
    """Return the cell of every class, and how far it is from the centre."""
    cells, distances = np.empty(index.classes, np.uint16), np.empty(index.classes, np.float32)
    index.state.core.export_cells(cells, distances)
    return cells, distances


def scanned_classes(index: ClassIndex, queries: Array, candidates: int) -> Array:
    """Return how many classes a shortlist of so many looks at, for each query."""
    sizes = search_sizes(index.config, index.classes, candidates)
    ids, scanned = np.empty((len(queries), sizes.candidates), np.int64), np.empty(len(queries), np.int64)
    index.state.core.shortlist(queries, sizes.keep, sizes.probes, sizes.cells, 2, ids, None, scanned)
    return scanned


def integers(index: ClassIndex, queries: Array, candidates: int = 20, **options: Any) -> dict[str, Array]:
    """Return all that is promised to be the same bits on every backend, instruction set and thread count."""
    kept = {
        "candidates": index.retrieve(queries, candidates, **options)[0],
        "shortlist": index.shortlist(queries, candidates, **options),
        "scanned": scanned_classes(index, queries, candidates),
        "norms": index.state.core.norms(),
        "bias": index.state.core.bias(),
        "mean logits": index.state.core.mean_logits() if index.state.balance else np.zeros(0, np.float32),
        "removed": index.state.core.removed(),
    }
    if index.config.bands:
        kept["codes"] = exported_codes(index)
        kept["votes"] = np.stack([index.votes(query) for query in queries])
    for kind, bits in (("scan", index.config.scan_bits), ("sketch", index.config.sketch_bits)):
        if bits:
            kept |= dict(zip((f"{kind} bits", f"{kind} factors"), exported_sketch(index, kind), strict=True))
    if index.config.scan_bits:
        kept |= dict(zip(("scan weights", "scan biases"), exported_weights(index), strict=True))
        kept |= {"scan scales": np.array(index.state.core.scan_scales()), "outliers": index.state.core.outliers()}
    if index.config.cells:
        kept |= dict(zip(("cells", "distances"), exported_cells(index), strict=True))
        kept["cell radii"] = index.state.core.cell_radii()
    kept |= {"always": index.state.always, "always known": index.state.core.always_known()}
    return kept


def assert_same(left: dict[str, Array], right: dict[str, Array]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def dense_logits(rows: Array, bias: Array | None, queries: Array) -> Array:
    """Return the exact logits in float64, (queries, classes)."""
    logits = np.asarray(queries).astype(np.float64) @ np.asarray(rows).astype(np.float64).T
    return logits if bias is None else logits + np.asarray(bias).astype(np.float64)


def rounding(rows: Array, bias: Array | None, queries: Array) -> Array:
    """Return how far a float32 logit may be from the exact one, (queries, classes): 1e-5 of its terms' size."""
    magnitudes = dense_logits(np.abs(rows), None if bias is None else np.abs(bias), np.abs(queries))
    return 1e-5 * magnitudes + 1e-30


def updates(features: int, classes: int) -> dict[str, Callable[[ClassIndex], object]]:
    """Return a fixed sequence of changes: a refresh with large rows, a refresh in place, an append, a removal."""
    rng = np.random.default_rng([features, classes, 7])
    some = rng.permutation(classes)[: classes // 3 + 1]
    new_rows = (3 * rng.normal(size=(len(some), features))).astype(np.float32)
    new_bias = 5 * rng.normal(size=len(some))
    more = rng.normal(size=(5, features)).astype(np.float32)

    def in_place(index: ClassIndex) -> None:
        index.rows[: classes // 2] *= index.rows.dtype.type(-2)
        index.refresh(slice(0, classes // 2))

    return {
        "refresh with rows": lambda index: index.refresh(some, rows=new_rows, bias=new_bias),
        "refresh in place": in_place,
        "append": lambda index: index.append(more, bias=np.arange(5.0)),
        "remove": lambda index: index.remove([0, classes + 2]),
        "refresh of a removed class": lambda index: index.refresh([0], rows=more[:1]),
    }
