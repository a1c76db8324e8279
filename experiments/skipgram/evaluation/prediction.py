"""How well neighbours are told: precision@k over pairs of a word and a neighbour in text that was not learned from.

precision@k is the share of pairs whose neighbour is among the k likeliest words of the whole vocabulary. Average
precision is, of one right answer each, the mean of 1 / rank: the paper's own rows agree with that reading. Perplexity
is that of the neighbours. All of them also by how frequent the neighbour is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.skipgram.text.corpus import Corpus, Counts
from experiments.skipgram.text.examples import Batch, Examples, kept_share
from manyclass.errors import InputError

KS = (1, 3, 5, 10, 20, 50, 100)
BANDS = {"head": 0.5, "torso": 0.9, "tail": 1.0}  # up to which share of all occurrences, the most frequent words first
SCORES_AT_ONCE = 1 << 26
LogProbs = Callable[[Tensor], Tensor]  # of word numbers (n,): log probabilities of every neighbour, (n, words)


@dataclass(frozen=True)
class HeldOut:
    """Pairs to predict. offsets: added to log probabilities learned with frequent words left out, (words,)."""

    batch: Batch
    bands: Tensor  # (words,) the number of each word's band
    offsets: Tensor | None

    @classmethod
    def of(
        cls, corpus: Corpus, words: int, *, window: int, sample: float, trained: float, validation: bool = False
    ) -> "HeldOut":
        """Return about `words` words, spread evenly, with their neighbours.

        validation: from the articles that rates are chosen by, and not from those for tests.
        sample: with frequent words left out as in training with this t; 0: with all. trained: the t of training. A
        model that has seen a word kept in a share of its places takes it for that much rarer; over text with all words
        its probabilities are therefore divided by these shares.
        """
        text = corpus.validation if validation else corpus.held_out
        if not (text < len(corpus.words)).any():
            raise InputError("the text has too few articles to hold one out; give more text, or several files")
        keep = kept_share(corpus.counts, sample)
        examples = Examples(text, keep, window=window, length=min(64, len(text)))
        kept = keep[text[text < len(corpus.words)]].mean()
        segments = max(1, min(len(text) // examples.length, round(words / kept / examples.length)))
        begins = np.linspace(0, len(text) - examples.length, segments).astype(np.int64)
        batch = examples.of_segments(begins)
        if not len(batch):
            raise InputError("no word that is held out has a neighbour; give more text")
        shares = kept_share(corpus.counts, trained) / keep
        offsets = None if (shares == 1).all() else -torch.from_numpy(shares).log().float()
        return cls(batch, torch.from_numpy(bands_of(corpus.counts)), offsets)


def bands_of(counts: Counts) -> Counts:
    """Return 0 for the most frequent words that make half of the text, 1 for the next up to nine tenths, 2 for others.

    counts: falling. The word on the border belongs to the more frequent band.
    """
    before = (np.cumsum(counts) - counts) / counts.sum()
    bands: Counts = np.searchsorted(np.array([*BANDS.values()][:-1]), before, side="right")
    return bands


def evaluate(log_probs: LogProbs, held_out: HeldOut) -> dict[str, Any]:
    """Return all measures over the pairs, as JSON has them."""
    batch, ranks, losses = held_out.batch, [], []
    words = batch.distinct[batch.words]
    step = max(1, SCORES_AT_ONCE // len(held_out.bands))
    for begin in range(0, len(batch), step):
        scores = log_probs(words[begin : begin + step])
        if held_out.offsets is not None:
            scores = (scores + held_out.offsets).log_softmax(1)
        neighbours = batch.neighbours[begin : begin + step]
        ranks.append(ranks_of(scores, neighbours))
        losses.append(-scores.gather(1, neighbours.clamp_min(0)))
    there = batch.neighbours >= 0
    rank, loss, of_band = torch.cat(ranks)[there], torch.cat(losses)[there], held_out.bands[batch.neighbours[there]]
    by_band = {name: measures(rank[of_band == number]) for number, name in enumerate(BANDS)}
    perplexity = float(loss.double().mean().exp())  # infinite where a peer has never met a neighbour
    return measures(rank) | {"perplexity": perplexity if math.isfinite(perplexity) else None, "bands": by_band}


def ranks_of(scores: Tensor, neighbours: Tensor) -> Tensor:
    """Return the rank of each neighbour among all words, from 1 on; of equal ones the lower number is first.

    scores (n, words), neighbours (n, width), -1 where there is none → (n, width), 1 there. Row by row: NumPy counts a
    row that is in the cache a hundred times as fast as torch whole batches.
    """
    found = np.ones(tuple(neighbours.shape), np.int64)
    for ranks, row, own in zip(found, scores.numpy(), neighbours.tolist(), strict=True):
        for place, word in enumerate(own):
            if word >= 0:
                ranks[place] += np.count_nonzero(row > row[word]) + np.count_nonzero(row[:word] == row[word])
    return torch.from_numpy(found)


def measures(ranks: Tensor) -> dict[str, Any]:
    """Return precision@k and average precision of ranks; None of no ranks."""
    if not len(ranks):
        return {"pairs": 0, "precision": {str(k): None for k in KS}, "average_precision": None}
    precision = {str(k): float((ranks <= k).double().mean()) for k in KS}
    return {"pairs": len(ranks), "precision": precision, "average_precision": float((1 / ranks.double()).mean())}


def unigram(corpus: Corpus, trained: float) -> LogProbs:
    """Return what knows no words, only how often each is met in training: the same guess whatever the word."""
    met = torch.from_numpy(corpus.counts * kept_share(corpus.counts, trained))
    shares = (met / met.sum()).log().float()
    return lambda words: shares.expand(len(words), -1)
