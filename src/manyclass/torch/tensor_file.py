"""Named tensors and settings in one safetensors file that notices damage: atomic writer, validating reader, no pickle.

Any safetensors reader can open the file: u64 header length, JSON header, then the tensors without gaps. That format has
no checksums, so ours are in the header's metadata, which comes first and in this order:

- header_crc32: CRC-32 of the header with these eight digits taken as zeros, always at the same place in the file
- kind, version: what the file is; these three keep their meaning in every future version
- crc32: the CRC-32 of every tensor, eight hex digits each, in the order in which the tensors follow
- settings: JSON

Tensors are ordered by element size, largest first, and the first starts at a multiple of 64, so that all are aligned
and can be used straight from a memory map.
"""

import json
import math
import os
import struct
import zlib
from io import FileIO
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

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
from manyclass.errors import FileError, FileVersionError, InputError, InputTypeError

__all__ = ["read_settings", "read_tensors", "write_tensors"]

Tensors = dict[str, Tensor]
VERSION = 1
PREFIX = b'{"__metadata__":{"header_crc32":"'
CHUNK = 4 << 20  # bytes held in memory at a time, however large the tensor
MAX_HEADER = 100_000_000  # the limit of the safetensors library
_DTYPES = {
    "F64": torch.float64, "I64": torch.int64, "U64": torch.uint64, "C64": torch.complex64,
    "F32": torch.float32, "I32": torch.int32, "U32": torch.uint32,
    "F16": torch.float16, "BF16": torch.bfloat16, "I16": torch.int16, "U16": torch.uint16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class _Place(NamedTuple):
    """Where a tensor is: bytes from `begin` to `end` after the header."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


def write_tensors(path: str | os.PathLike[str], kind: str, settings: dict[str, Any], tensors: Tensors) -> None:
    """Replace the file at `path`, all or nothing; when this returns, the new content is on the disk.

    settings: anything that JSON gives back unchanged. No tensor is copied whole unless it is strided or not in main
    memory, and then one at a time.
    """
    places = _plan(tensors)
    encoded = plain_json(settings, "settings")
    header_length = len(_header(kind, encoded, places, ["0" * 8] * len(places)))
    with replacement(os.path.realpath(path)) as file:
        write_all(file, bytes(8 + header_length))
        checksums = [_write_tensor(file, tensors[place.name]) for place in places]
        header = _header(kind, encoded, places, checksums)
        write_at_start(file, struct.pack("<Q", len(header)) + header)


def read_tensors(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], Tensors]:
    """Return the settings and tensors of a file that `write_tensors` wrote with the same `kind`, every byte checked.

    The tensors are a private memory map of the file: nothing is held in memory but what is used, a later save over the
    file leaves them as they are, and writing to them does not reach the file.
    """
    with open_regular(path) as file, reported(path):
        metadata, places, data_start = _read_header(file, path, kind)
        for place, checksum in zip(places, metadata["crc32"], strict=True):
            if _read_checksum(file, place.end - place.begin) != checksum:
                raise DamageError(f"the checksum of tensor {place.name!r:.60} does not match")
        content = torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="c"))
    tensors = {
        place.name: content[data_start + place.begin : data_start + place.end].view(place.dtype).reshape(place.shape)
        for place in places
    }
    return metadata["settings"], tensors


def read_settings(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Return the settings alone, without reading the tensors."""
    with open_regular(path) as file, reported(path):
        settings: dict[str, Any] = _read_header(file, path, kind)[0]["settings"]
    return settings


def _plan(tensors: Tensors) -> list[_Place]:
    places: list[_Place] = []
    end = 0
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or tensor.dtype not in _NAMES or tensor.layout != torch.strided:
            found = f"{tensor.layout} of {tensor.dtype}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise InputTypeError(f"{name!r} is a {found}; dense tensors of {', '.join(_DTYPES)} are stored: convert it")
        if tensor.is_meta:
            raise InputError(f"tensor {name!r} is on the meta device and has no values; load or initialise it first")
    for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].element_size()):
        begin, end = end, end + tensor.numel() * tensor.element_size()
        places.append(_Place(name, tensor.dtype, tuple(tensor.shape), begin, end))
    return places


def _header(kind: str, settings: str, places: list[_Place], checksums: list[str]) -> bytes:
    """Return the header; its length does not depend on the checksums."""
    metadata = {"header_crc32": "0" * 8, "kind": kind, "version": str(VERSION), "crc32": "".join(checksums)}
    content: dict[str, Any] = {"__metadata__": {**metadata, "settings": settings}}
    for name, dtype, shape, begin, end in places:
        content[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    header = json.dumps(content, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header)) % 64)
    if len(header) > MAX_HEADER:
        raise InputError(f"names and settings take {len(header)} bytes, at most 100 MB; store large values as tensors")
    return PREFIX + b"%08x" % zlib.crc32(header) + header[len(PREFIX) + 8 :]


def _write_tensor(file: int, tensor: Tensor) -> str:
    """Write the bytes of one tensor and return their checksum."""
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.stride(0) != 1:  # torch calls one element, or none, contiguous whatever its stride, but does not view it
        flat = flat.new_empty(len(flat)).copy_(flat)
    content = flat.view(torch.uint8).numpy()
    crc = 0
    for start in range(0, len(content), CHUNK):
        # A copy, so that checksum and file see the same bytes even if another thread is training meanwhile.
        piece = content[start : start + CHUNK].tobytes()
        crc = zlib.crc32(piece, crc)
        write_all(file, piece)
    return f"{crc:08x}"


def _read_header(file: FileIO, path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], list[_Place], int]:
    """Return the metadata (settings and checksums decoded), the places and the position of the first tensor."""
    length = os.fstat(file.fileno()).st_size
    if length < 8 + len(PREFIX) + 8:
        raise DamageError(f"only {length} bytes long, too short for a {kind}")
    header_length = struct.unpack("<Q", read_exactly(file, 8))[0]
    if header_length > min(MAX_HEADER, length - 8):
        raise DamageError(f"header length {header_length} is beyond the end of the file or above 100 MB")
    header = read_exactly(file, header_length)
    if (8 + header_length) % 64:
        raise DamageError(f"header length {header_length} is not one that is written here")
    if not header.startswith(PREFIX):
        raise DamageError(f"not a {kind}, or its first bytes are damaged")
    if header[len(PREFIX) : len(PREFIX) + 8] != b"%08x" % zlib.crc32(PREFIX + b"0" * 8 + header[len(PREFIX) + 8 :]):
        raise DamageError("the checksum of the header does not match")
    try:
        content = json.loads(header)
        metadata = content.pop("__metadata__")
        if metadata["kind"] != kind:
            raise FileError(f"{os.fspath(path)} holds {metadata['kind']!r:.60}, not {kind!r}; pass another file")
        if int(metadata["version"]) > VERSION:
            known = f"this manyclass knows versions up to {VERSION}"
            raise FileVersionError(
                f"{os.fspath(path)} has format version {metadata['version']}, {known}; upgrade manyclass"
            )
        metadata["settings"] = json.loads(metadata["settings"])
        checksums = metadata["crc32"]
        metadata["crc32"] = [checksums[start : start + 8] for start in range(0, len(checksums), 8)]
        places = _check_layout(content, length - 8 - header_length)
        if len(places) != len(metadata["crc32"]) or not isinstance(metadata["settings"], dict):
            raise DamageError("its checksums or settings do not fit its tensors")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamageError(f"the header is not one that was written here ({error!r:.100})") from None
    return metadata, places, 8 + header_length


def _check_layout(entries: dict[str, Any], length: int) -> list[_Place]:
    """Return the places if they follow each other, aligned, from the header's end to the file's."""
    places: list[_Place] = []
    position = 0
    for name, entry in entries.items():
        dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        if not all(type(size) is int and 0 <= size < 2**63 for size in (begin, end, *shape)):
            raise DamageError(f"tensor {name!r:.60} has an impossible size")
        if begin != position or begin % dtype.itemsize or end - begin != math.prod(shape) * dtype.itemsize:
            raise DamageError(f"tensor {name!r:.60} is misplaced, or its shape does not fill its bytes")
        position = end
        places.append(_Place(name, dtype, tuple(shape), begin, end))
    if position != length:
        raise DamageError(f"its tensors take {position} bytes, the file has {length} for them")
    return places


def _read_checksum(file: FileIO, size: int) -> str:
    crc = 0
    for start in range(0, size, CHUNK):
        crc = zlib.crc32(read_exactly(file, min(CHUNK, size - start)), crc)
    return f"{crc:08x}"
