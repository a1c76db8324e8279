"""A text as numbers: each word numbered by when it is first met, parted into lines and articles. Read once."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from experiments.skipgram.text.text_words import lines_of_words
from manyclass._reference.skip_gram import SEPARATOR
from manyclass.errors import InputError

LINES_OF_AN_ARTICLE, WORDS_OF_AN_ARTICLE = 100, 10_000  # at most, where a text has no titles
WRITTEN_AT_ONCE = 1 << 20
Show = Callable[[float, str], None]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class NumberedText:
    """words: numbers, SEPARATOR after each line. starts: where each article begins. names: the word of each number."""

    words: Words
    starts: npt.NDArray[np.int64]
    names: list[str]

    def counts(self) -> npt.NDArray[np.int64]:
        """Return how often each word occurs."""
        return np.bincount(self.words[self.words != SEPARATOR], minlength=len(self.names))

    def without(self, articles: npt.NDArray[np.bool_]) -> tuple["NumberedText", "NumberedText"]:
        """Return the text of the articles that are not marked, and that of those that are."""
        marked = np.repeat(articles, np.diff([*self.starts, len(self.words)]))
        return self._where(~marked, ~articles), self._where(marked, articles)

    def _where(self, words: npt.NDArray[np.bool_], articles: npt.NDArray[np.bool_]) -> "NumberedText":
        lengths = np.diff([*self.starts, len(self.words)])[articles]
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)[: len(lengths)]
        return NumberedText(self.words[words], starts, self.names)


def read_text(files: Sequence[Path], scratch: Path, show: Show = lambda done, text: None) -> NumberedText:
    """Return the words of all files. scratch: a file for the numbers, which are held there and not in memory."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a word that is new gets the next number
    starts: list[int] = []
    waiting: list[int] = []
    written, since, began = 0, 0, 0
    total, done = sum(file.stat().st_size for file in files) or 1, 0
    with open(scratch, "wb") as out:
        for file in files:
            show(done / total, file.name)
            begins, titles = True, False
            for words in lines_of_words(file):
                if words is None:
                    begins = titles = True
                    continue
                long = since == LINES_OF_AN_ARTICLE or written + len(waiting) - began >= WORDS_OF_AN_ARTICLE
                if begins or (long and not titles):
                    began = written + len(waiting)
                    starts.append(began)
                    begins, since = False, 0
                waiting += map(numbers.__getitem__, words)
                waiting.append(SEPARATOR)
                since += 1
                if len(waiting) >= WRITTEN_AT_ONCE:
                    np.array(waiting, np.uint32).tofile(out)
                    written, waiting = written + len(waiting), []
            done += file.stat().st_size
        np.array(waiting, np.uint32).tofile(out)
    if not numbers:
        raise InputError(f"{', '.join(file.name for file in files)}: there is no word in it; give a text with words")
    return NumberedText(np.memmap(scratch, np.uint32, "r"), np.array(starts, np.int64), list(numbers))
