"""Analogies: a is to b as c is to which word? Answered by the word nearest to b - a + c (3CosAdd), as word2vec does."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from manyclass.errors import CorruptFileError

SCORES_AT_ONCE = 1 << 25
MOST_WORDS = 300_000  # answers are looked for among the most frequent ones, as gensim does
Floats = npt.NDArray[np.float32]
SYNTACTIC = "gram"  # how the sections of Google's set on grammar begin


@dataclass(frozen=True)
class Question:
    """a : b = c : answer, of a section of a set."""

    section: str
    words: tuple[str, str, str, str]


def google_questions(file: Path) -> list[Question]:
    """Return the questions of a file in which `: section` opens a section and others have four words."""
    questions, section = [], ""
    for number, line in enumerate(file.read_text(encoding="utf-8").lower().splitlines(), start=1):
        if line.startswith(":"):
            section = line[1:].strip()
        elif line.strip():
            questions.append(Question(section, _four(line.split(), file, number)))
    return questions


def msr_questions(file: Path) -> list[Question]:
    """Return the questions of a file with lines `a b c RELATION answer`."""
    questions = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if parts := line.split():
            answer = [word.lower() for word in (*parts[:3], *parts[4:])]
            questions.append(Question(parts[3] if len(parts) > 3 else "", _four(answer, file, number)))
    return questions


def _four(words: list[str], file: Path, line: int) -> tuple[str, str, str, str]:
    if len(words) != 4:
        raise CorruptFileError(f"{file}, line {line} has {len(words)} words; a question has four: mend it")
    return words[0], words[1], words[2], words[3]


def answer_analogies(
    vectors: Floats, numbers: dict[str, int], questions: Iterable[Question]
) -> dict[str, dict[str, float | int | None]]:
    """Return by kind of question how many were asked, how many left out for a word without a vector, and the share
    answered right; kinds are "semantic" and "syntactic" as Google's sections are, and "all".

    vectors (words, features), by falling frequency; numbers: of each word.
    """
    asked, left_out, kinds = [], {"semantic": 0, "syntactic": 0}, []
    for question in questions:
        kind = "syntactic" if question.section.startswith(SYNTACTIC) or question.section.isupper() else "semantic"
        places = [numbers.get(word, MOST_WORDS) for word in question.words]
        if max(places) >= min(MOST_WORDS, len(vectors)):
            left_out[kind] += 1
        else:
            asked.append(places)
            kinds.append(kind)
    right = right_answers(vectors[:MOST_WORDS], np.array(asked, np.int64).reshape(-1, 4))
    found: dict[str, dict[str, float | int | None]] = {}
    for kind in ("semantic", "syntactic", "all"):
        chosen = right[[kind in (of_question, "all") for of_question in kinds]]
        unknown = sum(count for name, count in left_out.items() if kind in (name, "all"))
        right_share = float(chosen.mean()) if len(chosen) else None
        found[kind] = {"asked": len(chosen), "left_out": unknown, "right": right_share}
    return found


def right_answers(vectors: Floats, questions: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which questions (n, 4) are answered right: the three words themselves are no answers."""
    unit = unit_rows(vectors)
    right, step = np.zeros(len(questions), bool), max(1, SCORES_AT_ONCE // max(1, len(unit)))
    for begin in range(0, len(questions), step):
        asked = questions[begin : begin + step]
        a, b, c, answer = asked.T
        scores = (unit[b] - unit[a] + unit[c]) @ unit.T
        np.put_along_axis(scores, asked[:, :3], -np.inf, axis=1)
        right[begin : begin + step] = scores.argmax(1) == answer
    return right


def unit_rows(vectors: Floats) -> Floats:
    """Return vectors of length one; those of length zero stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)
