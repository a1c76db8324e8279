"""Everything that learned words are tested on, the same for our output layers and for peers."""

from dataclasses import dataclass
from typing import Any

from experiments.skipgram.evaluation.analogies import Floats
from experiments.skipgram.evaluation.prediction import HeldOut, LogProbs, evaluate, unigram
from experiments.skipgram.evaluation.word_sets import WordSets
from experiments.skipgram.plan import Plan
from experiments.skipgram.text.corpus import Corpus


@dataclass(frozen=True)
class Tests:
    """Held-out pairs with frequent words left out as in training, with all words, and sets of questions.

    sets: None where there are none on this machine.
    """

    words: list[str]
    subsampled: HeldOut
    all_words: HeldOut
    on_the_way: HeldOut
    validation: HeldOut
    sets: WordSets | None
    questions_every: int

    @classmethod
    def of(cls, corpus: Corpus, sets: WordSets | None, plan: Plan) -> "Tests":
        """Return the tests of a corpus: always the same pairs, whatever the seed of a run."""

        def pairs(words: int, sample: float, validation: bool = False) -> HeldOut:
            return HeldOut.of(
                corpus, words, window=plan.window, sample=sample, trained=plan.sample, validation=validation
            )

        return cls(
            corpus.words, pairs(plan.tests, plan.sample), pairs(plan.tests, 0),
            pairs(plan.tests_on_the_way, plan.sample), pairs(plan.rates_tests, plan.sample, True), sets,
            plan.questions_every,
        )  # fmt: skip

    def some(self, log_probs: LogProbs, vectors: Floats) -> dict[str, Any]:
        """Return what a look on the way gives: precision@10 and analogies, from fewer pairs and questions."""
        found = evaluate(log_probs, self.on_the_way)
        told: dict[str, Any] = {"precision_10": found["precision"]["10"], "perplexity": found["perplexity"]}
        if self.sets is not None:
            told["analogies"] = self.sets.some(self.questions_every).ask(vectors, self.words)["google"]["all"]["right"]
        return told

    def to_choose_by(self, log_probs: LogProbs) -> dict[str, Any]:
        """Return what settings are chosen by: precision over validation articles, which no other test looks at."""
        found = evaluate(log_probs, self.validation)
        return {"average_precision": found["average_precision"], "precision_10": found["precision"]["10"]}

    def all(self, log_probs: LogProbs, vectors: Floats) -> dict[str, Any]:
        """Return every measure."""
        asked = {} if self.sets is None else self.sets.ask(vectors, self.words)
        return {
            "prediction": evaluate(log_probs, self.subsampled),
            "prediction_all_words": evaluate(log_probs, self.all_words),
            **asked,
        }

    def guessed(self, corpus: Corpus, trained: float) -> dict[str, Any]:
        """Return what the most frequent words give, whatever the word."""
        guess = unigram(corpus, trained)
        return {"prediction": evaluate(guess, self.subsampled), "prediction_all_words": evaluate(guess, self.all_words)}
