"""The text for peers: the same words in the same lines as our output layers learn from, in a file that they read."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from experiments.frame.whole_folder import whole_folder
from experiments.skipgram.text.corpus import Corpus
from experiments.skipgram.text.numbered_text import Words
from manyclass._reference.skip_gram import SEPARATOR

Places = npt.NDArray[np.int64]


def peer_text(corpus: Corpus, cache: Path, name: str, words: int, seed: int) -> Path:
    """Return a file with `words` words, up to the end of a line; written where the cache lacks it.

    Lines come from all over the text, as in our batches, in an order that every pass shuffles anew: a part of the text,
    or the whole of it once or several times.
    """
    folder = cache / f"peer-text-{name}-{seed}-{words}"
    if not folder.exists():
        starts, ends = lines_of(corpus.train)
        with whole_folder(folder) as unfinished, open(unfinished / "text.txt", "w", encoding="utf-8") as out:
            written, passes = 0, 0
            while written < words:
                for line in np.random.default_rng((seed, passes)).permutation(len(starts)).tolist():
                    numbers = corpus.train[starts[line] : ends[line]].tolist()
                    out.write(" ".join(map(corpus.words.__getitem__, numbers)) + "\n")
                    written += len(numbers)
                    if written >= words:
                        break
                passes += 1
    return folder / "text.txt"


def lines_of(text: Words) -> tuple[Places, Places]:
    """Return where the lines of a text begin and end that have words."""
    ends = np.flatnonzero(np.concatenate([text == SEPARATOR, [True]]))
    starts = np.concatenate([[0], ends[:-1] + 1])
    return starts[ends > starts], ends[ends > starts]
