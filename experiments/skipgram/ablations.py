"""What explains that the paper's vectors failed at analogies? Each suspicion as a change that could refute it.

All learn the same words in the same order, and differ from the candidate head in one thing. If a suspicion is right,
its change costs the analogies; if the change costs nothing, it is refuted. The last two repair the paper's own layer.
"""

from typing import Any

import manyclass.torch as mct
from experiments.skipgram.contestants import CONTESTANTS, Contestant, Frequencies, candidate

FREQUENT = 1000  # words that are the text's most frequent ones
OWN_CANDIDATES = 100


def only_hard(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """The candidate head without its random tail: negatives are hard words and the batch's other neighbours."""
    prior = words.met.round().long()
    return mct.CandidateSoftmax(features, len(words.counts), tail=0, prior=prior, **settings)


def own_hard(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """Each word's own hard negatives alone, as in the paper, but found by an index that finds them."""
    return mct.CandidateSoftmax(
        features, len(words.counts), shared=False, tail=0, candidates=OWN_CANDIDATES, **settings
    )


def own_hard_and_tail(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """The same with a random tail that stands for all other words."""
    return mct.CandidateSoftmax(
        features, len(words.counts), shared=False, candidates=OWN_CANDIDATES, tail_sampler=words.noise(), **settings
    )


def no_frequent_negatives(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """Sampled softmax that never draws one of the most frequent words: they are only ever pulled nearer."""
    noise = words.noise()
    noise[: min(FREQUENT, len(noise) // 4)] = 0
    return mct.SampledSoftmax(features, len(words.counts), sampler=noise, **settings)


def all_negatives(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """Sampled softmax over all words, which the one before is compared with."""
    return mct.SampledSoftmax(features, len(words.counts), sampler=words.noise(), **settings)


RATE = CONTESTANTS["candidate"].rate
ABLATIONS: dict[str, tuple[str, Contestant]] = {  # by name: what is asked, and the layer
    "candidate": ("what they are compared with", Contestant(candidate, RATE)),
    "few examples": ("too few examples?", Contestant(candidate, RATE)),
    "only hard": ("only hard negatives, shared?", Contestant(only_hard, RATE)),
    "own hard": ("only each word's own hard negatives?", Contestant(own_hard, RATE)),
    "own hard and tail": ("does a random tail repair that?", Contestant(own_hard_and_tail, RATE)),
    "sampled": ("random negatives alone", Contestant(all_negatives, RATE)),
    "no frequent negatives": ("frequent words missing from the negatives?", Contestant(no_frequent_negatives, RATE)),
}
SLOW = ("own hard", "own hard and tail")  # have an index to ask for every word
