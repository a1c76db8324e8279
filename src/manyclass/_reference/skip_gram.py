"""The specification of skip-gram's examples: each word of a text with the words around it."""

import numpy as np
import numpy.typing as npt

from manyclass._windows_and_signs import splitmix

SEPARATOR = 0xFFFFFFFF  # stands where a window must not reach across
Words = npt.NDArray[np.uint32]
Ids = npt.NDArray[np.int64]


def skip_gram_examples(
    words: Words, keep: Words, begins: Ids, length: int, window: int, key: int, centres: Ids, neighbours: Ids
) -> int:
    """Write the words at places begin ≤ p < begin + length of each segment that stay and have a neighbour.

    words: word numbers, SEPARATOR between parts. keep: of each word, it stays where the upper 32 bits of its place's
    random number are at most this; the lower bits say how far its window reaches, 1 to `window` words that stay.
    centres (rows,), neighbours (rows, 2·window) in the order of the text, -1 where there is none. Returns how many.
    """
    places = np.arange(1, len(words) + 1, dtype=np.uint64)
    numbers = splitmix(np.uint64(key) + places * np.uint64(0x9E3779B97F4A7C15))
    spans = 1 + ((numbers & np.uint64(0xFFFFFFFF)) * np.uint64(window) >> np.uint64(32)).astype(np.int64)
    separates = words == SEPARATOR
    thresholds = keep[np.where(separates, 0, words)] if len(keep) else np.zeros(len(words), np.uint32)
    stays = separates | ((numbers >> np.uint64(32)) <= thresholds)
    kept = np.flatnonzero(stays)  # places
    made = 0
    for begin in begins.tolist():
        for at in range(*np.searchsorted(kept, [begin, begin + length]).tolist()):
            if separates[kept[at]]:
                continue
            span = int(spans[kept[at]])
            before = _up_to_separator(words[kept[max(0, at - span) : at]][::-1])[::-1]
            found = [*before, *_up_to_separator(words[kept[at + 1 : at + 1 + span]])]
            if found:
                centres[made], neighbours[made] = words[kept[at]], -1
                neighbours[made, : len(found)] = found
                made += 1
    return made


def _up_to_separator(words: Words) -> list[int]:
    """Return the words before the first separator."""
    separators = np.flatnonzero(words == SEPARATOR)
    return [int(word) for word in (words[: separators[0]] if len(separators) else words)]
