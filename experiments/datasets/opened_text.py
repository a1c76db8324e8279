"""Text files as they come: plain, .gz or .xz."""

import gzip
import lzma
from pathlib import Path
from typing import TextIO

SUFFIXES = (".txt", ".txt.gz", ".txt.xz")


def opened_text(path: Path) -> TextIO:
    """Return the file opened for reading lines."""
    opened = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    file: TextIO = opened(path, "rt", encoding="utf-8")  # type: ignore[operator]
    return file


def find_text(folder: Path, name: str) -> Path | None:
    """Return the file of that name, packed or not."""
    return next((file for suffix in SUFFIXES if (file := folder / f"{name}{suffix}").is_file()), None)
