"""Sets of questions that word vectors are tested on: analogies of Google and MSR, and similarities of pairs.

A folder has questions-words.txt, analogy-msr.txt and word-sim/EN-….txt; a file that is absent is left out by name.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.frame.needs import Need
from experiments.skipgram.evaluation.analogies import (
    Floats,
    Question,
    answer_analogies,
    google_questions,
    msr_questions,
)
from experiments.skipgram.evaluation.similarity import SimilaritySet, agreement, read_similarity_set
from manyclass.errors import FileError

VARIABLE = "MANYCLASS_WORD_SETS"  # with the folder
GOOGLE, MSR, SIMILARITIES = "questions-words.txt", "analogy-msr.txt", "word-sim"
GET = (
    f"set {VARIABLE} to a folder with {GOOGLE} (Google's analogies, also inside gensim), {MSR} (lines `a b c RELATION "
    f"answer`) and {SIMILARITIES}/EN-….txt (lines `word word score`, as github.com/mfaruqui/eval-word-vectors has them)"
)


@dataclass(frozen=True)
class WordSets:
    """What is asked. missing: names of files that the folder lacks."""

    google: list[Question]
    msr: list[Question]
    similarities: list[SimilaritySet]
    missing: list[str]

    def some(self, every: int) -> "WordSets":
        """Return one of so many of Google's questions and nothing else, for a look in between."""
        return WordSets(self.google[::every], [], [], [])

    def ask(self, vectors: Floats, words: list[str]) -> dict[str, Any]:
        """Return what vectors (words, features), by falling frequency, are worth on all sets, as JSON has it."""
        numbers = {word: number for number, word in enumerate(words)}
        return {
            "google": answer_analogies(vectors, numbers, self.google),
            "msr": answer_analogies(vectors, numbers, self.msr)["all"],
            "similarity": {known.name: agreement(vectors, numbers, known) for known in self.similarities},
        }


def read_word_sets(folder: Path) -> WordSets:
    """Return the sets of a folder; one without any of them is refused."""
    google, msr = folder / GOOGLE, folder / MSR
    similarities = sorted((folder / SIMILARITIES).glob("EN-*.txt"))
    present = {GOOGLE: google.is_file(), MSR: msr.is_file(), SIMILARITIES: bool(similarities)}
    if not any(present.values()):
        raise FileError(f"{folder} has none of {', '.join(present)}; {GET}")
    return WordSets(
        google_questions(google) if present[GOOGLE] else [],
        msr_questions(msr) if present[MSR] else [],
        [read_similarity_set(file) for file in similarities],
        [name for name, found in present.items() if not found],
    )


def word_sets_folder() -> Path | None:
    """Return the folder that the variable names."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def needs() -> list[Need]:
    """Return where they are looked for, for `python -m experiments doctor`."""
    folder = word_sets_folder()
    found = str(folder) if folder is not None and (folder / GOOGLE).is_file() else None
    return [Need("word sets", found, "analogies and similarities of skipgram; not for --quick", GET, optional=True)]
