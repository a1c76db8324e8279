"""Articles as numbers of words, and windows of them."""

import lzma
from pathlib import Path

import numpy as np
import pytest

from experiments.datasets import wikipedia
from experiments.datasets.missing import MissingDataError

TRAIN = "=12\tAnarchism\nthe state the\nrule\n=25\tAutism\nthe mind\n"
WIDE = "=900\tSome hill\nthe hill rule\n=901\tEmpty\n"
OTHER = "=900\tHill\nhill unknown the\n=7\tNobody has it\nthe\n=12\tAnarchy\nstate\n"


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> wikipedia.Wikipedia:
    """Return three small files, read through the cache."""
    folder = tmp_path / "texts"
    folder.mkdir()
    with lzma.open(folder / "core.txt.xz", "wt") as file:
        file.write(TRAIN)
    (folder / "wide.txt").write_text(WIDE)
    (folder / "ident-simple.txt").write_text(OTHER)
    monkeypatch.setenv(wikipedia.VARIABLE, str(folder))
    monkeypatch.setenv("MANYCLASS_CACHE", str(tmp_path / "cache"))
    first = wikipedia.wikipedia()
    monkeypatch.delenv(wikipedia.VARIABLE)
    again = wikipedia.wikipedia()  # the cache needs no texts
    assert again.train.words.tolist() == first.train.words.tolist()
    return again


def test_words_are_numbered_by_falling_count(texts: wikipedia.Wikipedia) -> None:
    assert len(texts.train) == 3  # an article without words is none
    words = [
        texts.train.words[a:b].tolist() for a, b in np.lib.stride_tricks.sliding_window_view(texts.train.starts, 2)
    ]
    assert words[0][0] == words[0][2] == words[1][0] == words[2][0] == 1  # the
    assert words[0][3] == words[2][2] == 2  # rule
    assert texts.train.labels.tolist() == [0, 1, 2]


def test_other_editions_have_the_class_of_their_page_id(texts: wikipedia.Wikipedia) -> None:
    other = texts.tests["simple"]
    assert other.labels.tolist() == [2, 0]  # page 900, then page 12; page 7 is not trained on
    hill, state = texts.train.words[texts.train.starts[2] + 1], texts.train.words[1]
    assert other.words.tolist() == [hill, 1, state]  # a word that training has not is left out


def test_windows_never_cross_articles() -> None:
    random = np.random.default_rng(0)
    lengths = random.integers(1, 30, size=200)
    labels = np.arange(200)
    articles = wikipedia.Articles(np.repeat(labels + 1, lengths).astype(np.int32), np.cumsum([0, *lengths]), labels)
    drawn = random.integers(200, size=3000)
    shares = random.random(3000)
    shares[:10] = np.nextafter(1, 0)
    windows = articles.windows(drawn, shares, 8)
    own = drawn[:, None] + 1  # every word of an article has its number
    assert ((windows == own) | (windows == 0)).all()
    assert ((windows > 0).sum(1) == np.minimum(lengths[drawn], 8)).all()


def test_windows_begin_anywhere_in_an_article() -> None:
    articles = wikipedia.Articles(np.arange(1, 11, dtype=np.int32), np.array([0, 10]), np.array([0]))
    firsts = articles.windows(np.zeros(800, int), np.linspace(0, 1, 800, endpoint=False), 3)[:, 0]
    assert sorted(set(firsts.tolist())) == list(range(1, 9))


def test_without_texts_it_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCLASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(wikipedia.VARIABLE, str(tmp_path))
    with pytest.raises(MissingDataError, match="lacks texts to train on or to test on"):
        wikipedia.wikipedia()
    assert wikipedia.needs()[0].found is None
