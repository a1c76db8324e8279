"""A small text with known analogies, for a quick run: made on the spot, read like any other.

There are items and roles, and a word for every item in every role, as Paris is France in the role of a capital. Such a
word stands among words of its item and words of its role, between words that mean nothing and are as unequally
frequent as words are. Vectors that learn the text should know that item 1 in role 2 is to item 1 in role 3 as item 4 in
role 2 is to item 4 in role 3.
"""

import lzma
from itertools import permutations
from pathlib import Path

import numpy as np

from experiments.frame.whole_folder import whole_folder
from experiments.skipgram.evaluation.word_sets import GOOGLE, MSR, SIMILARITIES

ITEMS, ROLES, OF_EACH = 24, 6, 8
FILLERS = 2000
SENTENCES_OF_AN_ARTICLE = 20
TEXT, SETS = "text", "sets"
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


def made_word(kind: str, number: int) -> str:
    """Return a word that can be spoken, another for each number of a kind."""
    first, second = divmod(number, len(SYLLABLES))
    return f"{kind}{SYLLABLES[first % len(SYLLABLES)]}{SYLLABLES[second]}"


def item_word(item: int, role: int) -> str:
    """Return the word for an item in a role."""
    return made_word("ka", item * ROLES + role)


def make_small_text(cache: Path, sentences: int, seed: int) -> Path:
    """Return a folder with the text in TEXT and its questions in SETS, made where the cache does not have it."""
    folder = cache / f"made-{sentences}-{seed}"
    if not folder.exists():
        with whole_folder(folder) as unfinished:
            write_text(unfinished / TEXT, sentences, np.random.default_rng(seed))
            write_sets(unfinished / SETS)
    return folder


def write_text(folder: Path, sentences: int, random: np.random.Generator) -> None:
    """Write two files, one of them packed."""
    folder.mkdir()
    frequencies = 1 / (np.arange(FILLERS) + 10)
    fillers = random.choice(FILLERS, (sentences, 5), p=frequencies / frequencies.sum())
    around = random.integers(0, OF_EACH, (sentences, 4))
    items, roles = random.integers(0, ITEMS, sentences), random.integers(0, ROLES, sentences)
    lines = []
    for number in range(sentences):
        item, role = int(items[number]), int(roles[number])
        words = [made_word("so", item * OF_EACH + int(place)) for place in around[number, :2]]
        words += [made_word("ti", role * OF_EACH + int(place)) for place in around[number, 2:]]
        words += [made_word("u", int(place)) for place in fillers[number]]
        words = [words[place] for place in random.permutation(len(words))]
        words.insert(len(words) // 2, item_word(item, role))
        if number % SENTENCES_OF_AN_ARTICLE == 0:
            lines.append(f"={number // SENTENCES_OF_AN_ARTICLE}\tarticle")
        lines.append(" ".join(words))
    half = len(lines) // 2
    (folder / "first.txt").write_text("\n".join(lines[:half]) + "\n", encoding="utf-8")
    with lzma.open(folder / "second.txt.xz", "wt", encoding="utf-8", preset=0) as file:
        file.write("\n".join(lines[half:]) + "\n")


def write_sets(folder: Path) -> None:
    """Write analogies as Google and MSR have them, and similarities: the same item, the same role, neither."""
    (folder / SIMILARITIES).mkdir(parents=True)
    google, msr, pairs = [": same-item"], [], []
    for one, other in permutations(range(0, ROLES, 2), 2):
        for item in range(0, ITEMS, 2):
            there = (item + 7) % ITEMS
            four = [item_word(item, one), item_word(item, other), item_word(there, one), item_word(there, other)]
            google.append(" ".join(four))
            msr.append(" ".join([*four[:3], "ITEM", four[3]]))
            pairs.append(f"{four[0]}\t{four[1]}\t2")
            pairs.append(f"{four[0]}\t{four[3]}\t0")
    (folder / GOOGLE).write_text("\n".join(google) + "\n", encoding="utf-8")
    (folder / MSR).write_text("\n".join(msr) + "\n", encoding="utf-8")
    (folder / SIMILARITIES / "EN-MADE.txt").write_text("\n".join(pairs) + "\n", encoding="utf-8")
