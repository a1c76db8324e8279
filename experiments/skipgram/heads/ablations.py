"""What explains that the paper's vectors failed at analogies? Each suspicion as a change that could refute it.

Each learns the same words in the same order as what it is compared with, and differs from it in one thing. If a
suspicion is right, its change costs analogies; if the change costs next to nothing, it is refuted. A repair is compared
with what it repairs.
"""

from dataclasses import dataclass
from typing import Any, Literal

import manyclass.torch as mct
from experiments.skipgram.heads.contestants import DRAWN, RATE, Contestant, Frequencies, Make, candidate, sampled

FREQUENT = 1000  # words that are the text's most frequent ones
OWN_CANDIDATES = 100
ALWAYS: dict[str, Any] = {"mined_examples": 32, "meter_every": 0}  # looked up in each step, whether or not that pays


def told_nothing(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """The candidate head as it comes, which does not know how often words occur."""
    return mct.CandidateSoftmax(features, len(words.counts), targets_for_all=False, **settings)


def targets_for_all(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """The candidate head with the neighbours of all words of a batch as negatives of each other."""
    drawn: dict[str, Any] = {"tail": DRAWN, "tail_sampler": words.noise()}
    return mct.CandidateSoftmax(features, len(words.counts), **drawn, prior=words.prior(), **settings)


def only_hard(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """Negatives that a batch shares are hard ones, looked up for some of its words in each step, and no others."""
    hard: dict[str, Any] = {"tail": 0, "targets_for_all": False, **ALWAYS}
    return mct.CandidateSoftmax(features, len(words.counts), **hard, prior=words.prior(), **settings)


def hard_and_tail(features: int, words: Frequencies, settings: dict[str, Any]) -> mct.OutputHead:
    """The same hard negatives and random ones."""
    drawn: dict[str, Any] = {"tail": DRAWN, "tail_sampler": words.noise(), "targets_for_all": False, **ALWAYS}
    return mct.CandidateSoftmax(features, len(words.counts), **drawn, prior=words.prior(), **settings)


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
    drawn: dict[str, Any] = {"samples": DRAWN, "sampler": noise}
    return mct.SampledSoftmax(features, len(words.counts), **drawn, prior=words.prior(), **settings)


@dataclass(frozen=True)
class Ablation:
    """A changed layer. question: what it answers; beside: what it is compared with; few: it learns fewer words.

    role: what it is changed for. "suspicion": it may explain the paper's failure; "repair": it may mend that;
    "choice": one of ours, which explains nothing; "reference": nothing is changed.
    Layers that ask an index for every word are slow: they learn few words, and so does what they are compared with.
    """

    question: str
    make: Make
    role: Literal["reference", "suspicion", "repair", "choice"]
    beside: str = ""
    few: bool = False

    def contestant(self, rate: float = RATE) -> Contestant:
        """Return the layer with a learning rate, that of the candidate head."""
        return Contestant(self.make, rate)


ABLATIONS = {
    "candidate": Ablation("nothing is changed", candidate, "reference"),
    "told nothing": Ablation("must it know how often words occur?", told_nothing, "choice", "candidate"),
    "targets for all": Ablation(
        "are the batch's other neighbours good negatives?", targets_for_all, "choice", "candidate"
    ),
    "few examples": Ablation("too few examples?", candidate, "suspicion", "candidate", few=True),
    "only hard": Ablation("only hard negatives, shared by a batch?", only_hard, "suspicion", "candidate"),
    "hard and tail": Ablation("does a random tail repair that?", hard_and_tail, "repair", "only hard"),
    "own hard": Ablation("only each word's own hard negatives?", own_hard, "suspicion", "few examples", few=True),
    "own hard and tail": Ablation("does a random tail repair that?", own_hard_and_tail, "repair", "own hard", few=True),
    "sampled": Ablation("random negatives alone", sampled, "choice", "candidate"),
    "no frequent negatives": Ablation(
        "frequent words missing from the negatives?", no_frequent_negatives, "suspicion", "sampled"
    ),
}
