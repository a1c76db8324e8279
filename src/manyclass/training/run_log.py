"""The log of a run: JSON lines, the first of each session a card of machine, versions, commit and seed.

Every line is valid JSON of its own (NaN and infinities become null), written whole and at once. A process killed in the
middle of a line leaves a torn last line: the reader leaves it out, the next writer removes it.
"""

import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from manyclass._atomic_file import write_all
from manyclass._backend import backend_info
from manyclass._machine import cache_kb, cpu_model, memory_gb
from manyclass.errors import CorruptFileError, InputTypeError

try:
    import fcntl
except ImportError:  # Windows: one writer at a time, please
    fcntl = None  # type: ignore[assignment]

__all__ = ["RunLog", "machine_card", "read_log", "source_state", "without_overtaken"]

Record = dict[str, Any]
VERSIONED = ("manyclass", "numpy", "torch")
BINARY = getattr(os, "O_BINARY", 0)


class RunLog:
    """Appends records to one file; several processes may do so at the same time.

    Nothing is written before the first `write` or `write_card`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def write(self, **fields: object) -> None:
        """Append one record as a whole line; it has left this process when this returns."""
        line = as_json(fields).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | BINARY, 0o666)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            end = _end_of_last_line(file)
            os.ftruncate(file, end)
            os.lseek(file, end, os.SEEK_SET)
            try:
                write_all(file, line)
            except OSError:  # a full disk must not leave half a line
                os.ftruncate(file, end)
                raise
        finally:
            os.close(file)

    def write_card(self, seed: int | None = None, **fields: object) -> None:
        """Append the card of a session: what is needed to understand and to repeat it."""
        card = {**machine_card(), "threads": _threads()}
        self.write(kind="card", time=time.strftime("%Y-%m-%dT%H:%M:%S%z"), seed=seed, machine=card, **source_state(),
                   **fields)  # fmt: skip


def read_log(path: str | os.PathLike[str]) -> list[Record]:
    """Return every record of a log, oldest first, without a torn last line. Other damage is a CorruptFileError."""
    lines = Path(path).read_bytes().split(b"\n")
    records: list[Record] = []
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline is torn, or nothing
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise CorruptFileError(f"{os.fspath(path)}: line {number} is not a JSON object; remove the line")
        records.append(record)
    return records


def without_overtaken(records: Iterable[Record]) -> list[Record]:
    """Return the records that still count: a resumed session repeats the steps logged after its checkpoint.

    A card with `resumed_from` = s takes back the earlier records of steps above s.
    """
    kept: list[Record] = []
    for record in records:
        resumed_from = record.get("resumed_from") if record.get("kind") == "card" else None
        if resumed_from is not None:
            kept = [earlier for earlier in kept if not earlier.get("step", 0) > resumed_from]
        kept.append(record)
    return kept


@cache
def machine_card(packages: Sequence[str] = VERSIONED) -> Record:
    """Return what decides the speed: processor, instruction set, caches, memory, and the versions of all involved."""
    return {
        "cpu": cpu_model(),
        "instruction_set": backend_info().simd,
        "cache_kb": cache_kb(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": memory_gb(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
    }


@cache
def source_state(folder: str | os.PathLike[str] = ".") -> Record:
    """Return the commit of the checkout around a folder ("none" outside of one), and whether files differ from it.

    Asked once per process: the code that runs is the code that was there when it was loaded.
    """
    return {
        "commit": _git(folder, "rev-parse", "HEAD") or "none",
        "dirty": bool(_git(folder, "status", "--porcelain")),
    }


def as_json(value: object) -> str:
    """Return JSON that any reader takes: scalars of NumPy and torch as numbers, NaN and infinities as null."""
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> object:
    if isinstance(value, bool | str | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic | np.ndarray) or hasattr(value, "detach"):
        return _plain(value.tolist())
    raise InputTypeError(f"{value!r:.100} is a {type(value).__name__}; a log holds numbers, strings, lists and dicts")


def _end_of_last_line(file: int) -> int:
    """Return the position after the last newline: the file's length, unless a killed writer left half a line."""
    end = os.fstat(file).st_size
    while end:
        start = max(0, end - 4096)
        os.lseek(file, start, os.SEEK_SET)
        newline = os.read(file, end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _threads() -> int | None:
    """Return the threads torch computes with; a log does not load torch to find out."""
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _git(folder: str | os.PathLike[str], *arguments: str) -> str:
    try:
        found = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
