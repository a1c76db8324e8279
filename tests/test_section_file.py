"""Laws of the file format: what goes in comes out, and any damage is noticed.

Long because the lists of awkward arrays and crafted files are long; each of the two parts reads alone.
"""

import json
import struct
import threading
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_cases import TracedOs, assert_holds, assert_same, example, save_example

from manyclass import _atomic_file
from manyclass import _section_file as files
from manyclass._section_file import BF16, read_sections, write_sections
from manyclass.errors import CorruptFileError, FileError, FileVersionError, InputError, InputTypeError

PREAMBLE = struct.Struct("<8sIIQI")  # without its own checksum


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
        patch.setattr(_atomic_file, "os", TracedOs(lambda name: meta["steps"].append(2)))
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
    path.write_bytes(forge(b"whatever comes then", version=4))
    with pytest.raises(FileVersionError, match=r"version 4.*upgrade"):
        read_sections(path, "test")


def test_a_missing_file_is_an_ordinary_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_sections(path, "test")
    with pytest.raises(FileNotFoundError):
        write_sections(path / "no" / "such" / "directory", "test", {}, {})
