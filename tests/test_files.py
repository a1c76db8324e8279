"""Laws of the file format: what goes in comes out, any damage is noticed, and a save is all or nothing.

Long because the lists of awkward arrays and crafted files are long; each of the three parts reads alone.
"""

import contextlib
import errno
import json
import os
import random
import stat
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyclass import _section_file as files
from manyclass._section_file import BF16, read_sections, write_sections
from manyclass.errors import CorruptFileError, FileError, FileVersionError, InputError, InputTypeError

Arrays = dict[str, np.ndarray[Any, Any]]
PREAMBLE = struct.Struct("<8sIIQI")  # without its own checksum
KILL_ROUNDS = int(os.environ.get("MANYCLASS_KILL_ROUNDS", "40"))
posix_only = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals, locks or permissions")


def example(value: int = 0) -> Arrays:
    return {
        "weights": np.arange(15, dtype="<f4").reshape(3, 5) + value,
        "ids": np.arange(7, dtype="<u1") + np.uint8(value % 100),
        "none": np.empty((0, 4), "<i8"),
    }


def save_example(path: Path, value: int = 0) -> bytes:
    write_sections(path, "test", {"value": value}, example(value))
    return path.read_bytes()


def assert_same(left: Arrays, right: Arrays) -> None:
    assert list(left) == list(right)
    for name in left:
        assert left[name].shape == right[name].shape
        assert left[name].tobytes() == right[name].tobytes()


def assert_holds(path: Path, value: int) -> None:
    meta, arrays = read_sections(path, "test")
    assert meta == {"value": value}
    assert_same(arrays, example(value))


def forge(header: Any, data: bytes = b"", **fields: int) -> bytes:
    """Return a file with this header and data and with correct checksums; `fields` override the preamble."""
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    start = -(-(32 + len(encoded)) // 64) * 64
    values = {"version": 1, "header_length": len(encoded), "length": start + len(data)} | fields
    crc = zlib.crc32(encoded)
    preamble = PREAMBLE.pack(files._MAGIC, values["version"], values["header_length"], values["length"], crc)
    body = preamble + struct.pack("<I", zlib.crc32(preamble)) + encoded
    return body.ljust(start, b"\0") + data


def section(name: str = "a", data: bytes = b"abcd", **fields: Any) -> dict[str, Any]:
    known = {"name": name, "dtype": "u1", "shape": [len(data)], "offset": 0, "nbytes": len(data)}
    return known | {"crc32": f"{zlib.crc32(data):08x}"} | fields


def header(*sections: Any, **fields: Any) -> dict[str, Any]:
    return {"kind": "test", "meta": {}, "sections": list(sections)} | fields


def assert_corrupt(path: Path, content: bytes, match: str | None = None) -> None:
    path.write_bytes(content)
    for mmap in (False, True):
        for verify in (True, False):
            with pytest.raises(CorruptFileError, match=match):
                read_sections(path, "test", mmap=mmap, verify=verify)


def python(program: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start a Python program that can import the library; it sees `arguments` as sys.argv[1:]."""
    source = str(Path(files.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "example.mc"


# What goes in comes out ----------------------------------------------------------------


AWKWARD: dict[str, Callable[[], np.ndarray[Any, Any]]] = {
    "nothing": lambda: np.empty(0, "f4"),
    "no rows": lambda: np.empty((0, 3), "i2"),
    "no columns": lambda: np.empty((3, 0, 2), "u8"),
    "huge but empty": lambda: np.empty((2**40, 0), "u4"),
    "zero dimensions": lambda: np.array(2.5, "f8"),
    "one": lambda: np.array([7], "i1"),
    "eight dimensions": lambda: np.arange(2**8, dtype="i4").reshape((2,) * 8),
    "every other column": lambda: np.arange(60, dtype="f4").reshape(6, 10)[:, ::2],
    "backwards": lambda: np.arange(10, dtype="u2")[::-1],
    "fortran": lambda: np.asfortranarray(np.arange(12, dtype="i8").reshape(3, 4)),
    "broadcast": lambda: np.broadcast_to(np.arange(3, dtype="f2"), (5, 3)),
    "read only": lambda: np.frombuffer(b"12345678", "u1"),
    "misaligned": lambda: np.frombuffer(b"x" * 9, "u1")[1:].view("f4"),
    "not finite": lambda: np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324], "f8"),
    "bfloat16": lambda: np.arange(12, dtype="<u2").reshape(3, 4).view(BF16).T,
    "big-endian": lambda: np.arange(100, dtype=">i4"),
}


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("chunk", [8, 24, 4 << 20])
@pytest.mark.parametrize("name", AWKWARD)
def test_every_shape_and_layout_comes_back(
    path: Path, name: str, chunk: int, mmap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_CHUNK", chunk)
    array = AWKWARD[name]()
    arrays = {"before": np.arange(3, dtype="u1"), name: array, "after": np.arange(3, dtype="u1")}
    write_sections(path, "test", {}, arrays)
    found = read_sections(path, "test", mmap=mmap)[1][name]
    little = array.astype(array.dtype.newbyteorder("<"))
    assert found.dtype == little.dtype
    assert_same({name: found}, {name: little})


@pytest.mark.parametrize("mmap", [False, True])
def test_every_dtype_comes_back(path: Path, mmap: bool) -> None:
    arrays = {code: np.arange(5).astype("<u2").view(BF16) if code == "bf16" else np.arange(5).astype(code)
              for code in files._DTYPES}  # fmt: skip
    write_sections(path, "test", {}, arrays)
    found = read_sections(path, "test", mmap=mmap)[1]
    assert_same(found, arrays)
    assert {name: array.dtype for name, array in found.items()} == files._DTYPES
    np.testing.assert_array_equal(found["bf16"]["bf16"], np.arange(5))


@pytest.mark.parametrize("verify", [False, True])
def test_memory_maps_go_in_and_come_out(path: Path, verify: bool) -> None:
    stored = np.memmap(path.with_suffix(".raw"), dtype="<f4", mode="w+", shape=(100, 7))
    stored[:] = np.arange(700).reshape(100, 7)
    write_sections(path, "test", {}, {"whole": stored, "part": stored[3:90:2, 1:]})
    found = read_sections(path, "test", mmap=True, verify=verify)[1]
    assert_same(found, {"whole": np.array(stored), "part": np.array(stored[3:90:2, 1:])})
    for array in found.values():
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable
        assert array.ctypes.data % 64 == 0


def test_arrays_in_memory_are_writable(path: Path) -> None:
    save_example(path)
    read_sections(path, "test")[1]["weights"][:] = 0
    assert_holds(path, 0)


def test_meta_comes_back(path: Path) -> None:
    meta: dict[str, Any] = {
        "": None,
        "größe": [1, -2.5, True, "\0\n€"],
        "nested": {"a": {"b": []}},
        "big": 2**200,
        "f": 0.1,
    }
    write_sections(path, "test", meta, {})
    assert read_sections(path, "test") == (meta, {})
    write_sections(path, "test", {}, {"": np.zeros(1), "\u2028 name": np.ones(1)})
    assert list(read_sections(path, "test")[1]) == ["", "\u2028 name"]


def test_same_content_gives_the_same_bytes(path: Path) -> None:
    assert save_example(path) == save_example(path)


def test_large_arrays_are_not_copied_whole(path: Path) -> None:
    array = np.zeros((8192, 2048), "<f4")[:, ::2]  # 32 MiB, not contiguous
    tracemalloc.start()
    try:
        write_sections(path, "test", {}, {"a": array})
        read_sections(path, "test", mmap=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * files._CHUNK + (1 << 20)


def test_an_array_changing_during_the_save_gives_a_valid_file(path: Path) -> None:
    array = np.zeros(1 << 20, "<u4")
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            array[:] += np.uint32(1)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(5):
            write_sections(path, "test", {}, {"a": array})
            read_sections(path, "test")
    finally:
        done.set()
        thread.join()


def test_meta_changing_during_the_save_is_stored_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meta = {"steps": [1]}
    with monkeypatch.context() as patch:
        patch.setattr(files, "os", TracedOs(lambda name: meta["steps"].append(2)))
        write_sections(path, "test", meta, example())
    assert read_sections(path, "test")[0] == {"steps": [1]}


@pytest.mark.parametrize(
    ("kind", "meta", "arrays", "error"),
    [
        (1, {}, {}, InputTypeError),
        ("\ud800", {}, {}, InputTypeError),
        ("test", [], {}, InputTypeError),
        ("test", {1: 2}, {}, InputTypeError),
        ("test", {"a": (1, 2)}, {}, InputTypeError),
        ("test", {"a": float("nan")}, {}, InputTypeError),
        ("test", {"a": float("inf")}, {}, InputTypeError),
        ("test", {"a": np.int64(1)}, {}, InputTypeError),
        ("test", {"a": b"bytes"}, {}, InputTypeError),
        ("test", {"a": "x" * (1 << 20)}, {}, InputError),
        ("test", {}, {1: np.zeros(1)}, InputTypeError),
        ("test", {}, {"a": [1.0]}, InputTypeError),
        ("test", {}, {"a": np.float32(1)}, InputTypeError),
        ("test", {}, {"a": np.ma.masked_equal(np.arange(3), 1)}, InputTypeError),
        ("test", {}, {"a": np.zeros(1, bool)}, InputTypeError),
        ("test", {}, {"a": np.zeros(1, complex)}, InputTypeError),
        ("test", {}, {"a": np.zeros(1, object)}, InputTypeError),
        ("test", {}, {"a": np.zeros(1, "S4")}, InputTypeError),
        ("test", {}, {"a": np.zeros(1, "M8[s]")}, InputTypeError),
        ("test", {}, {"a": np.zeros(1, [("x", "<u2")])}, InputTypeError),
        ("test", {}, {"a": np.zeros((1,) * 9)}, InputError),
    ],
)
def test_what_cannot_be_stored_is_refused_before_the_disk_is_touched(
    path: Path, kind: Any, meta: Any, arrays: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        write_sections(path, kind, meta, arrays)
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(InputTypeError):
        write_sections(path, "test", {"a": nested}, {})
    assert list(path.parent.iterdir()) == []


# Any damage is noticed -----------------------------------------------------------------


def payload_bytes(content: bytes) -> set[int]:
    """Return the positions of the array contents, the only bytes that verify=False does not check."""
    length = PREAMBLE.unpack(content[:28])[2]
    start = -(-(32 + length) // 64) * 64
    sections = json.loads(content[32 : 32 + length])["sections"]
    return {start + s["offset"] + i for s in sections for i in range(s["nbytes"])}


@pytest.mark.parametrize("empty", [False, True])
def test_every_flipped_bit_is_noticed(path: Path, empty: bool) -> None:
    write_sections(path, "test", {}, {} if empty else example())
    content = path.read_bytes()
    payload = payload_bytes(content)
    assert len(content) <= 4096
    assert len(payload) == (0 if empty else 67)
    with path.open("r+b", buffering=0) as file:
        for position, byte in enumerate(content):
            for bit in range(8):
                file.seek(position)
                file.write(bytes([byte ^ (1 << bit)]))
                for mmap in (False, True):
                    with pytest.raises(CorruptFileError):
                        read_sections(path, "test", mmap=mmap)
                if position not in payload:
                    with pytest.raises(CorruptFileError):
                        read_sections(path, "test", mmap=True, verify=False)
            file.seek(position)
            file.write(bytes([byte]))
    assert path.read_bytes() == content


def test_every_truncation_is_noticed(path: Path) -> None:
    content = save_example(path)
    for length in range(len(content)):
        assert_corrupt(path, content[:length])


def test_appended_bytes_are_noticed(path: Path) -> None:
    content = save_example(path)
    for tail in (b"\0", b"\0" * 64, b"x", content):
        assert_corrupt(path, content + tail, "bytes long but is")
        assert_corrupt(path, forge_length(content + tail), "sections end at byte")


def forge_length(content: bytes) -> bytes:
    """Return the file with its length field, and the preamble's checksum, made right."""
    magic, version, header_length, _, crc = PREAMBLE.unpack(content[:28])
    preamble = PREAMBLE.pack(magic, version, header_length, len(content), crc)
    return preamble + struct.pack("<I", zlib.crc32(preamble)) + content[32:]


def test_contents_from_another_valid_file_are_noticed(path: Path) -> None:
    first, second = save_example(path, 1), save_example(path, 2)
    assert len(first) == len(second)
    positions = sorted(payload_bytes(first))
    path.write_bytes(first[: positions[0]] + second[positions[0] :])
    with pytest.raises(CorruptFileError, match="checksum of section 'weights'"):
        read_sections(path, "test")


def test_exchanged_contents_are_noticed(path: Path) -> None:
    write_sections(path, "test", {}, {"a": np.full(64, 1, "u1"), "b": np.full(64, 2, "u1")})
    content = path.read_bytes()
    path.write_bytes(content[:-128] + content[-64:] + content[-128:-64])
    with pytest.raises(CorruptFileError, match="checksum of section 'a'"):
        read_sections(path, "test")


def test_the_forger_can_forge(path: Path) -> None:
    """Without this, the tests below could pass because the forged files are wrong in some other way."""
    path.write_bytes(forge(header(section("a"), section("b", offset=64)), b"abcd".ljust(64, b"\0") + b"abcd"))
    found = read_sections(path, "test")[1]
    assert {name: array.tobytes() for name, array in found.items()} == {"a": b"abcd", "b": b"abcd"}


TWO = b"abcd".ljust(64, b"\0") + b"abcd"


@pytest.mark.parametrize(
    ("sections", "data"),
    [
        ([section("a"), section("a", offset=64)], TWO),  # one name twice
        ([section("a", b"\0"), section("a", b"\0", offset=64)], bytes(65)),  # even where it looks like a gap
        ([section("a", b"", shape=[2**63, 0])], b""),  # more than NumPy can address, times nothing
        ([section("a", b"", shape=[2**40, 0, 2**40])], b""),
        ([section("b", offset=64), section("a")], TWO),  # out of order
        ([section("a"), section("b")], b"abcd"),  # the same bytes twice
        ([section("a", TWO), section("b", offset=64)], TWO),  # one inside the other
        ([section("a", offset=64)], TWO),  # a hole before
        ([section("a"), section("b", offset=128)], TWO.ljust(128, b"\0") + b"abcd"),  # a hole between
        ([section("a"), section("b", offset=4)], b"abcdabcd"),  # not aligned
        ([section("a")], TWO),  # bytes after the last section
        ([section("a")], b"abcd" + bytes(60)),  # zeros after the last section
        ([], b"abcd"),
        (
            [section("a"), section("b", offset=64)],
            b"abcd".ljust(64, b"x") + b"abcd",
        ),  # a gap that is not zero
        ([section("a", offset=-64)], b"abcd"),
    ],
)
def test_misplaced_sections_are_noticed_despite_correct_checksums(path: Path, sections: list[Any], data: bytes) -> None:
    assert_corrupt(path, forge(header(*sections), data))


@pytest.mark.parametrize(
    "fields",
    [
        {"nbytes": 2**40, "shape": [2**40]},
        {"nbytes": 2**64 + 4, "shape": [2**64 + 4]},
        {"shape": [2**32, 2**32]},  # the product is 0 modulo 2**64
        {"shape": [2**62, 2**62, 2**62]},
        {"shape": [10**4000] * 8, "nbytes": 10**4000},
        {"offset": 2**64},
        {"offset": 10**4000},
        {"shape": [-2, -2]},
        {"shape": [-4], "nbytes": -4},
        {"shape": [1] * 9 + [4]},
        {"shape": [5]},
        {"shape": [1]},
        {"shape": []},
        {"shape": [4.0]},
        {"shape": [True, 4]},
        {"shape": ["4"]},
        {"shape": 4},
        {"shape": None},
        {"shape": {"0": 4}},
        {"nbytes": 4.0},
        {"nbytes": "4"},
        {"offset": None},
        {"offset": False},
        {"dtype": "O8"},
        {"dtype": "u8"},
        {"dtype": ">u1"},
        {"dtype": "(4,)u1"},
        {"dtype": "u1,u1,u1,u1", "shape": [1]},
        {"dtype": ["u1"]},
        {"dtype": None},
        {"name": 1},
        {"name": None},
        {"name": ["a"]},
        {"name": {}},
        {"crc32": 0},
        {"crc32": None},
        {"extra": 1},
    ],
)
def test_impossible_sections_are_noticed_without_allocating(path: Path, fields: dict[str, Any]) -> None:
    content = forge(header(section(**fields)), b"abcd")
    tracemalloc.start()
    try:
        assert_corrupt(path, content)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "fields",
    [{"length": 2**64 - 1}, {"length": 0}, {"header_length": 2**32 - 1}, {"header_length": 2**20 + 1},
     {"header_length": 0}, {"header_length": 1}, {"version": 0}],
)  # fmt: skip
def test_impossible_lengths_in_the_preamble_are_noticed_without_allocating(path: Path, fields: dict[str, int]) -> None:
    content = forge(header(section()), b"abcd", **fields)
    tracemalloc.start()
    try:
        assert_corrupt(path, content)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_header_above_the_limit_is_refused_even_if_it_fits_the_file(path: Path) -> None:
    assert_corrupt(path, forge(header(meta={"a": "x" * (1 << 20)})), "header length")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"\xef\xbb\xbf{}",
        json.dumps(header()).encode("utf-16"),
        b"null",
        b"[]",
        b"1",
        b'"text"',
        b"{}",
        b"{",
        b'{"kind":"test","meta":{},"sections":[]} {}',
        b'{"kind":"test","meta":{},"sections":[],"sections":[]}',
        b'{"kind":"test","meta":{"a":1,"a":2},"sections":[]}',
        b'{"kind":"test","meta":{},"sections":[],"more":1}',
        b'{"kind":"test","meta":{}}',
        b'{"kind":"test","meta":[],"sections":[]}',
        b'{"kind":"test","meta":null,"sections":[]}',
        b'{"kind":"test","meta":{},"sections":{}}',
        b'{"kind":"test","meta":{},"sections":[[]]}',
        b'{"kind":"test","meta":{},"sections":[null]}',
        b'{"kind":"test","meta":{},"sections":[{}]}',
        b'{"kind":"test","meta":{"a":' + b"9" * 10_000 + b'},"sections":[]}',
        b"[" * (1 << 20),
        b'{"a":' * 200_000,
        b'{"kind":"test","meta":{"a":' + b"[" * 400_000 + b"]" * 400_000 + b'},"sections":[]}',
    ],
    ids=lambda text: repr(text[:40]),
)
def test_headers_that_are_not_the_expected_json_are_noticed(path: Path, text: bytes) -> None:
    assert_corrupt(path, forge(text))


def test_other_files_are_called_corrupt(path: Path) -> None:
    for content in (b"", b"\0" * 100, b"PK\x03\x04" * 30, b"\x93NUMPY" * 30, save_example(path)[1:]):
        assert_corrupt(path, content)


def test_messages_name_the_path_and_the_way_out(path: Path) -> None:
    assert_corrupt(path, b"", "0 bytes long, too short")
    path.write_bytes(save_example(path)[:-1])
    with pytest.raises(CorruptFileError) as caught:
        read_sections(path, "test")
    assert str(path) in str(caught.value)
    assert "restore" in str(caught.value)


def test_a_file_of_another_kind_is_refused_but_not_called_corrupt(path: Path) -> None:
    save_example(path)
    with pytest.raises(FileError, match="holds 'test', not 'index'") as caught:
        read_sections(path, "index")
    assert not isinstance(caught.value, CorruptFileError)
    path.write_bytes(forge(header(kind=["x" * 100_000])))
    with pytest.raises(FileError) as caught:
        read_sections(path, "index")
    assert len(str(caught.value)) < 1000


def test_a_newer_version_is_named(path: Path) -> None:
    path.write_bytes(forge(b"whatever comes then", version=2))
    with pytest.raises(FileVersionError, match=r"version 2.*upgrade"):
        read_sections(path, "test")


def test_a_missing_file_is_an_ordinary_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_sections(path, "test")
    with pytest.raises(FileNotFoundError):
        write_sections(path / "no" / "such" / "directory", "test", {}, {})


@posix_only
def test_only_regular_files_are_read_or_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for special in (tmp_path, tmp_path / "pipe", Path("/dev/null")):
        for mmap in (False, True):
            with pytest.raises(FileError, match="not a regular file"):
                read_sections(special, "test", mmap=mmap)
        with pytest.raises(FileError, match="not a regular file"):
            write_sections(special, "test", {}, {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


# A save is all or nothing --------------------------------------------------------------


class TracedOs:
    """The os module, recording the calls that a save makes and calling `hook(name)` before each."""

    names = ("stat", "open", "write", "lseek", "chmod", "fsync", "replace", "close")

    def __init__(self, hook: Callable[[str], None] = lambda name: None) -> None:
        self.hook = hook
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)
        if name not in self.names:
            return function

        def call(*arguments: Any, **keywords: Any) -> Any:
            self.calls.append((name, arguments))
            if name == "close":  # a close that fails has closed the file
                function(*arguments, **keywords)
                return self.hook(name)
            self.hook(name)
            return function(*arguments, **keywords)

        return call


def calls_of_one_save(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    with monkeypatch.context() as patch:
        traced = TracedOs()
        patch.setattr(files, "os", traced)
        save_example(path)
    return [name for name, _ in traced.calls]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_an_error_at_any_call_leaves_the_old_file_and_no_litter(
    path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_example(path, 1)
    names = calls_of_one_save(path, monkeypatch)
    assert set(names) == set(TracedOs.names)
    replaced = names.index("replace")
    for failing in range(len(names)):
        save_example(path, 1)
        count = -1

        def fail(name: str, failing: int = failing) -> None:
            nonlocal count
            count += 1
            if count == failing:
                raise OSError(code, f"injected into {name}")

        with monkeypatch.context() as patch:
            patch.setattr(files, "os", TracedOs(fail))
            with pytest.raises(OSError, match="injected") as caught:
                save_example(path, 2)
        assert caught.value.errno == code
        assert_holds(path, 1 if failing <= replaced else 2)
        assert list(path.parent.iterdir()) == [path]


def test_an_interrupt_leaves_the_old_file_and_no_litter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_example(path, 1)

    def interrupt(name: str) -> None:
        if name == "lseek":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files, "os", TracedOs(interrupt))
        with pytest.raises(KeyboardInterrupt):
            save_example(path, 2)
    assert_holds(path, 1)
    assert list(path.parent.iterdir()) == [path]


def test_short_writes_are_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class ShortOs(TracedOs):
        def write(self, file: int, content: memoryview) -> int:
            return os.write(file, content[:7])

    with monkeypatch.context() as patch:
        patch.setattr(files, "os", ShortOs())
        save_example(path, 3)
    assert_holds(path, 3)


def test_data_is_synced_before_the_name_and_the_name_before_the_return(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killing a process cannot show this: what was written survives it even unsynced."""
    save_example(path)
    names = calls_of_one_save(path, monkeypatch)
    last_change = max(i for i, name in enumerate(names) if name in ("write", "chmod"))
    first_sync, second_sync = (i for i, name in enumerate(names) if name == "fsync")
    assert last_change < first_sync < names.index("replace") < second_sync


def test_a_file_system_without_directory_sync_is_accepted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = 0

    def refuse(name: str) -> None:
        nonlocal syncs
        syncs += name == "fsync"
        if name == "fsync" and syncs == 2:
            raise OSError(errno.EINVAL, "no such operation")

    with monkeypatch.context() as patch:
        patch.setattr(files, "os", TracedOs(refuse))
        save_example(path, 4)
    assert syncs == 2
    assert_holds(path, 4)


def test_saving_works_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "fcntl", None)
    save_example(path, 1)
    save_example(path, 2)
    assert_holds(path, 2)
    assert list(path.parent.iterdir()) == [path]


@posix_only
def test_killed_at_any_call_the_file_is_old_or_new_and_the_next_save_tidies_up(path: Path) -> None:
    program = """
        import os, signal, sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[2])
        import test_files as t
        path, step = Path(sys.argv[1]), 0
        t.save_example(path, 1)
        litter = finished = 0
        while not finished:
            child = os.fork()
            if child == 0:
                calls = 0
                def die(name):
                    global calls
                    calls += 1
                    if calls > step:
                        os.kill(os.getpid(), signal.SIGKILL)
                t.files.os = t.TracedOs(die)
                t.save_example(path, 2)
                os._exit(0)
            finished = os.waitpid(child, 0)[1] == 0
            value = t.read_sections(path, "test")[0]["value"]
            t.assert_holds(path, value)
            assert value in (1, 2)
            assert value == 2 or not finished
            litter += len(list(path.parent.iterdir())) - 1
            t.save_example(path, 1)
            assert list(path.parent.iterdir()) == [path]
            step += 1
        print(step, litter)
    """
    process = python(program, path, Path(__file__).parent)
    output = process.communicate()[0]
    assert process.returncode == 0
    steps, litter = map(int, output.split())
    assert steps > 10
    assert litter > 5


SAVER = """
    import itertools, sys
    import numpy as np
    from manyclass import _section_file as files
    files._CHUNK = 1 << 16
    path, first = sys.argv[1], int(sys.argv[2])
    for value in itertools.count(first):
        size = 300_000 if value % 2 else 200_000
        files.write_sections(path, "test", {"value": value}, {"a": np.full(size, value, "<u4")})
        print(value, flush=True)
"""


@posix_only
def test_killed_at_any_moment_the_file_holds_the_last_acknowledged_state_or_the_next(path: Path) -> None:
    chance = random.Random(0)
    value = litter = 0
    for _ in range(KILL_ROUNDS):
        process = python(SAVER, path, value + 1)
        assert process.stdout is not None
        acknowledged = int(process.stdout.readline())
        time.sleep(chance.uniform(0, 0.03))
        process.kill()
        rest = process.communicate()[0]
        acknowledged = max([acknowledged, *map(int, rest.split("\n")[:-1])])
        meta, arrays = read_sections(path, "test")
        value = meta["value"]
        assert value in (acknowledged, acknowledged + 1)
        np.testing.assert_array_equal(arrays["a"], np.full(300_000 if value % 2 else 200_000, value))
        litter += len(list(path.parent.iterdir())) - 1
        write_sections(path, "test", meta, arrays)
        assert list(path.parent.iterdir()) == [path]
    assert litter > 0 or KILL_ROUNDS < 20  # otherwise no kill hit the middle of a save and nothing was tested


@posix_only
def test_processes_saving_one_path_at_once_never_corrupt_it(path: Path) -> None:
    program = """
        import sys
        import numpy as np
        from manyclass import _section_file as files
        files._CHUNK = 1 << 12
        for value in range(40):
            array = np.full(10_000 * int(sys.argv[2]), value, "<u4")
            meta = {"writer": int(sys.argv[2]), "value": value}
            files.write_sections(sys.argv[1], "test", meta, {"a": array})
    """
    write_sections(path, "test", {"writer": 1, "value": 0}, {"a": np.zeros(10_000, "<u4")})
    writers = [python(program, path, number) for number in (1, 2)]
    while any(writer.poll() is None for writer in writers):
        meta, arrays = read_sections(path, "test")
        np.testing.assert_array_equal(arrays["a"], np.full(10_000 * meta["writer"], meta["value"]))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert read_sections(path, "test")[0]["value"] == 39
    assert list(path.parent.iterdir()) == [path]
    for writer in writers:
        writer.communicate()


def test_threads_saving_one_path_at_once_never_corrupt_it(path: Path) -> None:
    errors: list[BaseException] = []

    def save_many(first: int) -> None:
        try:
            for value in range(first, first + 30):
                write_sections(path, "test", {"value": value}, example(value))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=save_many, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert_holds(path, read_sections(path, "test")[0]["value"])
    assert list(path.parent.iterdir()) == [path]


@posix_only
def test_a_temporary_file_is_removed_only_if_it_is_ours_and_nobody_writes_it(path: Path) -> None:
    name = f".{path.name}.{'0' * 16}{files._TEMP_SUFFIX}"
    abandoned, in_use = path.with_name(name), path.with_name(name.replace("0", "1"))
    foreign = [path.with_name(other) for other in (name + "x", name[1:], name.replace(".mc", ".mc.mc"))]
    for file in (abandoned, in_use, *foreign):
        file.write_bytes(b"half a file")
    with in_use.open("r+b") as writer:
        assert files._try_lock(writer.fileno())
        save_example(path)
        assert set(path.parent.iterdir()) == {path, in_use, *foreign}
    save_example(path)
    assert set(path.parent.iterdir()) == {path, *foreign}


@posix_only
def test_a_writer_whose_new_file_is_taken_for_abandoned_starts_another(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another save may tidy up between the creation of the temporary file and its locking."""
    lock = files._try_lock
    stolen: list[Path] = []

    def lock_too_late(file: int) -> bool | None:
        if len(stolen) < 2:
            stolen.extend(path.parent.glob(f".*{files._TEMP_SUFFIX}"))
            stolen[-1].unlink()
        return lock(file)

    monkeypatch.setattr(files, "_try_lock", lock_too_late)
    save_example(path, 5)
    assert len(stolen) == 2
    assert_holds(path, 5)
    assert list(path.parent.iterdir()) == [path]


def test_saving_over_a_mapped_file_leaves_the_mapping_intact(path: Path) -> None:
    save_example(path, 1)
    mapped = read_sections(path, "test", mmap=True)[1]
    write_sections(path, "test", {}, {})
    save_example(path, 2)
    assert_same(mapped, example(1))
    assert_holds(path, 2)
    write_sections(path, "test", {"value": 1}, mapped)  # even from the mapping itself
    assert_holds(path, 1)


@posix_only
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o666, 0o444])
def test_permission_bits_are_kept(path: Path, mode: int) -> None:
    save_example(path, 1)
    path.chmod(mode)
    save_example(path, 2)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert_holds(path, 2)


@posix_only
def test_a_new_file_gets_the_usual_permission_bits(path: Path) -> None:
    save_example(path)
    (path.parent / "usual").touch()
    assert path.stat().st_mode == (path.parent / "usual").stat().st_mode


@posix_only
def test_a_private_file_is_never_readable_by_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_example(path)
    path.chmod(0o600)
    modes: set[int] = set()

    def look(name: str) -> None:
        modes.update(stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir())

    with monkeypatch.context() as patch:
        patch.setattr(files, "os", TracedOs(look))
        save_example(path)
    assert modes == {0o600}


@posix_only
def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real/file")
    for value in (1, 2):  # first dangling, then leading to a file
        save_example(link, value)
        assert link.is_symlink()
        assert_holds(tmp_path / "real" / "file", value)
    assert [entry.name for entry in (tmp_path / "real").iterdir()] == ["file"]
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(OSError, match="symbolic link"):
        save_example(loop)
    assert loop.is_symlink()


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Give up root's power to ignore permissions, if we have it."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@posix_only
def test_a_read_only_directory_gives_the_ordinary_error_and_changes_nothing() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, which only its owner may enter
        path = Path(folder) / "example.mc"
        save_example(path, 1)
        path.parent.chmod(0o555)
        try:
            with ordinary_user(), pytest.raises(PermissionError):
                save_example(path, 2)
            assert_holds(path, 1)
            assert list(path.parent.iterdir()) == [path]
        finally:
            path.parent.chmod(0o700)


def test_relative_paths_and_strings_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_sections("here.mc", "test", {"value": 1}, example(1))
    assert_holds(Path("here.mc"), 1)
