"""The text for peers: the same words in the same lines as our output layers learn from, in a file that they read."""

from pathlib import Path

import numpy as np

from experiments.frame.whole_folder import whole_folder
from experiments.skipgram.text.corpus import Corpus
from experiments.skipgram.text.numbered_text import Words
from manyclass._reference.skip_gram import SEPARATOR


def peer_text(corpus: Corpus, cache: Path, name: str, words: int | None = None) -> Path:
    """Return a file with the first `words` words of the text, all by default; written where the cache lacks it."""
    folder = cache / f"peer-text-{name}-{'all' if words is None else words}"
    if not folder.exists():
        with whole_folder(folder) as unfinished, open(unfinished / "text.txt", "w", encoding="utf-8") as out:
            for line in lines_of(corpus.train if words is None else corpus.train[:words]):
                out.write(" ".join(map(corpus.words.__getitem__, line.tolist())) + "\n")
    return folder / "text.txt"


def lines_of(text: Words) -> list[Words]:
    """Return the lines of a text that have words."""
    ends = np.flatnonzero(text == SEPARATOR)
    parts = np.split(text, ends + 1)
    return [line for part in parts if len(line := part[part != SEPARATOR])]
