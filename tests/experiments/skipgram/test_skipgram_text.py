"""Reading texts: words, articles, broken files, phrases, the vocabulary, and what is held out."""

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest

from experiments.skipgram.evaluation.made_text import GOOGLE, SETS, TEXT, make_small_text
from experiments.skipgram.text.corpus import CorpusSettings, make_corpus, renumbered
from experiments.skipgram.text.numbered_text import LINES_OF_AN_ARTICLE, WORDS_OF_AN_ARTICLE, NumberedText, read_text
from experiments.skipgram.text.phrases import joined_phrases
from experiments.skipgram.text.text_words import LONGEST, lines_of_words, text_files, words_of
from manyclass._reference.skip_gram import SEPARATOR
from manyclass.errors import CorruptFileError, FileError, InputError


def test_words_are_lower_case_letters_with_an_apostrophe_or_digits() -> None:
    assert words_of("the cat's 12 lives\n") == ["the", "cat's", "12", "lives"]
    assert words_of("The Cat, and Ünal-Özil: 3rd!\n") == ["the", "cat", "and", "ünal", "özil", "3", "rd"]
    assert words_of(" ...\n") == []


def test_packed_files_and_folders_are_read_but_not_other_editions(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("=1\tTitle\none two\n\n=two words\n")
    with gzip.open(tmp_path / "b.txt.gz", "wt") as file:
        file.write("three\n")
    with lzma.open(tmp_path / "c.xz", "wt") as file:
        file.write("four\n")
    for other in ("ident-x.txt", "notes.md"):
        (tmp_path / other).write_text("five\n")
    files = text_files([tmp_path])
    assert [file.name for file in files] == ["a.txt", "b.txt.gz", "c.xz"]
    assert list(lines_of_words(files[0])) == [None, ["one", "two"], ["two", "words"]]
    text = read_text(files, tmp_path / "scratch")
    assert text.names == ["one", "two", "words", "three", "four"]
    assert text.words.tolist() == [0, 1, SEPARATOR, 1, 2, SEPARATOR, 3, SEPARATOR, 4, SEPARATOR]
    assert text.starts.tolist() == [0, 6, 8]


def test_a_text_without_titles_is_parted_into_blocks_of_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("word\n" * (2 * LINES_OF_AN_ARTICLE + 1))
    text = read_text([tmp_path / "a.txt"], tmp_path / "scratch")
    assert text.starts.tolist() == [0, 2 * LINES_OF_AN_ARTICLE, 4 * LINES_OF_AN_ARTICLE]


def test_a_text_of_one_line_is_broken_and_has_articles_that_are_held_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" ".join(f"w{number % 7}" for number in range(5 * WORDS_OF_AN_ARTICLE)))
    text = read_text([tmp_path / "a.txt"], tmp_path / "scratch")
    ends = np.flatnonzero(text.words == SEPARATOR)
    assert np.diff(ends, prepend=-1).max() == LONGEST + 1
    assert len(text.starts) == 5
    corpus = make_corpus([tmp_path / "a.txt"], CorpusSettings(held_out_every=100), tmp_path / "cache")
    assert len(corpus.held_out) > 0
    assert len(corpus.validation) > 0


def test_broken_texts_are_refused_by_name(tmp_path: Path) -> None:
    packed = lzma.compress(b"words and words\n" * 1000)
    broken = {
        "latin.txt": (b"caf\xe9 au lait\n", "latin.txt is not UTF-8 text"),
        "short.txt.xz": (packed[:60], "short.txt.xz cannot be unpacked"),
        "other.txt.xz": (b"plain words\n", "other.txt.xz cannot be unpacked"),
        "other.txt.gz": (b"plain words\n", "other.txt.gz cannot be read"),
        "short.txt.gz": (gzip.compress(b"words and words\n" * 1000)[:40], "short.txt.gz cannot be unpacked"),
    }
    for name, (content, message) in broken.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CorruptFileError, match=message):
            list(lines_of_words(tmp_path / name))


def test_texts_that_are_not_there_or_empty_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist; name a text file"):
        text_files([tmp_path / "absent.txt"])
    with pytest.raises(FileError, match=r"has no file that ends in \.txt"):
        text_files([tmp_path])
    with pytest.raises(FileError, match="no text was named"):
        text_files([])
    (tmp_path / "empty.txt").write_text("\n ,.\n")
    with pytest.raises(InputError, match=r"empty\.txt: there is no word in it"):
        make_corpus([tmp_path / "empty.txt"], CorpusSettings(), tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())  # nothing half-made is left


def test_a_vocabulary_of_one_word_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("same same same\nother\n")
    with pytest.raises(InputError, match="min_count=2 leaves a vocabulary of 1 words; there must be two"):
        make_corpus([tmp_path / "a.txt"], CorpusSettings(min_count=2), tmp_path / "cache")


def test_the_corpus_numbers_words_by_frequency_and_holds_articles_out(tmp_path: Path) -> None:
    lines = []
    for article in range(4):
        lines += [f"={article}\tx", "b b a b", "rare" if article == 0 else "c a"]
    (tmp_path / "a.txt").write_text("\n".join([*lines, "=8\tx", "chosen a", "=9\tx", "held b"]))
    settings = CorpusSettings(min_count=2, held_out_every=6)
    corpus = make_corpus([tmp_path / "a.txt"], settings, tmp_path / "cache")
    assert corpus.words == ["b", "a", "c"]
    assert corpus.counts.tolist() == [12, 7, 3]
    assert corpus.tokens == 22
    assert corpus.train[:6].tolist() == [0, 0, 1, 0, SEPARATOR, 0]  # "rare" is gone, and its line with it
    assert corpus.held_out.tolist() == [0, SEPARATOR]
    assert corpus.validation.tolist() == [1, SEPARATOR]
    again = make_corpus([tmp_path / "absent.txt"], settings, tmp_path / "cache")  # from the cache: nothing is read
    assert again.words == corpus.words
    capped = make_corpus([tmp_path / "a.txt"], CorpusSettings(min_count=1, most_words=2), tmp_path / "cache")
    assert capped.words == ["b", "a"]


def test_separators_that_separate_nothing_go_with_their_words() -> None:
    words = np.array([5, SEPARATOR, 0, SEPARATOR, 5, SEPARATOR, 1, SEPARATOR], np.uint32)
    new = np.array([1, 0, -1, -1, -1, -1])
    assert renumbered(words, new).tolist() == [1, SEPARATOR, 0, SEPARATOR]


def test_frequent_pairs_become_one_word_the_left_one_of_three() -> None:
    names = ["new", "york", "times", *(f"x{number}" for number in range(60))]
    line = [0, 1, 2, SEPARATOR]  # new york times
    others = [[3 + number, SEPARATOR] for number in range(60)]
    words = np.array([*line * 10, *np.concatenate(others)], np.uint32)
    text = NumberedText(words, np.array([0, 4, 40]), names)
    joined = joined_phrases(text, discount=1, threshold=5)
    assert joined.names[len(names) :] == ["new_york", "york_times"]
    assert joined.words[:6].tolist() == [len(names), 2, SEPARATOR, len(names), 2, SEPARATOR]
    assert joined.starts.tolist() == [0, 3, 30]
    assert joined.counts()[len(names) :].tolist() == [10, 0]
    assert joined_phrases(text, discount=5, threshold=1e9).words.tolist() == words.tolist()


def test_phrases_do_not_reach_across_lines() -> None:
    words = np.array([0, SEPARATOR, 1, SEPARATOR] * 20, np.uint32)
    text = NumberedText(words, np.array([0]), ["a", "b"])
    assert joined_phrases(text, discount=0, threshold=0).names == ["a", "b"]


def test_the_made_text_is_the_same_every_time_and_has_its_questions(tmp_path: Path) -> None:
    folder = make_small_text(tmp_path, 200, seed=1)
    other = make_small_text(tmp_path / "other", 200, seed=1)
    assert (folder / TEXT / "first.txt").read_text() == (other / TEXT / "first.txt").read_text()
    known = set(read_text(text_files([folder / TEXT]), tmp_path / "scratch").names)
    asked = (folder / SETS / GOOGLE).read_text().splitlines()
    assert asked[0].startswith(":")
    assert len({word for line in asked[1:] for word in line.split()} & known) > 30
