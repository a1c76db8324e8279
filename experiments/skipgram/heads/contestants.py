"""The output layers that are compared, by the names that records and figures use, and how each is made.

All of them have the same input vectors, text, window, order and optimizer: Adagrad on the rows that are touched, which
needs no schedule that knows the end. The learning rate of each is chosen from the same few on validation articles
(measuring/rates.py); before that stage has run, all have the same one. Some learn once more with a rate that falls to
nothing at the end, as those of word2vec's program and of the peers do.

Those that draw random words draw equally many, for the whole batch. Candidate softmax computes neighbours for their own
words alone: a batch of running text has some two thousand of them, and as negatives of all its other words they took
three quarters of the time, and taught next to nothing beside the random ones.
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


RATE = 0.1  # where none was chosen
DRAWN = 256  # random words that a batch shares


@dataclass(frozen=True)
class Contestant:
    """An output layer: how it is made, and its learning rate. every_class: moves all rows in each step.

    falls: its rate falls in a straight line to next to nothing.
    """

    make: Make
    rate: float = RATE
    every_class: bool = False
    falls: bool = False


def full(features: int, words: Frequencies, _: dict[str, Any]) -> mct.OutputHead:
    """Softmax over all words, exact."""
    return mct.FullSoftmax(features, len(words.counts), prior=words.prior())


def hierarchical(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """A Huffman tree over the counts, as word2vec has it."""
    return mct.HierarchicalSoftmax(features, len(words.counts), words.counts, **settings)


def negative(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """Word2vec's negative sampling, with negatives that a batch shares."""
    return NegativeSampling(features, len(words.counts), words.counts, samples=DRAWN, **settings)


def sampled(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """Softmax over random words, drawn by frequency and corrected for it."""
    drawn: dict[str, Any] = {"samples": DRAWN, "sampler": words.noise()}
    return mct.SampledSoftmax(features, len(words.counts), **drawn, prior=words.prior(), **settings)


def candidate(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """The library's head, told how often words occur, as sampled softmax is, and that words have many neighbours."""
    drawn: dict[str, Any] = {"tail": DRAWN, "tail_sampler": words.noise(), "targets_for_all": False}
    return mct.CandidateSoftmax(features, len(words.counts), **drawn, prior=words.prior(), **settings)


def wta(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """The paper's layer, literally: each word's own candidates and nothing else."""
    return mct.WTASoftmax(features, len(words.counts), **settings)


CONTESTANTS = {
    "candidate": Contestant(candidate),
    "hierarchical": Contestant(hierarchical),
    "negative": Contestant(negative),
    "sampled": Contestant(sampled),
    "full": Contestant(full, every_class=True),
    "wta": Contestant(wta),
}


def made(contestant: Contestant, features: int, words: Frequencies, seed: int) -> mct.OutputHead:
    """Return a new output layer; its rows move inside backward, wherever not every class has a gradient."""
    torch.manual_seed(seed)
    if contestant.every_class:
        return contestant.make(features, words, {})
    optimizer = partial(mct.RowAdagrad, lr=contestant.rate)
    return contestant.make(features, words, {"row_update": "fused", "row_optimizer": optimizer})
