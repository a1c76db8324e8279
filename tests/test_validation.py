"""Every public entry point against every awkward input: the exact answer, or a typed error and nothing changed.

The table is a product: entry points are grouped by the kind of argument they take, and each kind has a list of values
with one declared outcome each. Long because the lists are; the machinery is at the end.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import PIPELINES, Array, assert_same, dense_logits, exported_codes, integers, problem, rounding

import manyclass as mc
from manyclass import ClassIndex, HashConfig, TopK

CLASSES, FEATURES = 12, 16
ROWS, BIAS, _ = problem(CLASSES, FEATURES, seed=5)
QUERIES = np.random.default_rng(1).normal(size=(5, FEATURES)).astype(np.float32)
NAMES = [f"class {number}" for number in range(CLASSES)]


@dataclass(frozen=True)
class Refused:
    """Expect this error, with the argument's name in the message."""

    error: type[Exception]


VALUE, TYPE = Refused(mc.InputError), Refused(mc.InputTypeError)
SAMPLE = np.random.default_rng(2).normal(size=(100, FEATURES)).astype(np.float32)
EXACT = "exact"  # expect the answer of the dense float64 layer


@dataclass
class World:
    """What a case may use up: an index with named classes and a bias, and a folder."""

    index: ClassIndex
    folder: Path


def misaligned(array: Array) -> Array:
    shifted = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    shifted[...] = array
    assert not shifted.flags.aligned
    return shifted


def read_only(array: Array) -> Array:
    frozen = array.copy()
    frozen.flags.writeable = False
    return frozen


def with_value(array: Array, value: float) -> Array:
    changed = array.astype(np.float64 if abs(value) > 1e38 and np.isfinite(value) else np.float32)
    changed.reshape(-1)[-3] = value
    return changed


def strided(array: Array) -> Array:
    """Return equal elements, two apart in memory along the last axis."""
    return np.repeat(array, 2, axis=-1)[..., ::2]


def backwards(array: Array) -> Array:
    """Return equal elements, stored in reverse along the last axis."""
    return np.ascontiguousarray(array[..., ::-1])[..., ::-1]


# Values by kind of argument: each takes the ordinary value and makes it awkward.

Awkward = dict[str, tuple[Callable[[Any], Any], "Refused | str"]]

LAYOUTS: Awkward = {
    "ordinary": (lambda x: x, EXACT),
    "non-contiguous": (strided, EXACT),
    "negative stride": (backwards, EXACT),
    "misaligned": (misaligned, EXACT),
    "read-only": (read_only, EXACT),
    "list": (lambda x: x.tolist(), EXACT),
}
NOT_NUMBERS: Awkward = {
    "complex": (lambda x: x.astype(np.complex64), TYPE),
    "object": (lambda x: x.astype(object), TYPE),
    "string": (lambda x: "abc", TYPE),
    "strings": (lambda x: x.astype(str), TYPE),
    "dict": (lambda x: {"a": 1}, TYPE),
    "bool": (lambda x: x > 0, TYPE),
}
FLOATS: Awkward = {
    **LAYOUTS,
    **NOT_NUMBERS,
    "float64": (lambda x: x.astype(np.float64), EXACT),
    "float16": (lambda x: x.astype(np.float16), EXACT),
    "big-endian": (lambda x: x.astype(">f4"), EXACT),
    "int": (lambda x: x.astype(np.int64), TYPE),
    "list of int": (lambda x: x.astype(int).tolist(), TYPE),
    "longdouble": (lambda x: x.astype(np.longdouble), TYPE),
    "NaN": (lambda x: with_value(x, np.nan), VALUE),
    "inf": (lambda x: with_value(x, np.inf), VALUE),
    "-inf": (lambda x: with_value(x, -np.inf), VALUE),
    "beyond float32": (lambda x: with_value(x, 1e300), VALUE),
    "minus zero": (lambda x: with_value(x, -0.0), EXACT),
    "denormal": (lambda x: with_value(x, 1e-42), EXACT),
    "all equal": (lambda x: np.ones_like(x), EXACT),
    "all zero": (lambda x: np.zeros_like(x), EXACT),
    "0-d": (lambda x: np.float32(1), VALUE),
    "ragged": (lambda x: [[1.0], [2.0, 3.0]], VALUE),
}
VECTORS: Awkward = {
    **FLOATS,
    "broadcast": (lambda x: np.broadcast_to(x[:1], x.shape), EXACT),
    "fortran": (np.asfortranarray, EXACT),
    "huge element": (lambda x: with_value(x, 1e30), EXACT),
    "norm beyond float32": (lambda x: np.full_like(x, 3e38), VALUE),
    "3-d": (lambda x: x[None], VALUE),
    "too few features": (lambda x: x[:, :-1], VALUE),
    "too many features": (lambda x: np.concatenate([x, x], 1), VALUE),
    "no features": (lambda x: x[:, :0], VALUE),
}
BIASES: Awkward = {
    **FLOATS,
    "-inf": (lambda x: with_value(x, -np.inf), EXACT),  # masks the class
    "-inf of float64": (lambda x: with_value(x, -np.inf).astype(np.float64), EXACT),
    "below float32": (lambda x: with_value(x, -1e300), VALUE),
    "huge": (lambda x: with_value(x, 1e9), EXACT),
    "far below": (lambda x: with_value(x, -1e9), EXACT),
    "broadcast": (lambda x: np.broadcast_to(x[:1], x.shape), EXACT),
    "too short": (lambda x: x[:-1], VALUE),
    "too long": (lambda x: np.append(x, x), VALUE),
    "2-d": (lambda x: x[:, None], VALUE),
    "empty": (lambda x: x[:0], VALUE),
}
ROW_VIEWS: Awkward = {  # kept as views, so layouts that would need a copy are refused
    **NOT_NUMBERS,
    "ordinary": (lambda x: x, EXACT),
    "float64": (lambda x: x.astype(np.float64), EXACT),
    "float16": (lambda x: x.astype(np.float16), EXACT),
    "read-only": (read_only, EXACT),
    "broadcast": (lambda x: np.broadcast_to(x[1], x.shape), EXACT),
    "every other row": (lambda x: np.repeat(x, 2, axis=0)[::2], EXACT),
    "rows backwards": (lambda x: np.ascontiguousarray(x[::-1])[::-1], EXACT),
    "slice of wider rows": (lambda x: np.concatenate([x, x], 1)[:, 3 : 3 + FEATURES], EXACT),
    "minus zero": (lambda x: with_value(x, -0.0), EXACT),
    "denormal": (lambda x: with_value(x, 1e-42), EXACT),
    "all equal": (lambda x: np.ones_like(x), EXACT),
    "non-contiguous": (strided, VALUE),
    "negative stride": (backwards, VALUE),
    "fortran": (np.asfortranarray, VALUE),
    "misaligned": (misaligned, VALUE),
    "0-d": (lambda x: np.array(1, np.float32), VALUE),
    "1-d": (lambda x: x[0], VALUE),
    "3-d": (lambda x: x[None], VALUE),
    "no features": (lambda x: x[:, :0], VALUE),
    "int": (lambda x: x.astype(np.int64), TYPE),
    "longdouble": (lambda x: x.astype(np.longdouble), TYPE),
    "big-endian": (lambda x: x.astype(">f4"), TYPE),
    "list": (lambda x: x.tolist(), TYPE),
    "None": (lambda x: None, TYPE),
}
BUILT_ROWS: Awkward = {
    **ROW_VIEWS,
    "NaN": (lambda x: with_value(x, np.nan), VALUE),
    "inf": (lambda x: with_value(x, np.inf), VALUE),
    "huge element": (lambda x: with_value(x, 1e30), EXACT),
    "norm beyond float32": (lambda x: np.full_like(x, 3e38), VALUE),
    "beyond float32": (lambda x: with_value(x, 1e300), VALUE),
}
IDS: Awkward = {
    **LAYOUTS,
    **NOT_NUMBERS,
    **{dtype: (lambda x, dtype=dtype: x.astype(dtype), EXACT) for dtype in ("int8", "uint8", "int32", "uint64", ">i8")},
    "unsorted": (lambda x: x[[2, 0, 4, 1, 3]], EXACT),
    "-1": (lambda x: [*x[:-1], -1], VALUE),
    "N": (lambda x: [*x[:-1], CLASSES], VALUE),
    "2**31": (lambda x: [*x[:-1], 2**31], VALUE),
    "2**32 + 1": (lambda x: [*x[:-1], 2**32 + 1], VALUE),
    "2**63 - 1": (lambda x: [*x[:-1], 2**63 - 1], VALUE),
    "uint64 2**64 - 1": (lambda x: np.array([*x[:-1], 2**64 - 1], np.uint64), VALUE),
    "2**64": (lambda x: [*x[:-1], 2**64], TYPE),
    "float": (lambda x: x.astype(np.float32), TYPE),
    "NaN": (lambda x: [*x[:-1], np.nan], TYPE),
    "2-d": (lambda x: x[:, None], VALUE),
    "ragged": (lambda x: [[1], [2, 3]], VALUE),
}
EXCLUDED: Awkward = {
    **LAYOUTS,
    **NOT_NUMBERS,
    **{dtype: (lambda x, dtype=dtype: x.astype(dtype), EXACT) for dtype in ("int8", "int32", ">i8")},
    "None": (lambda x: None, EXACT),
    "nothing": (lambda x: x[:, :0], EXACT),
    "padding alone": (lambda x: np.full_like(x, -1), EXACT),
    "the same id twice": (lambda x: np.concatenate([x, x], 1), EXACT),
    "every class": (lambda x: np.tile(np.arange(CLASSES), (len(x), 1)), EXACT),
    "float": (lambda x: x.astype(np.float32), TYPE),
    "-2": (lambda x: x - 3, VALUE),
    "N": (lambda x: np.where(x == 1, CLASSES, x), VALUE),
    "2**63 - 1": (lambda x: np.where(x == 1, 2**63 - 1, x), VALUE),
    "too few queries": (lambda x: x[:-1], VALUE),
    "1-d for many queries": (lambda x: x[0], VALUE),
    "0-d": (lambda x: 3, VALUE),
    "3-d": (lambda x: x[None], VALUE),
    "ragged": (lambda x: [[1], [2, 3]], VALUE),
}
LEFT_OUT = np.array([[1, -1, 5], [-1, -1, -1], [7, 1, 3], [2, -1, -1], [1, 2, 3]])
COUNTS: Awkward = {
    "ordinary": (lambda x: x, EXACT),
    "int64": (np.int64, EXACT),
    "uint8": (np.uint8, EXACT),
    "0": (lambda x: 0, VALUE),
    "-1": (lambda x: -1, VALUE),
    "2**63": (lambda x: 2**63, VALUE),
    "2**70": (lambda x: 2**70, VALUE),
    "float": (lambda x: float(x), TYPE),
    "float32": (np.float32, TYPE),
    "string": (lambda x: str(x), TYPE),
    "bool": (lambda x: True, TYPE),
    "array": (lambda x: np.array([x]), TYPE),
}
BREADTHS: Awkward = {
    **COUNTS,
    "None": (lambda x: None, EXACT),
    "N": (lambda x: CLASSES, EXACT),
    "above N": (lambda x: CLASSES + 1, EXACT),
    "2**62": (lambda x: 2**62, EXACT),
}
THREADS: Awkward = {**COUNTS, "None": (lambda x: None, EXACT), "7": (lambda x: 7, EXACT)}  # 2**62: see below
NAMES_GIVEN: Awkward = {
    "ordinary": (lambda x: x, EXACT),
    "tuple": (tuple, EXACT),
    "array": (np.array, EXACT),
    "not ASCII": (lambda x: ["ß😀\0\n" + name for name in x], EXACT),
    "lone surrogate": (lambda x: ["\ud800" for _ in x], EXACT),
    "all empty": (lambda x: ["" for _ in x], EXACT),
    "too few": (lambda x: x[:-1], VALUE),
    "too many": (lambda x: [*x, "more"], VALUE),
    "one string": (lambda x: "x" * len(x), TYPE),
    "number": (lambda x: 3, TYPE),
    "generator": (iter, TYPE),
    "dict": (lambda x: dict.fromkeys(x), TYPE),
    "bytes inside": (lambda x: [*x[:-1], b"bytes"], TYPE),
    "None inside": (lambda x: [*x[:-1], None], TYPE),
}

# Entry points by kind of argument. Each returns the queries it searched and what it found, or None.

Entry = tuple[str, Any, Callable[[World, Any], "tuple[Any, TopK] | None"]]
EVERY = {"config": HashConfig.exhaustive()}
SOME, SOME_ROWS, SOME_BIAS = np.array([7, 2]), QUERIES[:2] * 2, np.array([0.5, -3], np.float32)


def does(action: Callable[[World, Any], Any]) -> Callable[[World, Any], None]:
    """Return the action without its result: what counts is the index afterwards."""

    def run(world: World, value: Any) -> None:
        action(world, value)

    return run


def rebuilt(world: World, **arguments: Any) -> None:
    world.index = ClassIndex.build(**({"rows": ROWS.copy(), "bias": BIAS, "config": world.index.config} | arguments))


def reloaded(world: World, **arguments: Any) -> None:
    path = world.folder / "index.mc"
    world.index.save(path)
    world.index = ClassIndex.load(path, **arguments)


ENTRIES: list[tuple[str, Awkward, list[Entry]]] = [
    (
        "queries",
        VECTORS,
        [
            ("search", QUERIES, lambda w, x: (x, w.index.search(x, 3))),
            ("retrieve", QUERIES, does(lambda w, x: w.index.retrieve(x, 3))),
            ("shortlist", QUERIES, does(lambda w, x: w.index.shortlist(x, 3))),
            ("check", QUERIES, does(lambda w, x: w.index.check(x, k=3))),
        ],
    ),
    (
        "rows",
        VECTORS,
        [
            ("refresh", SOME_ROWS, does(lambda w, x: w.index.refresh(SOME, rows=x))),
            ("append", SOME_ROWS, does(lambda w, x: w.index.append(x, names=["a", "b"]))),
        ],
    ),
    ("rows", BUILT_ROWS, [("build", ROWS, does(lambda w, x: rebuilt(w, rows=x)))]),
    ("rows", ROW_VIEWS, [("rebind", ROWS, does(lambda w, x: (w.index.rebind(x), w.index.refresh(slice(None)))))]),
    (
        "bias",
        BIASES,
        [
            ("build", BIAS, does(lambda w, x: rebuilt(w, bias=x))),
            ("refresh", BIAS[:4], does(lambda w, x: w.index.refresh([3, 1, 8, 5], bias=x))),
            ("append", BIAS[:4], does(lambda w, x: w.index.append(QUERIES[:4], bias=x, names=NAMES[:4]))),
        ],
    ),
    (
        "ids",
        IDS,
        [
            ("refresh", np.arange(5), does(lambda w, x: w.index.refresh(x))),
            ("remove", np.arange(5), does(lambda w, x: w.index.remove(x))),
        ],
    ),
    ("labels", IDS, [("check", np.arange(5), does(lambda w, x: w.index.check(QUERIES, x)))]),
    (
        "exclude",
        EXCLUDED,
        [
            ("search", LEFT_OUT, does(lambda w, x: w.index.search(QUERIES, 3, exclude=x))),
            ("retrieve", LEFT_OUT, does(lambda w, x: w.index.retrieve(QUERIES, 3, exclude=x))),
            ("shortlist", LEFT_OUT, does(lambda w, x: w.index.shortlist(QUERIES, 3, exclude=x))),
        ],
    ),
    (
        "k",
        COUNTS,
        [
            ("search", 3, lambda w, x: (QUERIES, w.index.search(QUERIES, x, candidates=2**62))),
            ("check", 3, does(lambda w, x: w.index.check(QUERIES, k=x))),
        ],
    ),
    (
        "candidates",
        BREADTHS,
        [
            ("search", 3, does(lambda w, x: w.index.search(QUERIES, 1, candidates=x))),
            ("retrieve", 3, does(lambda w, x: w.index.retrieve(QUERIES, x))),
            ("shortlist", 3, does(lambda w, x: w.index.shortlist(QUERIES, x))),
            ("check", 3, does(lambda w, x: w.index.check(QUERIES, candidates=x))),
        ],
    ),
    (
        "threads",
        THREADS,
        [
            ("build", 2, does(lambda w, x: rebuilt(w, threads=x))),
            ("search", 2, lambda w, x: (QUERIES, w.index.search(QUERIES, 3, threads=x))),
            ("retrieve", 2, does(lambda w, x: w.index.retrieve(QUERIES, 3, threads=x))),
            ("shortlist", 2, does(lambda w, x: w.index.shortlist(QUERIES, 3, threads=x))),
            ("refresh", 2, does(lambda w, x: w.index.refresh(SOME, threads=x))),
            ("append", 2, does(lambda w, x: w.index.append(SOME_ROWS, names=["a", "b"], threads=x))),
            ("check", 2, does(lambda w, x: w.index.check(QUERIES, threads=x))),
            ("load", 2, does(lambda w, x: reloaded(w, threads=x))),
        ],
    ),
    (
        "names",
        NAMES_GIVEN,
        [
            ("build", NAMES, does(lambda w, x: rebuilt(w, names=x))),
            ("append", ["a", "b"], does(lambda w, x: w.index.append(SOME_ROWS, names=x))),
        ],
    ),
]

# Cases that fit no product: (entry, what, argument named in the message, call, outcome).

Single = tuple[str, str, str, Callable[[World], Any], "Refused | str"]
SINGLES: list[Single] = [
    ("search", "one query", "queries", lambda w: w.index.search(QUERIES[0], 3), EXACT),
    ("search", "empty batch", "queries", lambda w: w.index.search(QUERIES[:0], 3), EXACT),
    ("search", "k above candidates", "k", lambda w: w.index.search(QUERIES, 4, candidates=3), VALUE),
    ("search", "k above the default candidates", "k", lambda w: w.index.search(QUERIES, 301), VALUE),
    ("search", "k = N", "k", lambda w: w.index.search(QUERIES, CLASSES), EXACT),
    ("search", "k above N", "k", lambda w: w.index.search(QUERIES, 40, candidates=50), EXACT),
    ("search", "absurd k", "k", lambda w: w.index.search(QUERIES, 2**40, candidates=2**40), VALUE),
    ("search", "impossible k", "k", lambda w: w.index.search(QUERIES, 2**62, candidates=2**62), VALUE),
    ("retrieve", "empty batch", "queries", lambda w: w.index.retrieve(QUERIES[:0]), EXACT),
    ("check", "empty batch", "queries", lambda w: w.index.check(QUERIES[:0]), EXACT),
    ("check", "too few labels", "labels", lambda w: w.index.check(QUERIES, [1, 2]), VALUE),
    ("check", "k above candidates", "k", lambda w: w.index.check(QUERIES, k=9, candidates=3), EXACT),
    ("refresh", "no ids", "ids", lambda w: w.index.refresh([]), EXACT),
    ("refresh", "no ids, no rows", "ids", lambda w: w.index.refresh([], rows=QUERIES[:0]), EXACT),
    ("refresh", "one id", "ids", lambda w: w.index.refresh(3), EXACT),
    ("refresh", "slice", "ids", lambda w: w.index.refresh(slice(2, 9)), EXACT),
    ("refresh", "slice with rows", "ids", lambda w: w.index.refresh(slice(4, 2, -1), rows=SOME_ROWS), EXACT),
    ("refresh", "slice beyond", "ids", lambda w: w.index.refresh(slice(10, 99)), EXACT),
    ("refresh", "repeated ids", "ids", lambda w: w.index.refresh([3, 3, 4]), EXACT),
    ("refresh", "repeated ids, rows", "ids", lambda w: w.index.refresh([3, 3], rows=SOME_ROWS), VALUE),
    ("refresh", "repeated ids, bias", "ids", lambda w: w.index.refresh([3, 3], bias=SOME_BIAS), VALUE),
    ("refresh", "None", "ids", lambda w: w.index.refresh(None), TYPE),
    ("refresh", "too few rows", "rows", lambda w: w.index.refresh([3, 4, 5], rows=SOME_ROWS), VALUE),
    ("refresh", "one 1-d row", "rows", lambda w: w.index.refresh([3], rows=SOME_ROWS[0]), VALUE),
    ("remove", "nothing", "ids", lambda w: w.index.remove([]), EXACT),
    ("remove", "twice", "ids", lambda w: (w.index.remove([3, 3]), w.index.remove(3)), EXACT),
    ("remove", "slice", "ids", lambda w: w.index.remove(slice(0, 3)), EXACT),
    ("remove", "everything", "ids", lambda w: w.index.remove(slice(None)), EXACT),
    ("append", "no rows", "rows", lambda w: w.index.append(QUERIES[:0], names=[]), EXACT),
    ("append", "1-d", "rows", lambda w: w.index.append(QUERIES[0], names=["a"]), VALUE),
    ("append", "1-d with bias", "rows", lambda w: w.index.append(QUERIES[0], bias=[1.0], names=["a"]), VALUE),
    ("append", "without names", "names", lambda w: w.index.append(SOME_ROWS), VALUE),
    ("rebind", "too few rows", "rows", lambda w: w.index.rebind(ROWS[:-1]), VALUE),
    ("rebind", "too many rows", "rows", lambda w: w.index.rebind(np.concatenate([ROWS, ROWS])), VALUE),
    ("rebind", "other features", "rows", lambda w: w.index.rebind(ROWS[:, :-1].copy()), VALUE),
    ("lengthen", "too few rows", "rows", lambda w: w.index.lengthen(ROWS[:-1]), VALUE),
    ("lengthen", "other features", "rows", lambda w: w.index.lengthen(ROWS[:, :-1].copy()), VALUE),
    ("adapt", "a sample", "queries", lambda w: w.index.adapt(SAMPLE), EXACT),
    ("adapt", "too few queries", "queries", lambda w: w.index.adapt(QUERIES), VALUE),
    ("adapt", "NaN", "queries", lambda w: w.index.adapt(with_value(SAMPLE, np.nan)), VALUE),
    ("adapt", "other features", "queries", lambda w: w.index.adapt(SAMPLE[:, :-1]), VALUE),
    ("adapt", "whole numbers", "queries", lambda w: w.index.adapt([1, 2, 3]), TYPE),
    ("adapt", "no threads", "threads", lambda w: w.index.adapt(SAMPLE, threads=0), VALUE),
    ("build", "too few queries", "queries", lambda w: rebuilt(w, queries=QUERIES), VALUE),
    ("build", "impossible target", "target", lambda w: rebuilt(w, target=2), Refused(mc.ManyclassError)),
    ("build", "unknown metric", "metric", lambda w: rebuilt(w, metric="top5"), VALUE),
    ("build", "no classes", "rows", lambda w: rebuilt(w, rows=np.empty((0, FEATURES), np.float32), bias=None), EXACT),
    ("build", "config is a dict", "config", lambda w: rebuilt(w, config={"window": 16}), TYPE),
    ("build", "progress is a number", "progress", lambda w: rebuilt(w, progress=3), TYPE),
    ("build", "window too wide", "window", lambda w: rebuilt(w, rows=ROWS[:, :3].copy(), config=HashConfig()),
     Refused(mc.ConfigError)),
    ("save", "folder", "regular file", lambda w: w.index.save(w.folder), Refused(mc.FileError)),
    ("save", "folder that is not there", "No such file", lambda w: w.index.save(w.folder / "a" / "b"),
     Refused(FileNotFoundError)),
    ("save", "None", "path", lambda w: w.index.save(None), Refused(TypeError)),  # type: ignore[arg-type]
    ("load", "None", "path", lambda w: ClassIndex.load(None), Refused(TypeError)),  # type: ignore[arg-type]
    ("load", "number", "path", lambda w: ClassIndex.load(3), Refused(TypeError)),  # type: ignore[arg-type]
    ("load", "folder", "regular file", lambda w: ClassIndex.load(w.folder), Refused(mc.FileError)),
    ("load", "missing file", "No such file", lambda w: ClassIndex.load(w.folder / "no.mc"), Refused(FileNotFoundError)),
    ("load", "empty file", "short", lambda w: ClassIndex.load(written(w, b"")), Refused(mc.CorruptFileError)),
    ("load", "text", "not a manyclass file", lambda w: ClassIndex.load(written(w, b"a" * 99)),
     Refused(mc.CorruptFileError)),
    ("load", "mapped", "path", lambda w: reloaded(w, mmap=True), EXACT),
    ("load", "unverified", "path", lambda w: reloaded(w, verify=False), EXACT),
    ("HashConfig", "negative seed", "seed", lambda w: HashConfig(seed=-1), Refused(mc.ConfigError)),
    ("HashConfig", "huge seed", "seed", lambda w: HashConfig(seed=2**63), Refused(mc.ConfigError)),
    ("HashConfig", "largest seed", "seed", lambda w: rebuilt(w, config=w.index.config.with_(seed=2**63 - 1)), EXACT),
    ("HashConfig", "no candidates", "candidates", lambda w: HashConfig(candidates=0), Refused(mc.ConfigError)),
    ("for_problem", "no features", "features", lambda w: HashConfig.for_problem(5, 0), Refused(mc.ConfigError)),
    ("for_problem", "too many classes", "classes", lambda w: HashConfig.for_problem(2**32, 8), Refused(mc.ConfigError)),
]  # fmt: skip
SINGLES += [
    ("tune", "few classes", "rows", lambda w: mc.tune(ROWS[:3], QUERIES), EXACT),
    ("tune", "NaN in rows", "rows", lambda w: mc.tune(with_value(ROWS, np.nan), QUERIES), VALUE),
    ("tune", "NaN in queries", "queries", lambda w: mc.tune(ROWS, with_value(QUERIES, np.nan)), VALUE),
    ("tune", "no rows", "rows", lambda w: mc.tune(ROWS[:0], QUERIES), VALUE),
    ("tune", "no queries", "queries", lambda w: mc.tune(ROWS, QUERIES[:0]), VALUE),
    ("tune", "rows is a list", "rows", lambda w: mc.tune(ROWS.tolist(), QUERIES), TYPE),  # type: ignore[arg-type]
    ("tune", "other features", "queries", lambda w: mc.tune(ROWS, QUERIES[:, :-1]), VALUE),
    ("tune", "label N", "labels", lambda w: mc.tune(ROWS, QUERIES, [0, 1, 2, 3, CLASSES]), VALUE),
    ("tune", "too few labels", "labels", lambda w: mc.tune(ROWS, QUERIES, [0]), VALUE),
    ("tune", "short bias", "bias", lambda w: mc.tune(ROWS, QUERIES, bias=BIAS[:3]), VALUE),
    ("tune", "impossible target", "target", lambda w: mc.tune(ROWS, QUERIES, target=2), Refused(mc.ManyclassError)),
    ("tune", "too little memory", "memory", lambda w: mc.tune(ROWS, QUERIES, memory=1), Refused(mc.ManyclassError)),
    ("tune", "no threads", "threads", lambda w: mc.tune(ROWS, QUERIES, threads=0), VALUE),
    ("tune", "no queries wanted", "most_queries", lambda w: mc.tune(ROWS, QUERIES, most_queries=0), VALUE),
]  # fmt: skip


def written(world: World, content: bytes) -> Path:
    path = world.folder / "written.mc"
    path.write_bytes(content)
    return path


def table() -> list[Any]:
    """Return all cases as (call, outcome, argument), named entry-argument-value."""

    def product(run: Any, make: Any, value: Any) -> Callable[[World], Any]:
        return lambda world: run(world, make(value))

    cases = [
        pytest.param(product(run, make, value), outcome, argument, id=f"{entry}-{argument}-{row}")
        for argument, values, entries in ENTRIES
        for entry, value, run in entries
        for row, (make, outcome) in values.items()
    ]
    return cases + [
        pytest.param(call, outcome, argument, id=f"{entry}-{what}") for entry, what, argument, call, outcome in SINGLES
    ]


def assert_exact(index: ClassIndex, queries: Any, found: TopK) -> None:
    """Check a search among all classes against the dense layer in float64."""
    queries = np.atleast_2d(np.asarray(queries)).astype(np.float64)
    classes, logits = np.atleast_2d(found.classes), np.atleast_2d(found.logits)
    bias = index.state.core.bias()
    exact, allowed = dense_logits(index.rows, bias, queries), rounding(index.rows, bias, queries)
    if len(index.state.core.removed()):
        exact[:, index.state.core.removed() != 0] = -np.inf
    for q in range(len(queries)):
        best = np.sort(exact[q])[::-1][: classes.shape[1]]
        best = best[np.isfinite(best)]
        chosen = classes[q][classes[q] >= 0]
        assert len(chosen) == len(best) == len(set(chosen.tolist()))
        assert (np.abs(exact[q, chosen] - best) <= allowed[q].max(initial=0)).all()
        assert (np.abs(logits[q, : len(chosen)] - exact[q, chosen]) <= allowed[q, chosen]).all()
        assert (logits[q, len(chosen) :] == -np.inf).all()


# Candidates of these are all classes, so that their answer is exact; those of the others depend on the buckets.
ALL_CLASSES = ("exhaustive", "flat sketch")


@pytest.mark.parametrize(("call", "outcome", "argument"), table())
@pytest.mark.parametrize("pipeline", ["exhaustive", "flat sketch", "re-score", "probes and sketch"])
def test_every_input_gives_the_exact_answer_or_a_typed_error_and_no_change(
    pipeline: str, call: Callable[[World], Any], outcome: Refused | str, argument: str, tmp_path: Path
) -> None:
    config = PIPELINES[pipeline].with_(candidates=300)
    index = ClassIndex.build(ROWS.copy(), bias=BIAS, config=config, names=NAMES)
    world = World(index, tmp_path)
    before, rows, names = integers(index, QUERIES), ROWS.copy(), list(NAMES)
    if isinstance(outcome, Refused):
        ours = issubclass(outcome.error, mc.ManyclassError)
        with pytest.raises(outcome.error, match=argument if ours else None):
            call(world)
        assert world.index is index
        assert_same(before, integers(index, QUERIES))
        np.testing.assert_array_equal(index.rows, rows)
        assert index.names == names
        return
    answer = call(world)
    if pipeline not in ALL_CLASSES:
        world.index.search(QUERIES, 3)
        return
    if isinstance(answer, TopK):
        assert np.isfinite(answer.logits[answer.classes >= 0]).all()
    elif isinstance(answer, tuple) and isinstance(answer[-1], TopK):
        assert_exact(world.index, *answer)
    assert_exact(world.index, QUERIES, world.index.search(QUERIES, 3))


def test_the_table_reaches_every_public_method() -> None:
    covered = {entry for _, _, entries in ENTRIES for entry, _, _ in entries} | {entry for entry, *_ in SINGLES}
    methods = {name for name, member in vars(ClassIndex).items() if callable(member) or isinstance(member, classmethod)}
    # votes has its own test below; reports take no input.
    assert {name for name in methods if not name.startswith("_")} - covered == {"votes", "memory_report", "report"}


VOTE_VALUES = {name: value for name, value in VECTORS.items() if name not in ("broadcast", "fortran")}


@pytest.mark.parametrize("name", VOTE_VALUES)
def test_votes_count_or_refuse(name: str) -> None:
    index = ClassIndex.build(ROWS, config=PIPELINES["paper"])
    make, outcome = VOTE_VALUES[name]
    if name in ("3-d", "too few features", "too many features", "no features"):
        make, outcome = (
            {
                "3-d": lambda x: x[None, None],
                "too few features": lambda x: x[:-1],
                "too many features": lambda x: np.append(x, x),
                "no features": lambda x: x[:0],
            }[name],
            VALUE,
        )
    value = make(QUERIES[0])
    if isinstance(outcome, Refused):
        with pytest.raises(outcome.error, match="query"):
            index.votes(value)
    else:
        np.testing.assert_array_equal(index.votes(value), index.votes(np.asarray(value, np.float32).copy()))


def test_votes_are_for_one_query_and_for_tables() -> None:
    with pytest.raises(mc.InputError, match="query"):
        ClassIndex.build(ROWS, config=PIPELINES["paper"]).votes(QUERIES)
    with pytest.raises(mc.ConfigError, match="bands=0"):
        ClassIndex.build(ROWS, config=HashConfig.exhaustive()).votes(QUERIES[0])


# Sizes


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_an_index_without_classes_answers_and_can_grow(pipeline: str, tmp_path: Path) -> None:
    index = ClassIndex.build(ROWS[:0], config=PIPELINES[pipeline], names=[])
    assert (index.search(QUERIES, 3).classes == -1).all()
    assert (index.search(QUERIES[0], 3).log_probs == -np.inf).all()
    assert index.check(QUERIES).missed_mass == 0
    with pytest.raises(mc.InputError, match="ids"):
        index.remove([0])
    index.refresh(slice(None))
    index.save(tmp_path / "empty.mc")
    index = ClassIndex.load(tmp_path / "empty.mc")
    assert list(index.append(ROWS, names=NAMES)) == list(range(CLASSES))
    assert index.search(ROWS[2], 1, candidates=CLASSES).classes[0] == dense_logits(ROWS, None, ROWS[2:3]).argmax()


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_an_index_of_one_class_finds_it(pipeline: str) -> None:
    index = ClassIndex.build(ROWS[1:2], bias=[2.0], config=PIPELINES[pipeline])
    found = index.search(ROWS[1], 3)
    assert found.classes.tolist() == [0, -1, -1]
    np.testing.assert_allclose(found.logits[0], ROWS[1] @ ROWS[1] + 2, rtol=1e-5)
    np.testing.assert_allclose(found.log_probs, [0, -np.inf, -np.inf], atol=1e-6)


@pytest.mark.parametrize("features", [1, 2, 3, 65_537])
@pytest.mark.parametrize("config", [HashConfig.exhaustive(), HashConfig.flat_sketch(64), None], ids=repr)
def test_extreme_widths_are_exact(features: int, config: HashConfig | None) -> None:
    rows, bias, queries = problem(9, features)
    index = ClassIndex.build(rows, bias=bias, config=config)
    assert_exact(index, queries, index.search(queries, 9))


def test_wide_rows_can_be_hashed() -> None:
    rows, bias, _ = problem(9, 65_537)
    index = ClassIndex.build(rows, bias=bias, config=HashConfig.paper(codes=96, bands=32))
    assert index.votes(rows[3])[3] == 32


# What else may go wrong


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_in_the_progress_callback_comes_through(error: type[BaseException]) -> None:
    def stop(done: int, total: int) -> None:
        raise error(f"{done} of {total}")

    with pytest.raises(error, match=f"{CLASSES} of {CLASSES}"):
        ClassIndex.build(ROWS, config=PIPELINES["paper"], progress=stop)


def test_progress_is_called_with_rows_done_and_rows_in_all() -> None:
    calls: list[tuple[int, int]] = []
    rows = np.zeros((150_000, 1), np.float32)
    ClassIndex.build(rows, config=HashConfig.exhaustive(), progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (150_000, 150_000)
    assert calls == sorted(calls)
    assert len(calls) > 1


@pytest.mark.parametrize("action", ["search", "retrieve", "check"])
def test_logits_beyond_float32_are_refused_not_returned(action: str) -> None:
    rows = np.full((3, 4), 1e18, np.float32)
    index = ClassIndex.build(rows, bias=np.full(3, 3.4e38, np.float32), config=HashConfig.exhaustive())
    with pytest.raises(mc.InputError, match="queries"):
        getattr(index, action)(np.full((2, 4), 3e18, np.float32))


def test_read_only_rows_are_refreshed_in_place_only() -> None:
    rows = ROWS.copy()
    frozen = rows.view()
    frozen.flags.writeable = False
    index = ClassIndex.build(frozen, config=HashConfig.exhaustive())
    with pytest.raises(mc.InputError, match="read-only"):
        index.refresh([1], rows=SOME_ROWS[:1])
    rows[1] *= 2
    index.refresh([1])
    assert_exact(index, QUERIES, index.search(QUERIES, 3))


def test_rows_that_became_bad_are_refused_at_refresh() -> None:
    rows = ROWS.copy()
    index = ClassIndex.build(rows, config=PIPELINES["paper"])
    before = exported_codes(index)
    rows[3, 2] = np.nan
    with pytest.raises(mc.InputError, match=r"rows\[3\]"):
        index.refresh([1, 3, 5])
    np.testing.assert_array_equal(exported_codes(index), before)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_new_rows_are_checked_in_the_type_they_are_stored_in(dtype: str) -> None:
    index = ClassIndex.build(ROWS.astype(dtype), config=HashConfig.exhaustive())
    large = np.full((1, FEATURES), 1e6, np.float32)
    if dtype == "float16":
        for call in (lambda: index.refresh([1], rows=large), lambda: index.append(large)):
            with pytest.raises(mc.InputError, match="rows overflows the index's float16"):
                call()
    else:
        index.refresh([1], rows=large)
        index.append(large)
    assert_exact(index, QUERIES, index.search(QUERIES, 3))


def test_an_absurd_number_of_threads_is_cut_down() -> None:
    """In a process of its own: the pool keeps its threads, and every later test would be slowed by them."""
    program = """
import os
import numpy as np
import manyclass as mc

rows = np.random.default_rng(0).normal(size=(3000, 16)).astype(np.float32)
index = mc.ClassIndex.build(rows, config=mc.HashConfig.flat_sketch(64), threads=2**62)
expected = index.search(rows[:70], 3, threads=1).classes
assert (index.search(rows[:70], 3, threads=2**62).classes == expected).all()
index.refresh(slice(None), threads=2**62)
print(len(os.listdir("/proc/self/task")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 256


def test_a_very_broad_search_does_not_take_memory_for_classes_that_do_not_exist() -> None:
    rows = np.random.default_rng(0).normal(size=(20_000, FEATURES)).astype(np.float32)
    config = HashConfig.paper(window=4, codes=6, bands=3, rescore=True, breadth=2**20)
    assert ClassIndex.build(rows, config=config).search(rows[5], 1, candidates=20_000).classes[0] >= 0
