"""What explains that the paper's vectors failed at analogies? Each suspicion as a change that could refute it.

Each learns the same words in the same order as what it is compared with, and differs from it in one thing. If a
suspicion is right, its change costs analogies; if the change costs nothing, it is refuted.
"""

from dataclasses import dataclass
from typing import Any

import manyclass.torch as mct
from experiments.skipgram.heads.contestants import CONTESTANTS, Contestant, Frequencies, Make, candidate, sampled

FREQUENT = 1000  # words that are the text's most frequent ones
OWN_CANDIDATES = 100


def told_nothing(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """The candidate head as it comes, which does not know how often words occur."""
    return mct.CandidateSoftmax(features, len(words.counts), **settings)


def only_hard(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """The candidate head without its random tail: negatives are hard words and the batch's other neighbours."""
    return mct.CandidateSoftmax(features, len(words.counts), tail=0, prior=words.prior(), **settings)


def own_hard(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """Each word's own hard negatives alone, as in the paper, but found by an index that finds them."""
    own: dict[str, Any] = {"shared": False, "candidates": OWN_CANDIDATES, "tail": 0}
    return mct.CandidateSoftmax(features, len(words.counts), prior=words.prior(), **own, **settings)


def own_hard_and_tail(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """The same with a random tail that stands for all other words."""
    own: dict[str, Any] = {"shared": False, "candidates": OWN_CANDIDATES, "tail_sampler": words.noise()}
    return mct.CandidateSoftmax(features, len(words.counts), prior=words.prior(), **own, **settings)


def no_frequent_negatives(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """Sampled softmax that never draws one of the most frequent words: they are only ever pulled nearer."""
    noise = words.noise()
    noise[: min(FREQUENT, len(noise) // 4)] = 0
    return mct.SampledSoftmax(features, len(words.counts), sampler=noise, prior=words.prior(), **settings)


@dataclass(frozen=True)
class Ablation:
    """A changed layer. question: the suspicion; beside: what it is compared with; few: it learns fewer words.

    Layers that ask an index for every word are slow: they learn few words, and so does what they are compared with.
    """

    question: str
    make: Make
    beside: str = ""
    few: bool = False

    @property
    def contestant(self) -> Contestant:
        """The layer, with the learning rate of the candidate head."""
        return Contestant(self.make, CONTESTANTS["candidate"].rate)


ABLATIONS = {
    "candidate": Ablation("nothing is changed", candidate),
    "told nothing": Ablation("must it know how often words occur?", told_nothing, "candidate"),
    "few examples": Ablation("too few examples?", candidate, "candidate", few=True),
    "only hard": Ablation("only hard negatives, shared by a batch?", only_hard, "candidate"),
    "own hard": Ablation("only each word's own hard negatives?", own_hard, "few examples", few=True),
    "own hard and tail": Ablation("does a random tail repair that?", own_hard_and_tail, "few examples", few=True),
    "sampled": Ablation("random negatives alone", sampled, "candidate"),
    "no frequent negatives": Ablation("frequent words missing from the negatives?", no_frequent_negatives, "sampled"),
}
