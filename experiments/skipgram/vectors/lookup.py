"""What saved word vectors know: the nearest words, and answers to analogies, found through the library's index."""

import difflib
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.skipgram.vectors.vector_files import Floats, WordVectors, load_vectors
from manyclass import ClassIndex
from manyclass.errors import InputError


@dataclass(frozen=True)
class Answer:
    """Words with their cosines, best first, and the milliseconds that the index took."""

    words: list[tuple[str, float]]
    milliseconds: float


class Lookup:
    """Vectors of length one behind an index; a query is a word, or a : b = c : ?."""

    def __init__(self, known: WordVectors) -> None:
        lengths = np.linalg.norm(known.vectors, axis=1, keepdims=True)
        self.words = known.words
        self.rows: Floats = known.vectors / np.maximum(lengths, 1e-30).astype(np.float32)
        self.numbers = {word: number for number, word in enumerate(known.words)}
        self.index = ClassIndex.build(self.rows, optimize="single")

    @classmethod
    def load(cls, path: Path | str) -> "Lookup":
        """Return the vectors of a file in word2vec's text or binary format, with an index over them."""
        return cls(load_vectors(Path(path)))

    def nearest(self, word: str, k: int = 10) -> Answer:
        """Return the words whose vectors point most nearly where this word's does, itself left out."""
        number = self._number(word)
        return self._search(self.rows[number], [number], k)

    def analogy(self, a: str, b: str, c: str, k: int = 10) -> Answer:
        """Return what is to c as b is to a: the words nearest to b - a + c, the three left out."""
        numbers = [self._number(word) for word in (a, b, c)]
        first, second, third = self.rows[numbers]
        query = second - first + third
        return self._search(query / max(float(np.linalg.norm(query)), 1e-30), numbers, k)

    def _search(self, query: Floats, exclude: list[int], k: int) -> Answer:
        k = max(1, min(k, len(self.words) - len(exclude)))
        started = time.perf_counter()
        found = self.index.search(query, k, exclude=np.array(exclude))
        milliseconds = 1000 * (time.perf_counter() - started)
        best = [int(number) for number in found.classes if number >= 0]
        return Answer([(self.words[number], float(self.rows[number] @ query)) for number in best], milliseconds)

    def _number(self, word: str) -> int:
        if word in self.numbers:
            return self.numbers[word]
        alike = difflib.get_close_matches(word, self.words[:100_000], 3)
        raise InputError(f"{word!r} has no vector; " + (f"try {', '.join(alike)}" if alike else "try another word"))
