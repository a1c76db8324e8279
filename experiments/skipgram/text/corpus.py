"""The text to learn from, as numbers of words from the most frequent on, and articles that are kept apart: some to
choose learning rates by, others for testing.

Made once per run, in its cache: train.npy, validation.npy, held_out.npy (uint32), counts.npy (int64), vocabulary.txt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from experiments.frame.whole_folder import whole_folder
from experiments.skipgram.text.numbered_text import NumberedText, Show, Words, read_text
from experiments.skipgram.text.phrases import joined_phrases
from experiments.skipgram.text.text_words import text_files
from manyclass._reference.skip_gram import SEPARATOR
from manyclass.errors import InputError

Counts = npt.NDArray[np.int64]
FEWEST_ARTICLES = 4  # of which one is held out, and one to choose by


@dataclass(frozen=True, kw_only=True)
class CorpusSettings:
    """What becomes of a text."""

    min_count: int = 5  # words that occur less often are left out
    most_words: int = 10_000_000  # the most frequent ones
    phrases: int = 0  # times that frequent pairs are joined: twice makes phrases of four words
    held_out_every: int = 100  # of so many articles one is kept apart for tests, and one for choosing by

    @property
    def name(self) -> str:
        """Return what tells the folders of two settings apart."""
        return f"text-{self.min_count}-{self.most_words}-{self.phrases}-{self.held_out_every}"


@dataclass(frozen=True)
class Corpus:
    """train, validation, held_out: words as numbers, by falling count, SEPARATOR after each line.

    counts: of each word in `train`.
    """

    train: Words
    validation: Words
    held_out: Words
    counts: Counts
    words: list[str]

    @property
    def tokens(self) -> int:
        """Words to learn from, all their occurrences."""
        return int(self.counts.sum())


def make_corpus(
    paths: Sequence[Path], settings: CorpusSettings, cache: Path, show: Show = lambda done, text: None
) -> Corpus:
    """Return the corpus of these files and folders; made where the cache does not have it."""
    folder = cache / settings.name
    if not folder.exists():
        with whole_folder(folder) as unfinished:
            scratch = unfinished / "scratch"
            text = read_text(text_files(paths), scratch, show)
            for time in range(settings.phrases):
                show(1, f"joining phrases, time {time + 1}")
                text = joined_phrases(text)
            _write(text, settings, unfinished)
            scratch.unlink()
    return open_corpus(folder)


def open_corpus(folder: Path) -> Corpus:
    """Return a corpus that was made, its words read from the disk as they are needed."""
    train, validation, held_out = (
        np.load(folder / f"{part}.npy", mmap_mode="r") for part in ("train", "validation", "held_out")
    )
    words = (folder / "vocabulary.txt").read_text(encoding="utf-8").split("\n")
    return Corpus(train, validation, held_out, np.load(folder / "counts.npy"), words)


def _write(text: NumberedText, settings: CorpusSettings, folder: Path) -> None:
    every = min(settings.held_out_every, max(FEWEST_ARTICLES, len(text.starts)))  # of few articles, too, one of each
    places = np.arange(len(text.starts)) % every
    train, apart = text.without(places >= every - 2)
    validation, held_out = apart.without(places[places >= every - 2] == every - 1)
    chosen = chosen_words(train.counts(), settings)
    if len(chosen) < 2:
        raise InputError(
            f"min_count={settings.min_count} leaves a vocabulary of {len(chosen)} words; there must be two to learn "
            "from: lower it, or give more text"
        )
    new = np.full(len(text.names), -1, np.int64)
    new[chosen] = np.arange(len(chosen))
    np.save(folder / "train.npy", renumbered(train.words, new))
    np.save(folder / "validation.npy", renumbered(validation.words, new))
    np.save(folder / "held_out.npy", renumbered(held_out.words, new))
    np.save(folder / "counts.npy", train.counts()[chosen])
    (folder / "vocabulary.txt").write_text("\n".join(text.names[word] for word in chosen), encoding="utf-8")


def chosen_words(counts: Counts, settings: CorpusSettings) -> Counts:
    """Return the words that stay, the most frequent first; of equally frequent ones, the one met first."""
    order = np.argsort(-counts, kind="stable")
    return order[counts[order] >= max(1, settings.min_count)][: settings.most_words]


def renumbered(words: Words, new: Counts) -> Words:
    """Return the text in new numbers; words without one (-1) are gone, and so are separators that separate nothing."""
    separates = words == SEPARATOR
    numbers = np.where(separates, SEPARATOR, new[np.where(separates, 0, words)])
    kept: Words = numbers[numbers >= 0].astype(np.uint32)
    double = (kept == SEPARATOR) & np.concatenate([[True], kept[:-1] == SEPARATOR])
    single: Words = kept[~double]
    return single
