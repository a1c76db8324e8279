"""Pushes written down before they are acknowledged: with this log, a shard that dies has lost nothing it said yes to.

A log belongs to the checkpoint of the same version: it holds the pushes that came after. Each record has a length and a
checksum; a record that a crash cut short was never acknowledged, and is dropped when the log is read.
"""

import os
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from manyclass._atomic_file import write_all
from manyclass._validation import Ids
from manyclass.distributed.messages import Floats, Sender
from manyclass.errors import FileError

_RECORD = struct.Struct("<II")  # bytes of the body, its checksum
_BODY = struct.Struct("<qqqdIII")  # sender, scale, rows, width, whether there are biases


class LoggedPush(NamedTuple):
    """One push as it was applied."""

    sender: Sender
    scale: float
    rows: Ids
    gradients: Floats
    bias_gradients: Floats | None


class PushLog:
    """Appends pushes to a file; several threads may wait for the disk at the same time, and one trip serves them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._end = _valid_length(path)
        os.ftruncate(self._file, self._end)
        os.lseek(self._file, self._end, os.SEEK_SET)
        bring_to_disk(path)  # its name, and what another process has left here
        self._written, self._synced = 0, 0
        self._syncing = threading.Lock()
        self._failure: OSError | None = None

    def append(self, sender: Sender, scale: float, rows: Ids, gradients: Floats, bias_gradients: Floats | None) -> int:
        """Write a push, and return what `wait_for` is to wait for. One at a time: the shard's lock sees to that.

        After the disk has failed once, nothing more is written: what it had not written may be gone, whatever it says
        of the next try. The shard has to start again from what is there.
        """
        self._refuse_after_failure()
        body = _BODY.pack(*sender, scale, len(rows), gradients.shape[1], bias_gradients is not None)
        body += rows.astype("<u4").tobytes() + gradients.astype("<f4").tobytes()
        if bias_gradients is not None:
            body += bias_gradients.astype("<f4").tobytes()
        record = _RECORD.pack(len(body), zlib.crc32(body)) + body
        try:
            write_all(self._file, record)
        except OSError:  # a full disk must not leave half a record that later ones follow
            os.ftruncate(self._file, self._end)
            os.lseek(self._file, self._end, os.SEEK_SET)
            raise
        self._end += len(record)
        self._written += 1
        return self._written

    @property
    def written(self) -> int:
        """The last push that was written."""
        return self._written

    def wait_for(self, position: int) -> None:
        """Return when a push is on the disk."""
        with self._syncing:
            if self._synced < position:
                self._refuse_after_failure()
                reached = self._written
                try:
                    os.fsync(self._file)
                except OSError as error:
                    self._failure = error
                    raise
                self._synced = reached

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise FileError(f"{self.path} could not be brought to the disk ({self._failure}); start the shard again "
                            "once the disk is well: it goes on from what is there")  # fmt: skip

    def close(self) -> None:
        """Bring everything to the disk, and close the file; whoever still waits for a push need not."""
        with self._syncing:
            os.fsync(self._file)
            self._synced = self._written
            os.close(self._file)


def bring_to_disk(path: Path) -> None:
    """Return when what a file holds, and its name in its folder, would survive a loss of power."""
    for name, flags in ((path, os.O_RDONLY), (path.parent, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))):
        file = os.open(name, flags)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def read_log(path: Path) -> Iterator[LoggedPush]:
    """Yield the pushes of a log, up to the first record that is not whole."""
    with open(path, "rb") as file:
        while (body := _next_body(file.read)) is not None:
            yield _decoded(body)


def _valid_length(path: Path) -> int:
    length = 0
    with open(path, "rb") as file:
        while (body := _next_body(file.read)) is not None:
            length += _RECORD.size + len(body)
    return length


def _next_body(read: object) -> bytes | None:
    assert callable(read)
    head = read(_RECORD.size)
    if len(head) < _RECORD.size:
        return None
    length, checksum = _RECORD.unpack(head)
    body: bytes = read(length)
    return body if len(body) == length and zlib.crc32(body) == checksum else None


def _decoded(body: bytes) -> LoggedPush:
    worker, incarnation, sequence, scale, count, width, has_bias = _BODY.unpack_from(body)
    at = _BODY.size
    rows = np.frombuffer(body, "<u4", count, at).astype(np.int64)
    at += 4 * count
    gradients = np.frombuffer(body, "<f4", count * width, at).reshape(count, width).astype(np.float32)
    at += 4 * count * width
    bias = np.frombuffer(body, "<f4", count, at).astype(np.float32) if has_bias else None
    return LoggedPush(Sender(worker, incarnation, sequence), scale, rows, gradients, bias)
