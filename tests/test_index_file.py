"""Saved indexes: the same answers after loading, every damage noticed, old files still read.

Long because the list of arrays that do not fit together is long.
"""

import json
import random
import resource
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from cases import (
    PIPELINES,
    Array,
    assert_same,
    exported_cells,
    exported_codes,
    exported_sketch,
    exported_weights,
    integers,
    problem,
)
from fuzz_loader import put_together, take_apart

from manyclass import ClassIndex, CorruptFileError, FileError, FileVersionError, HashConfig, ManyclassError
from manyclass._section_file import read_sections, write_sections

GOLDEN = Path(__file__).parent / "golden"
NAMES = ["", "ASCII", "Größe", "木", "😀", "line\nbreak", "nul\0byte", "lone \ud800 surrogate"]


def saved(path: Path, pipeline: str, classes: int = 70, dtype: str = "float32") -> tuple[ClassIndex, Array]:
    """Return an index with everything a file can hold, already saved at the path, and queries for it."""
    rows, bias, queries = problem(classes, 40)
    names = [NAMES[i % len(NAMES)] + str(i) for i in range(classes)]
    index = ClassIndex.build(rows.astype(dtype), bias=bias, config=PIPELINES[pipeline], names=names)
    index.refresh([2, 5], rows=3 * queries[:2])
    index.append(queries[1:3], names=["new", ""])
    index.remove([3, classes // 2])
    index.save(path)
    return index, queries


def assert_equal(left: ClassIndex, right: ClassIndex, queries: Array) -> None:
    assert_same(integers(left, queries), integers(right, queries))
    first, second = left.search(queries, 5), right.search(queries, 5)
    for field in ("classes", "logits", "log_probs"):
        np.testing.assert_array_equal(getattr(first, field), getattr(second, field))
    assert (left.names, left.config, left.features) == (right.names, right.config, right.features)
    np.testing.assert_array_equal(left.rows, right.rows)
    assert left.rows.dtype == right.rows.dtype


# What goes in comes out


@pytest.mark.parametrize("mmap", [False, True], ids=["in memory", "mapped"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_loaded_index_answers_as_the_saved_one(pipeline: str, mmap: bool, tmp_path: Path) -> None:
    index, queries = saved(tmp_path / "index.mc", pipeline)
    loaded = ClassIndex.load(tmp_path / "index.mc", mmap=mmap)
    assert_equal(index, loaded, queries)
    assert not np.isin(loaded.retrieve(queries, 72)[0], [3, 35]).any()
    if mmap:
        assert isinstance(loaded.rows.base, np.memmap) or isinstance(loaded.rows, np.memmap)
        assert not loaded.rows.flags.writeable


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_loaded_index_goes_on_as_the_saved_one(pipeline: str, tmp_path: Path) -> None:
    index, queries = saved(tmp_path / "index.mc", pipeline)
    loaded = ClassIndex.load(tmp_path / "index.mc")
    for each in (index, loaded):
        each.refresh([7, 1], rows=20 * queries[:2], bias=[9.0, -9.0])
        each.append(queries[:1], names=["last"])
        each.remove([8])
    assert_equal(index, loaded, queries)
    index.save(tmp_path / "first.mc")
    loaded.save(tmp_path / "second.mc")
    assert (tmp_path / "first.mc").read_bytes() == (tmp_path / "second.mc").read_bytes()


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_rows_keep_their_type(dtype: str, tmp_path: Path) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 of its own; install ml_dtypes to test it")
    index, queries = saved(tmp_path / "index.mc", "tables and sketch", dtype=dtype)
    for mmap in (False, True):
        assert_equal(index, ClassIndex.load(tmp_path / "index.mc", mmap=mmap), queries)


@pytest.mark.parametrize("config", [HashConfig.paper(window=16, codes=8, bands=2), HashConfig.paper(codes=10, bands=2)])
def test_wide_bucket_numbers_come_back(config: HashConfig, tmp_path: Path) -> None:
    rows, _, _ = problem(70, 40)
    index = ClassIndex.build(rows, config=config)  # constant rows have no bucket: the largest number stands for that
    index.save(tmp_path / "index.mc")
    np.testing.assert_array_equal(exported_codes(ClassIndex.load(tmp_path / "index.mc")), exported_codes(index))


def test_a_mapped_index_is_searched_and_refreshed_from_its_file_only(tmp_path: Path) -> None:
    _, queries = saved(tmp_path / "index.mc", "paper")
    loaded = ClassIndex.load(tmp_path / "index.mc", mmap=True)
    loaded.refresh(slice(None))
    with pytest.raises(ManyclassError, match="read-only"):
        loaded.refresh([1], rows=queries[:1])
    before = loaded.search(queries, 5)
    loaded.save(tmp_path / "index.mc")  # over its own mapping
    np.testing.assert_array_equal(loaded.search(queries, 5).logits, before.logits)
    loaded.append(queries[:1], names=["x"])  # the index has a copy of its own from here on
    loaded.refresh([1], rows=queries[:1])


def test_rows_that_are_a_view_are_saved_as_seen(tmp_path: Path) -> None:
    wide = np.random.default_rng(0).normal(size=(90, 60)).astype(np.float32)
    index = ClassIndex.build(wide[::-3, 5:45], config=PIPELINES["paper"])
    index.save(tmp_path / "index.mc")
    np.testing.assert_array_equal(ClassIndex.load(tmp_path / "index.mc").rows, wide[::-3, 5:45])


def test_an_index_of_another_backend_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pipeline in PIPELINES:
        index, queries = saved(tmp_path / "index.mc", pipeline)
        monkeypatch.setenv("MANYCLASS_BACKEND", "reference")
        slow = ClassIndex.load(tmp_path / "index.mc")
        slow.save(tmp_path / "slow.mc")
        monkeypatch.delenv("MANYCLASS_BACKEND")
        assert_same(integers(index, queries), integers(slow, queries))
        assert (tmp_path / "slow.mc").read_bytes() == (tmp_path / "index.mc").read_bytes()


# Damage


def small_file(path: Path) -> bytes:
    rows, bias, _ = problem(6, 16)
    index = ClassIndex.build(rows, bias=bias, config=PIPELINES["probes and sketch"], names=list("abcdef"))
    index.remove([2])
    index.save(path)
    return path.read_bytes()


def test_every_flipped_bit_is_refused(tmp_path: Path) -> None:
    """All bits of the preamble, and a sample of the rest; test_section_file.py takes every bit of a smaller file."""
    path = tmp_path / "index.mc"
    content = bytearray(small_file(path))
    header_end = 32 + struct.unpack_from("<I", content, 12)[0]
    bits = [*range(256), *range(256, 8 * header_end, 5), *range(8 * header_end, 8 * len(content), 23)]
    for bit in bits:
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        with pytest.raises(CorruptFileError):
            ClassIndex.load(path)
        content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    ClassIndex.load(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index.mc"
    content = small_file(path)
    for length in [*range(0, len(content), 5), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(CorruptFileError):
            ClassIndex.load(path)


def test_noise_is_refused(tmp_path: Path) -> None:
    path, rng = tmp_path / "noise.mc", random.Random(0)
    for length in (0, 1, 31, 32, 33, 500, 5000):
        for start in (b"", b"\x89MCLS\r\n\x1a"):
            path.write_bytes(start + rng.randbytes(length))
            with pytest.raises(CorruptFileError):
                ClassIndex.load(path)


def test_a_newer_format_and_another_kind_of_file_are_told_apart_from_damage(tmp_path: Path) -> None:
    path = tmp_path / "index.mc"
    content = bytearray(small_file(path))
    struct.pack_into("<I", content, 8, 4)
    struct.pack_into("<I", content, 28, zlib.crc32(content[:28]))
    path.write_bytes(content)
    with pytest.raises(FileVersionError, match="upgrade manyclass"):
        ClassIndex.load(path)
    header, parts = take_apart(small_file(path))
    header["kind"] = "something else"
    path.write_bytes(put_together(header, parts))
    with pytest.raises(FileError, match="something else"):
        ClassIndex.load(path)


# Hostile files with right checksums (random ones, under sanitizers: test_sanitizers.py)


def forged(tmp_path: Path, pipeline: str, section: str, value: Array) -> Path:
    """Return a saved index in which one section has been replaced."""
    path = tmp_path / "index.mc"
    rows, bias, _ = problem(70, 16)
    ClassIndex.build(rows, bias=bias, config=PIPELINES[pipeline], names=["x"] * 70).save(path)
    header, parts = take_apart(path.read_bytes())
    at = next(i for i, known in enumerate(header["sections"]) if known["name"] == section)
    header["sections"][at]["shape"] = list(value.shape)
    parts[at] = value.tobytes()
    path.write_bytes(put_together(header, parts))
    return path


HOSTILE = [
    ("re-score", "always", np.array([5, 5, 5, 5, 5], np.int64)),
    ("re-score", "always", np.array([0, 1, 2, 3, 70], np.int64)),
    ("re-score", "always", np.array([0, 1, 2, 3, -1], np.int64)),
    ("re-score", "vote_weights", np.full(18, np.nan, np.float32)),
    ("re-score", "vote_weights", np.zeros(0, np.float32)),
    ("re-score", "norms", np.full(70, np.inf, np.float32)),
    ("paper", "bias", np.full(70, np.nan, np.float32)),
    ("paper", "codes", np.full((70, 10), 0xFFFE, np.uint16)),
    ("paper", "codes", np.full((70, 10), 4096, np.uint16)),
    ("paper", "names", np.full(70, 0xFF, np.uint8)),
    ("paper", "name_ends", np.arange(70, 0, -1, dtype=np.uint64)),
    ("paper", "name_ends", np.full(70, 2**64 - 1, np.uint64)),
    ("paper", "bias", np.full(70, np.inf, np.float32)),
    ("re-score", "always_rule", np.array([np.nan, 0.0])),
    ("re-score", "always_rule", np.array([1.0, np.nan])),
    ("flat sketch", "centre", np.full(16, np.inf, np.float32)),
    ("flat sketch", "scan_factors", np.full(70, -1, np.float32)),
    ("flat sketch, re-ranked", "sketch_factors", np.full(70, np.inf, np.float32)),
    ("cells", "cells", np.full(70, 9, np.uint16)),
    ("cells", "cell_distances", np.full(70, -1, np.float32)),
    ("cells", "cell_distances", np.full(70, np.nan, np.float32)),
]


@pytest.mark.parametrize(("pipeline", "section", "value"), HOSTILE)
def test_impossible_contents_are_refused(pipeline: str, section: str, value: Array, tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError):
        ClassIndex.load(forged(tmp_path, pipeline, section, value))


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize("pipeline", ["exhaustive", "flat sketch"])
def test_bad_rows_in_a_file_never_become_bad_logits(pipeline: str, value: float, tmp_path: Path) -> None:
    """Reading all rows of a mapped file to check them would defeat its purpose: a search may be what refuses."""
    path = forged(tmp_path, pipeline, "rows", np.full((70, 16), value, np.float32))
    queries = np.ones((2, 16), np.float32)
    for action in ("search", "retrieve", "check"):
        with pytest.raises(ManyclassError):
            getattr(ClassIndex.load(path), action)(queries)


def test_a_removed_class_that_the_file_still_files_is_not_found(tmp_path: Path) -> None:
    """A contradiction inside the file: refused, or the removal wins."""
    rows, bias, queries = problem(70, 16)
    for pipeline in PIPELINES:
        path = tmp_path / "index.mc"
        index = ClassIndex.build(rows, bias=bias, config=PIPELINES[pipeline])
        index.remove([1])
        index.save(path)
        header, parts = take_apart(path.read_bytes())
        at = next(i for i, known in enumerate(header["sections"]) if known["name"] == "removed")
        parts[at] = b"\1" * 70
        path.write_bytes(put_together(header, parts))
        try:
            found = ClassIndex.load(path).search(queries, 5).classes
        except CorruptFileError:
            continue
        assert (found == -1).all(), pipeline


def load_with_little_memory(path: Path) -> subprocess.CompletedProcess[str]:
    """Load a file in a process that may take 3 GB and 8 seconds."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (8, 8))

    program = """
import sys, manyclass
try:
    manyclass.ClassIndex.load(sys.argv[1])
except manyclass.FileError:
    print("refused")
"""
    return subprocess.run(
        [sys.executable, "-c", program, path], preexec_fn=limit, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize(
    "changes",
    [
        {"window": 16, "codes": 6000, "bands": 1000, "probes": 2, "keys": "fast"},  # 200 MB of buckets per band
        {"window": 16, "codes": 6000, "bands": 1000},
        {"window": 16, "codes": 65_535 * 2, "bands": 65_535},
    ],
    ids=str,
)
def test_a_small_file_cannot_ask_for_much_memory(changes: dict[str, int], classes: int, tmp_path: Path) -> None:
    path = tmp_path / "index.mc"
    rows = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    ClassIndex.build(rows[:classes], config=HashConfig.paper(codes=6, bands=3)).save(path)
    header, parts = take_apart(path.read_bytes())
    header["meta"]["config"] |= changes
    at = next(i for i, known in enumerate(header["sections"]) if known["name"] == "codes")
    bits = changes["codes"] // changes["bands"] * 4
    header["sections"][at] |= {"shape": [classes, changes["bands"]], "dtype": "u2" if bits < 16 else "u4"}
    parts[at] = bytes(classes * changes["bands"] * (2 if bits < 16 else 4))
    path.write_bytes(put_together(header, parts))
    done = load_with_little_memory(path)
    assert done.returncode == 0, done.stderr[-500:]
    assert not done.stderr


def test_a_file_without_classes_cannot_ask_for_many_features(tmp_path: Path) -> None:
    path = tmp_path / "index.mc"
    ClassIndex.build(np.zeros((1, 16), np.float32)[:0], config=HashConfig.paper(codes=2000, bands=1000)).save(path)
    header, parts = take_apart(path.read_bytes())
    header["meta"]["features"] = 2**24
    header["sections"][0]["shape"] = [0, 2**24]
    path.write_bytes(put_together(header, parts))
    done = load_with_little_memory(path)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr[-500:]


# Old files


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_golden_file_gives_the_stored_answer(version: int) -> None:
    stored = json.loads((GOLDEN / f"index-v{version}.json").read_text())
    queries = np.array(stored["queries"], np.float32)
    for mmap in (False, True):
        index = ClassIndex.load(GOLDEN / f"index-v{version}.mc", mmap=mmap)
        np.testing.assert_array_equal(index.retrieve(queries)[0], stored["candidates"])
        found = index.search(queries, 5)
        np.testing.assert_array_equal(found.classes, stored["classes"])
        np.testing.assert_allclose(found.logits, stored["logits"], rtol=1e-4, atol=1e-4)
        assert index.names == [f"Größe {i} 木" for i in range(30)]
        assert np.flatnonzero(index.state.core.removed()).tolist() == [4, 17]


def test_the_golden_file_hashes_as_today() -> None:
    """The generator behind windows and signs is part of the format: re-hashing an old file must change nothing."""
    index = ClassIndex.load(GOLDEN / "index-v1.mc")
    codes, (bits, factors) = exported_codes(index), exported_sketch(index, "sketch")
    index.refresh(slice(None))
    np.testing.assert_array_equal(exported_codes(index), codes)
    np.testing.assert_array_equal(exported_sketch(index, "sketch")[0], bits)
    np.testing.assert_allclose(exported_sketch(index, "sketch")[1], factors, atol=2e-4)  # were 16-bit fractions


@pytest.mark.parametrize("version", [2, 3])
def test_a_later_golden_file_goes_on_as_the_index_it_was_made_from(version: int) -> None:
    """With cells, a mask, an outlier and a scan, all that format 2 added; and with a balance, which format 3 added."""
    index = ClassIndex.load(GOLDEN / f"index-v{version}.mc")
    before = {kind: exported_sketch(index, kind) for kind in ("scan", "sketch")}
    cells = exported_cells(index)
    index.refresh(slice(None))
    for kind, kept in before.items():
        for left, right in zip(kept, exported_sketch(index, kind), strict=True):
            np.testing.assert_array_equal(left, right)
    for left, right in zip(cells, exported_cells(index), strict=True):
        np.testing.assert_array_equal(left, right)
    assert 9 in index.state.core.outliers()
    assert index.state.core.bias()[11] == -np.inf
    assert (index.state.balance is not None) == (version == 3)
    assert index.measured.fitted == (64 if version == 3 else 0)


def test_an_old_scan_with_cells_loads_from_its_fractions_and_radii(tmp_path: Path) -> None:
    """What format 1 had of a scan and its cells, made from an index of today."""
    rows, bias, queries = problem(70, 16)
    index = ClassIndex.build(rows, bias=bias, config=PIPELINES["cells"])
    index.save(tmp_path / "index.mc")
    meta, arrays = read_sections(tmp_path / "index.mc", "manyclass index")
    arrays["scan_factors"], arrays["scan_biases"] = exported_weights(index)
    arrays["cell_radii"] = index.state.core.cell_radii().astype(np.float64)
    del arrays["cell_distances"]
    write_sections(tmp_path / "old.mc", "manyclass index", meta, arrays)
    old = ClassIndex.load(tmp_path / "old.mc")
    np.testing.assert_array_equal(old.retrieve(queries, 12)[0], index.retrieve(queries, 12)[0])
    for each in (old, index):
        each.refresh(slice(None))
    assert_same(integers(old, queries), integers(index, queries))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_golden_files_are_small(version: int) -> None:
    assert (GOLDEN / f"index-v{version}.mc").stat().st_size < 20_000
