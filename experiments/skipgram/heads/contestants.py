"""The output layers that are compared, by the names that records and figures use, and how each is made.

All of them have the same input vectors, text, window, order and optimizer: Adagrad on the rows that are touched, which
needs no schedule that knows the end. In short runs on a part of Wikipedia a rate of 0.2 did better than 0.05 for the
tree, for negative sampling and for sampled softmax, and better than 0.5 for the candidate head; all have it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import manyclass.torch as mct
from experiments.skipgram.heads.negative_sampling import NOISE_POWER, NegativeSampling
from experiments.skipgram.text.corpus import Counts
from experiments.skipgram.text.examples import kept_share


@dataclass(frozen=True)
class Frequencies:
    """counts: of the words of the text. met: how often each is met in training, where frequent ones are left out."""

    counts: Tensor
    met: Tensor

    @classmethod
    def of(cls, counts: Counts, sample: float) -> "Frequencies":
        """Return both, from the words' counts and the t by which frequent ones are left out."""
        return cls(torch.from_numpy(counts), torch.from_numpy(counts * kept_share(counts, sample)))

    def noise(self) -> Tensor:
        """Return the frequencies that random words are drawn with, as word2vec has it."""
        return (self.met**NOISE_POWER).float()

    def prior(self) -> Tensor:
        """Return counts for the biases of a softmax to start at."""
        return self.met.round().long()


Make = Callable[[int, Frequencies, dict[str, Any]], mct.OutputHead]  # of features, frequencies, and common settings


@dataclass(frozen=True)
class Contestant:
    """An output layer: how it is made, and its learning rate. every_class: moves all rows in each step."""

    make: Make
    rate: float
    every_class: bool = False


def full(features: int, words: Frequencies, _: dict[str, Any]) -> mct.OutputHead:
    """Softmax over all words, exact."""
    return mct.FullSoftmax(features, len(words.counts), prior=words.prior())


def hierarchical(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """A Huffman tree over the counts, as word2vec has it."""
    return mct.HierarchicalSoftmax(features, len(words.counts), words.counts, **settings)


def negative(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """Word2vec's negative sampling, with negatives that a batch shares."""
    return NegativeSampling(features, len(words.counts), words.counts, **settings)


def sampled(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """Softmax over random words, drawn by frequency and corrected for it."""
    return mct.SampledSoftmax(features, len(words.counts), sampler=words.noise(), prior=words.prior(), **settings)


def candidate(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """The library's head, told how often words occur, as sampled softmax is."""
    return mct.CandidateSoftmax(
        features, len(words.counts), tail_sampler=words.noise(), prior=words.prior(), **settings
    )


def wta(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """The paper's layer, literally: each word's own candidates and nothing else."""
    return mct.WTASoftmax(features, len(words.counts), **settings)


CONTESTANTS = {
    "candidate": Contestant(candidate, 0.2),
    "hierarchical": Contestant(hierarchical, 0.2),
    "negative": Contestant(negative, 0.2),
    "sampled": Contestant(sampled, 0.2),
    "full": Contestant(full, 0.2, every_class=True),
    "wta": Contestant(wta, 0.2),
}


def made(contestant: Contestant, features: int, words: Frequencies, seed: int) -> mct.OutputHead:
    """Return a new output layer; its rows move inside backward, wherever not every class has a gradient."""
    torch.manual_seed(seed)
    if contestant.every_class:
        return contestant.make(features, words, {})
    optimizer = partial(mct.RowAdagrad, lr=contestant.rate)
    return contestant.make(features, words, {"row_update": "fused", "row_optimizer": optimizer})
