"""Similarity: do the cosines of word vectors order pairs of words as people do? Spearman's correlation, by set."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from experiments.skipgram.evaluation.analogies import Floats, unit_rows
from manyclass.errors import CorruptFileError

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SimilaritySet:
    """Pairs of words with the score that people gave each."""

    name: str
    pairs: list[tuple[str, str]]
    scores: Doubles


def read_similarity_set(file: Path) -> SimilaritySet:
    """Return the set of a file with lines `word word score`, parted by tabs or spaces."""
    pairs, scores = [], []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        parts = line.split()
        if not parts:
            continue
        try:
            first, second, score = parts[0].lower(), parts[1].lower(), float(parts[2])
        except (IndexError, ValueError):
            raise CorruptFileError(f"{file}, line {number} is {line!r:.60}; expected two words and a number") from None
        pairs.append((first, second))
        scores.append(score)
    return SimilaritySet(file.stem.removeprefix("EN-"), pairs, np.array(scores))


def agreement(vectors: Floats, numbers: dict[str, int], known: SimilaritySet) -> dict[str, float | int | None]:
    """Return Spearman's correlation over the pairs whose words have vectors, how many, and how many were left out."""
    chosen = [place for place, pair in enumerate(known.pairs) if pair[0] in numbers and pair[1] in numbers]
    left_out = len(known.pairs) - len(chosen)
    if len(chosen) < 3:
        return {"pairs": len(chosen), "left_out": left_out, "correlation": None}
    first, second = ([numbers[known.pairs[place][side]] for place in chosen] for side in (0, 1))
    cosines = (unit_rows(vectors[first]) * unit_rows(vectors[second])).sum(1)
    return {"pairs": len(chosen), "left_out": left_out, "correlation": spearman(cosines, known.scores[chosen])}


def spearman(first: npt.ArrayLike, second: npt.ArrayLike) -> float | None:
    """Return the correlation of the ranks; None where one side does not vary."""
    ours, theirs = (average_ranks(np.asarray(values, np.float64)) for values in (first, second))
    if np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return None
    return float(np.corrcoef(ours, theirs)[0, 1])


def average_ranks(values: Doubles) -> Doubles:
    """Return ranks from 1 on; equal values share the mean of theirs."""
    _, places, times = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(times)
    return (ends - (times - 1) / 2)[places]
