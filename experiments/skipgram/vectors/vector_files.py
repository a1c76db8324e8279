"""Word vectors in the two formats of word2vec's program, which gensim and most other libraries read.

Text: a line `words features`, then a line for each word with its numbers. Binary: the same first line, then each word,
a space, its numbers as float32 in little-endian order, and a line break.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._atomic_file import replacement, write_all
from manyclass.errors import CorruptFileError, FileError, InputError

Floats = npt.NDArray[np.float32]
ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class WordVectors:
    """words: by falling frequency, as far as the file has them so; vectors: float32 (words, features)."""

    words: list[str]
    vectors: Floats


def save_vectors(path: Path, words: list[str], vectors: npt.NDArray[Any], *, binary: bool = True) -> None:
    """Write the file, all or nothing."""
    if len(words) != len(vectors):
        raise InputError(f"{len(words)} words but {len(vectors)} vectors; give one of each")
    wrong = next((word for word in words if not word or any(sign.isspace() for sign in word)), None)
    if wrong is not None:
        raise InputError(
            f"the word {wrong!r} is empty or has a space in it, which ends a word in these files; join it by _"
        )
    rows = np.ascontiguousarray(vectors, dtype="<f4")
    with replacement(os.path.realpath(path)) as file:
        write_all(file, f"{len(words)} {rows.shape[1]}\n".encode())
        for begin in range(0, len(words), ROWS_AT_ONCE):
            part = zip(words[begin : begin + ROWS_AT_ONCE], rows[begin : begin + ROWS_AT_ONCE], strict=True)
            if binary:
                write_all(file, b"".join(b"%s %s\n" % (word.encode(), row.tobytes()) for word, row in part))
            else:
                lines = (f"{word} {' '.join(map(repr, row.tolist()))}\n" for word, row in part)
                write_all(file, "".join(lines).encode())


def load_vectors(path: Path) -> WordVectors:
    """Return the vectors of a file of either format; which one it is, its content tells."""
    if not path.is_file():
        raise FileError(f"{path} does not exist; give a file of word vectors in word2vec's text or binary format")
    content = path.read_bytes()
    first, _, rest = content.partition(b"\n")
    try:
        count, features = map(int, first.split())
    except ValueError:
        raise CorruptFileError(f"{path} does not begin with two whole numbers; it is no file of word vectors") from None
    try:
        return _from_text(rest, count, features)
    except (ValueError, UnicodeDecodeError):
        return _from_binary(rest, count, features, path)


def _from_text(rest: bytes, count: int, features: int) -> WordVectors:
    lines = rest.decode().rstrip("\n").split("\n")
    parts = [line.split() for line in lines] if count else []
    if len(parts) != count or any(len(part) != features + 1 for part in parts):
        raise ValueError("another format, or damaged")
    vectors = np.array([part[1:] for part in parts], np.float32).reshape(count, features)
    return WordVectors([part[0] for part in parts], vectors)


def _from_binary(rest: bytes, count: int, features: int, path: Path) -> WordVectors:
    words, vectors, at, size = [], np.empty((count, features), np.float32), 0, 4 * features
    for number in range(count):
        end = rest.find(b" ", at)
        if end < 0 or end + 1 + size > len(rest):
            raise CorruptFileError(f"{path} promises {count} words and ends within word {number}; get it anew")
        words.append(rest[at:end].lstrip(b"\n").decode("utf-8", "replace"))
        vectors[number] = np.frombuffer(rest, "<f4", features, end + 1)
        at = end + 1 + size
    return WordVectors(words, vectors)
