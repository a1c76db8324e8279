"""Frequent pairs of words as one word: new york → new_york, as word2vec does, so that a text has more classes.

A pair is joined where it occurs much more often than its words would side by side by chance:
(count(a b) - discount) · words / (count(a) · count(b)) > threshold (Mikolov et al. 2013, equation 6).
"""

import numpy as np
import numpy.typing as npt

from experiments.skipgram.text.numbered_text import NumberedText
from manyclass._reference.skip_gram import SEPARATOR

JOINED = "_"
Ids = npt.NDArray[np.int64]


def joined_phrases(text: NumberedText, *, discount: int = 5, threshold: float = 100.0) -> NumberedText:
    """Return the text with frequent pairs joined; where three words could make two pairs, the left one is joined."""
    counts = text.counts()
    keys, times = counted_pairs(text)
    first, second = keys // len(text.names), keys % len(text.names)
    scores = (times - discount) * (counts.sum() / (counts[first].astype(np.float64) * counts[second]))
    phrases = keys[scores > threshold]  # ascending
    starts_pair = _one_of_overlapping(_is_phrase(text, phrases))
    numbers = np.searchsorted(phrases, pair_keys(text)[starts_pair])
    words = np.array(text.words, np.uint32)
    words[np.flatnonzero(starts_pair)] = len(text.names) + numbers
    stays = np.ones(len(words), bool)
    stays[np.flatnonzero(starts_pair) + 1] = False
    names = [JOINED.join((text.names[key // len(text.names)], text.names[key % len(text.names)])) for key in phrases]
    before = np.concatenate([[0], np.cumsum(~stays)])  # words that are gone before each place
    return NumberedText(words[stays], text.starts - before[text.starts], [*text.names, *names])


def pair_keys(text: NumberedText) -> Ids:
    """Return a number for each two words side by side, -1 across a separator."""
    words = text.words.astype(np.int64)
    keys = words[:-1] * len(text.names) + words[1:]
    keys[(words[:-1] == SEPARATOR) | (words[1:] == SEPARATOR)] = -1
    return keys


def counted_pairs(text: NumberedText) -> tuple[Ids, Ids]:
    """Return the distinct pairs, ascending, and how often each occurs; those met once are left out."""
    keys = pair_keys(text)
    keys = np.sort(keys[keys >= 0])
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.zeros(0, np.int64)
    times = np.diff(np.append(begins, len(keys)))
    often = times > 1
    return keys[begins[often]], times[often]


def _is_phrase(text: NumberedText, phrases: Ids) -> npt.NDArray[np.bool_]:
    keys = pair_keys(text)
    places = np.searchsorted(phrases, keys)
    found: npt.NDArray[np.bool_] = (places < len(phrases)) & (np.append(phrases, -2)[places] == keys)
    return found


def _one_of_overlapping(marked: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return every second of marks that follow each other, the first included."""
    places = np.arange(len(marked))
    run_begins = np.maximum.accumulate(np.where(marked & ~np.concatenate([[False], marked[:-1]]), places, 0))
    found: npt.NDArray[np.bool_] = marked & ((places - run_begins) % 2 == 0)
    return found
