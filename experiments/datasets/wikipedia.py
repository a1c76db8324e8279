"""Articles of Wikipedia as classes: which of 264,308 a window of words comes from, tested on other editions of them.

A text file holds articles: a line `=<page id>\\t<title>` opens one, every other line is a paragraph of lower-case words
and numbers. Files whose name begins with `ident-` are tested on: there an article carries the page id of the one that
it is another edition of. All other files are trained on. Words are kept as numbers, in 32 bits, in the cache.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from experiments.datasets.cache import Arrays, cached_arrays
from experiments.datasets.missing import MissingDataError
from experiments.datasets.opened_text import SUFFIXES, opened_text
from experiments.frame.needs import Need

VARIABLE = "MANYCLASS_WIKIPEDIA"  # with the folder of the text files
GET = (
    f"set {VARIABLE} to a folder of text files (.txt, .gz or .xz) in which a line `=<page id><tab><title>` opens an "
    "article and the others are its words; those called ident-… are tested on. WikiExtractor makes such texts of a dump"
)
TEST_FILES = "ident-"
WORDS = 1 << 18  # the most frequent ones, numbered from 1 on by falling count; all others are left out
Show = Callable[[float, str], None]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Articles:
    """Texts as numbers of words: article a has words[starts[a] : starts[a + 1]] and is class labels[a]."""

    words: npt.NDArray[np.int32]
    starts: Ids
    labels: Ids

    def __len__(self) -> int:
        return len(self.labels)

    def windows(self, articles: Ids, shares: npt.NDArray[np.float64], size: int) -> Ids:
        """Return (n, size) consecutive words of each article, padded with 0 at the right where it is shorter.

        shares: in [0, 1), where in the article its window begins; it never reaches beyond the article.
        """
        begin, end = self.starts[articles], self.starts[articles + 1]
        first = begin + np.floor(shares * (np.maximum(end - begin - size, 0) + 1)).astype(np.int64)
        places = first[:, None] + np.arange(size)
        inside = places < end[:, None]
        return np.where(inside, self.words[np.where(inside, places, 0)], 0).astype(np.int64)


@dataclass(frozen=True)
class Wikipedia:
    """What is trained on, whose class is its place in the file, and other editions of some, by name of the edition."""

    train: Articles
    tests: dict[str, Articles]
    words: int  # one more than the largest number of a word; 0 is no word


def wikipedia(show: Show = lambda completed, text: None) -> Wikipedia:
    """Return all articles; read once, then from the cache. Raises MissingDataError where there are no texts."""
    arrays = cached_arrays(f"wikipedia_{WORDS}", lambda: as_arrays(data_folder(), show))
    parts = {name.rpartition(".")[0] for name in arrays}
    kept = {part: Articles(*(arrays[f"{part}.{field}"] for field in ("words", "starts", "labels"))) for part in parts}
    return Wikipedia(kept.pop("train"), dict(sorted(kept.items())), WORDS)


def as_arrays(folder: Path, show: Show, words: int = WORDS) -> Arrays:
    """Return the texts of a folder as numbers. Read twice, to hold no more than the numbers in memory."""
    trained, tested = text_files(folder)
    total, done = sum(file.stat().st_size for file in (*trained, *trained, *tested)), 0

    def each(files: list[Path]) -> Iterator[tuple[int, list[str]]]:
        nonlocal done
        for file in files:
            show(done / total, file.name)
            yield from read_articles(file)
            done += file.stat().st_size

    seen: Counter[str] = Counter()
    for _, text in each(trained):
        seen.update(text)
    numbers = {word: place for place, (word, _) in enumerate(seen.most_common(words - 1), start=1)}
    ids: dict[int, int] = {}  # page id → class
    made = _numbered(((ids.setdefault(page, len(ids)), text) for page, text in each(trained)), numbers)
    arrays = {f"train.{field}": array for field, array in made.items()}
    for file in tested:
        known = ((ids[page], text) for page, text in each([file]) if page in ids)
        arrays |= {f"{edition_of(file)}.{field}": array for field, array in _numbered(known, numbers).items()}
    return arrays


def _numbered(articles: Iterator[tuple[int, list[str]]], numbers: dict[str, int]) -> dict[str, npt.NDArray[np.int64]]:
    """Return the fields of Articles; words without a number are left out, and articles without words."""
    texts, labels = [], []
    for label, text in articles:
        known = np.array([number for word in text if (number := numbers.get(word))], np.int32)
        if len(known):
            texts.append(known)
            labels.append(label)
    starts = np.cumsum([0, *map(len, texts)])
    return {"words": np.concatenate(texts), "starts": starts, "labels": np.array(labels, np.int64)}


def read_articles(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield page id and words of each article."""
    page = -1
    words: list[str] = []
    with opened_text(file) as lines:
        for line in lines:
            if line.startswith("="):
                if words:
                    yield page, words
                page, words = int(line[1:].partition("\t")[0]), []
            else:
                words += line.split()
    if words:
        yield page, words


def edition_of(file: Path) -> str:
    """Return the name of a tested edition: ident-simplewiki.txt.xz is simplewiki."""
    return file.name.removeprefix(TEST_FILES).partition(".")[0]


def text_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the files to train on and those to test on."""
    files = sorted(file for file in folder.iterdir() if file.name.endswith(SUFFIXES))
    tested = [file for file in files if file.name.startswith(TEST_FILES)]
    return [file for file in files if file not in tested], tested


def data_folder() -> Path:
    """Return the folder that the variable names."""
    named = os.environ.get(VARIABLE)
    if not named or not Path(named).is_dir() or not all(text_files(Path(named))):
        reason = "no articles of Wikipedia" if not named else f"{named} lacks texts to train on or to test on"
        raise MissingDataError(reason, GET)
    return Path(named)


def needs() -> list[Need]:
    """Return where they are looked for, for `python -m experiments doctor`."""
    named = os.environ.get(VARIABLE)
    found = named if named and Path(named).is_dir() and all(text_files(Path(named))) else None
    return [Need("Wikipedia articles", found, "the task on articles; not for --quick", GET, optional=True)]
