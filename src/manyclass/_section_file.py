"""Named arrays in one checksummed file: one writer, one validating reader, no pickle.

How a file takes the place of another is in `_atomic_file`.

The file, all numbers little-endian:

- preamble, 32 bytes: magic, u32 format version, u32 header length, u64 file length, u32 checksum of the
  header, u32 checksum of the 28 bytes before it. This part keeps its meaning in every future version.
- header, UTF-8 JSON of at most 1 MiB: kind, meta, and for each section its name, dtype, shape, offset, nbytes
  and crc32. Offsets count from the first multiple of 64 after the header, so that they do not depend on the
  header's own length; crc32 is eight hex digits, so that it can be filled in once the data is written.
- the sections in the same order, in C order, each starting at the next multiple of 64. Gaps are zero and
  nothing follows the last section: every byte is either covered by a checksum or required to be zero.

The checksum is CRC-32. It catches every flipped bit and every damaged run of up to 32 bits with certainty,
misses one other accident in 4 billion, and needs no dependency. It does not stop a forger; no unkeyed digest
would. Against crafted files the reader relies on its structural checks, which do not trust the checksums.
"""

import json
import math
import os
import struct
import zlib
from collections.abc import Iterator
from io import FileIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manyclass._atomic_file import (
    DamageError,
    open_regular,
    plain_json,
    read_exactly,
    replacement,
    reported,
    write_all,
    write_at_start,
)
from manyclass._row_types import BF16
from manyclass.errors import FileError, FileVersionError, InputError, InputTypeError

__all__ = ["BF16", "read_sections", "write_sections"]

_PLAIN_DTYPES = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")
_DTYPES: dict[str, np.dtype[Any]] = {code: np.dtype("<" + code) for code in _PLAIN_DTYPES} | {"bf16": BF16}
_MAGIC = b"\x89MCLS\r\n\x1a"  # like PNG's: not text, and newline translation breaks it
_VERSION = 3  # 2: an index keeps factors of sketches as floats. 3: it may have a balance, and what was measured
_PREAMBLE = struct.Struct("<8sIIQII")
_ALIGNMENT = 64
_MAX_HEADER = 1 << 20
_MAX_DIMENSIONS = 8
_MAX_BYTES = 2**63 - 1  # what NumPy can address
_CHUNK = 4 << 20  # bytes held in memory at a time, however large the array


class _Section(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    crc32: str


def write_sections(
    path: str | os.PathLike[str], kind: str, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> None:
    """Replace the file at `path`, all or nothing; when this returns, the new content is on the disk.

    kind: what the file is, checked when it is read. meta: anything that JSON gives back unchanged. arrays:
    integers, floats or BF16 of any layout and up to 8 dimensions; memory maps of any size are streamed.

    On an error the old file is untouched and no temporary file stays (only if the very last step fails,
    syncing the directory, is the new file already in place). Permission bits are kept and symbolic links
    followed; owner, hard links and extended attributes are those of a new file. Writers do not wait for each
    other: the last to finish wins. An array changed meanwhile gives a valid file of old and new elements.
    """
    sections = _plan(arrays)
    header = _encode_header(kind, meta, sections)  # refuses bad values before anything touches the disk
    meta = _decode_json(header)["meta"]  # a copy: the caller's may change while the data is written
    data_start = _aligned(_PREAMBLE.size + len(header))
    length = data_start + (sections[-1].offset + sections[-1].nbytes if sections else 0)
    with replacement(os.path.realpath(path)) as file:
        write_all(file, bytes(data_start))
        end = 0
        for number, section in enumerate(sections):
            write_all(file, bytes(section.offset - end))
            crc = 0
            for piece in _pieces(arrays[section.name], _DTYPES[section.dtype]):
                crc = zlib.crc32(piece, crc)
                write_all(file, piece)
            sections[number] = section._replace(crc32=f"{crc:08x}")
            end = section.offset + section.nbytes
        header = _encode_header(kind, meta, sections)
        preamble = _PREAMBLE.pack(_MAGIC, _VERSION, len(header), length, zlib.crc32(header), 0)[:-4]
        write_at_start(file, preamble + zlib.crc32(preamble).to_bytes(4, "little") + header)


def read_sections(
    path: str | os.PathLike[str], kind: str, *, mmap: bool = False, verify: bool = True
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return `meta` and the arrays of a file that `write_sections` wrote with the same `kind`.

    mmap: return read-only memory maps, which a later save over the file leaves as they are. verify=False
    skips the checksums of the array contents, and nothing else: for files too large to read when opened.

    Memory taken stays below the file's real size plus a few MiB. A well-formed file may still be a malicious
    one: check the types and ranges of what comes back before using it.
    """
    with open_regular(path) as file, reported(path):
        meta, sections, length = _read_header(file, path, kind)
        header_end = file.tell()
        whole = np.memmap(file, dtype=np.uint8, mode="r") if mmap else None
        file.seek(header_end)
        arrays = {section.name: _read_array(file, section, whole, verify) for section in sections}
        _read_zeros(file, length)
    return meta, arrays


# The header -------------------------------------------------------------------------


def _plan(arrays: dict[str, NDArray[Any]]) -> list[_Section]:
    """Return where each array goes, after refusing those that the format cannot hold."""
    sections: list[_Section] = []
    end = 0
    for name, array in arrays.items():
        if not isinstance(name, str):
            raise InputTypeError(f"array name {name!r} is not a string; use a string")
        if type(array) not in (np.ndarray, np.memmap):  # a masked array would silently lose its mask
            raise InputTypeError(f"array {name!r} is a {type(array).__name__}; pass a NumPy array")
        little = array.dtype.newbyteorder("<")
        dtype = next((code for code, known in _DTYPES.items() if known == little), None)
        if dtype is None:
            accepted = ", ".join(_DTYPES)
            raise InputTypeError(f"array {name!r} has dtype {array.dtype}; convert it to one of {accepted}")
        if array.ndim > _MAX_DIMENSIONS:
            raise InputError(f"array {name!r} has {array.ndim} dimensions, at most 8 are stored; reshape it")
        start = _aligned(end)
        end = start + array.nbytes
        sections.append(_Section(name, dtype, array.shape, start, array.nbytes, "0" * 8))
    return sections


def _encode_header(kind: str, meta: dict[str, Any], sections: list[_Section]) -> bytes:
    """Return the header's bytes; their number does not depend on the checksums."""
    if not isinstance(kind, str) or not isinstance(meta, dict):
        raise InputTypeError(f"kind={kind!r} must be a string and meta, a {type(meta).__name__}, a dict")
    content = {"kind": kind, "meta": meta, "sections": [section._asdict() for section in sections]}
    plain_json(meta, "meta")
    try:
        header = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError as error:  # half of a surrogate pair
        raise InputTypeError(f"kind, names and meta must be plain JSON values, but: {error}") from error
    if len(header) > _MAX_HEADER:
        raise InputError(f"the header takes {len(header)} bytes, at most 1 MiB; store large values as arrays")
    return header


def _read_header(file: FileIO, path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], list[_Section], int]:
    """Return meta, the sections (offsets now from the file's start) and the file's length, all checked."""
    real_length = os.fstat(file.fileno()).st_size
    if real_length < _PREAMBLE.size:
        raise DamageError(f"only {real_length} bytes long, too short for a manyclass file")
    preamble = read_exactly(file, _PREAMBLE.size)
    magic, version, header_length, length, header_crc, preamble_crc = _PREAMBLE.unpack(preamble)
    if magic != _MAGIC:
        raise DamageError("not a manyclass file, or its first bytes are damaged")
    if zlib.crc32(preamble[:-4]) != preamble_crc:
        raise DamageError("the checksum of the preamble does not match")
    if version > _VERSION:
        known = f"this manyclass knows versions up to {_VERSION}"
        raise FileVersionError(f"{os.fspath(path)} has format version {version}, {known}; upgrade manyclass")
    if version < 1:
        raise DamageError(f"format version {version} never existed")
    if length != real_length:
        raise DamageError(f"should be {length} bytes long but is {real_length}")
    if header_length > min(_MAX_HEADER, length - _PREAMBLE.size):
        raise DamageError(f"header length {header_length} is above 1 MiB or beyond the end of the file")
    encoded = read_exactly(file, header_length)
    if zlib.crc32(encoded) != header_crc:
        raise DamageError("the checksum of the header does not match")
    header = _decode_json(encoded)
    _require_keys(header, ("kind", "meta", "sections"))
    if header["kind"] != kind:
        raise FileError(f"{os.fspath(path)} holds {header['kind']!r:.60}, not {kind!r}; pass another file")
    if not isinstance(header["meta"], dict) or not isinstance(header["sections"], list):
        raise DamageError("meta is not an object, or sections is not a list")
    return header["meta"], _check_layout(header["sections"], file.tell(), length), length


def _check_layout(entries: list[Any], header_end: int, length: int) -> list[_Section]:
    """Return the sections if they follow each other from the header's end to the file's, without overlap."""
    sections: dict[str, _Section] = {}
    data_start = end = _aligned(header_end)
    for entry in entries:
        _require_keys(entry, _Section._fields)
        section = _Section(**entry)
        name, dtype, shape, offset, nbytes, crc32 = section
        label = f"section {name!r:.60}"
        if not all(isinstance(text, str) for text in (name, dtype, crc32)) or not isinstance(shape, list):
            raise DamageError(f"{label} has a field of the wrong type")
        if not all(type(size) is int and size >= 0 for size in (offset, nbytes, *shape)):  # not even True
            raise DamageError(f"{label} has a size that is not a whole number")
        if name in sections:
            raise DamageError(f"{label} appears twice")
        if dtype not in _DTYPES:
            raise DamageError(f"{label} has the unknown dtype {dtype!r:.60}")
        itemsize = _DTYPES[dtype].itemsize
        if len(shape) > _MAX_DIMENSIONS or math.prod(size or 1 for size in shape) * itemsize > _MAX_BYTES:
            raise DamageError(f"{label} has an impossible shape")
        if math.prod(shape) * itemsize != nbytes:
            raise DamageError(f"{label} has a shape that does not fill its {nbytes} bytes")
        if data_start + offset != _aligned(end):
            raise DamageError(f"{label} starts at {offset} instead of {_aligned(end) - data_start}")
        end = data_start + offset + nbytes
        sections[name] = section._replace(shape=tuple(shape), offset=data_start + offset)
    if end != length:
        raise DamageError(f"its sections end at byte {end}, the file at byte {length}")
    return list(sections.values())


def _decode_json(encoded: bytes) -> Any:
    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a key appears twice")
        return dict(pairs)

    try:
        return json.loads(encoded.decode(), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise DamageError(f"the header is not valid JSON ({error})") from None


def _require_keys(value: object, keys: tuple[str, ...]) -> None:
    if not isinstance(value, dict) or set(value) != set(keys):
        raise DamageError(f"the header must have exactly the keys {', '.join(keys)} where it has others")


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT


# The data ---------------------------------------------------------------------------


def _pieces(array: NDArray[Any], dtype: np.dtype[Any]) -> Iterator[bytes]:
    """Yield the array's little-endian bytes in C order, about a chunk at a time.

    Each piece is a copy, so that checksum and file see the same bytes even if the array changes meanwhile.
    """
    if array.nbytes <= _CHUNK:
        yield array.astype(dtype, copy=False).tobytes()
    elif rows := _CHUNK // (array.nbytes // len(array)):
        for start in range(0, len(array), rows):
            yield array[start : start + rows].astype(dtype, copy=False).tobytes()
    else:
        for row in array:
            yield from _pieces(row, dtype)


def _read_array(file: FileIO, section: _Section, whole: NDArray[np.uint8] | None, verify: bool) -> NDArray[Any]:
    """Return the section at the file's position, as a part of the memory map `whole` if there is one."""
    _read_zeros(file, section.offset)
    end = section.offset + section.nbytes
    data = np.empty(section.nbytes, np.uint8) if whole is None else whole[section.offset : end]
    crc = 0
    for start in range(0, section.nbytes, _CHUNK) if verify or whole is None else ():
        # Even for a memory map: here a bad disk raises OSError, through the map it would kill the process.
        piece = read_exactly(file, min(_CHUNK, section.nbytes - start))
        crc = zlib.crc32(piece, crc) if verify else 0
        if whole is None:
            data[start : start + len(piece)] = np.frombuffer(piece, np.uint8)
    if verify and f"{crc:08x}" != section.crc32:
        raise DamageError(f"the checksum of section {section.name!r:.60} does not match")
    file.seek(end)
    return data.view(_DTYPES[section.dtype]).reshape(section.shape)


def _read_zeros(file: FileIO, end: int) -> None:
    if any(read_exactly(file, end - file.tell())):
        raise DamageError(f"the unused bytes before byte {end} are not zero")
