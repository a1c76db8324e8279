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
    read = _from_text if _is_text(rest, features) else _from_binary
    found = read(rest, count, features, path)
    if not np.isfinite(found.vectors).all():
        raise CorruptFileError(f"{path} has vectors that are not finite; it is damaged, or made by a broken run")
    return found


def _is_text(rest: bytes, features: int) -> bool:
    """Return whether what follows the first line begins with a word and its numbers, written out."""
    parts = rest.partition(b"\n")[0].split()
    try:
        return len([float(part) for part in parts[1:]]) == features and features > 0
    except ValueError:
        return False


def _from_text(rest: bytes, count: int, features: int, path: Path) -> WordVectors:
    words, vectors = [], np.empty((count, features), np.float32)
    lines = rest.removesuffix(b"\n").split(b"\n")
    if len(lines) != count:
        raise CorruptFileError(f"{path} promises {count} words and has {len(lines)} lines of them; get it anew")
    for number, line in enumerate(lines):
        try:
            word, *numbers = line.decode().split()
            vectors[number] = np.array(numbers, np.float32)
        except ValueError:  # of a number, of how many there are, or of the encoding
            raise CorruptFileError(f"{path}, line {number + 2} is no word with {features} numbers; mend it") from None
        words.append(word)
    return WordVectors(words, vectors)


def _from_binary(rest: bytes, count: int, features: int, path: Path) -> WordVectors:
    words, vectors, at, size = [], np.empty((count, features), np.float32), 0, 4 * features
    for number in range(count):
        end = rest.find(b" ", at)
        if end < 0 or end + 1 + size > len(rest):
            raise CorruptFileError(f"{path} promises {count} words and ends within word {number}; get it anew")
        try:
            words.append(rest[at:end].lstrip(b"\n").decode())
        except UnicodeDecodeError:
            raise CorruptFileError(f"{path}: word {number} is not UTF-8; the file is damaged: get it anew") from None
        vectors[number] = np.frombuffer(rest, "<f4", features, end + 1)
        at = end + 1 + size
    if rest[at:].strip():
        raise CorruptFileError(f"{path} promises {count} words and has more after them; get it anew")
    return WordVectors(words, vectors)
