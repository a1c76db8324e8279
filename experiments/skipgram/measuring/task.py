"""Text, tests and sizes of a run, as every stage finds them."""

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from experiments.datasets.missing import MissingDataError
from experiments.datasets.wikipedia import GET as GET_TEXT
from experiments.datasets.wikipedia import VARIABLE as TEXT_VARIABLE
from experiments.frame.stages import Run
from experiments.skipgram.evaluation.made_text import SETS, TEXT, make_small_text
from experiments.skipgram.evaluation.testing import Tests
from experiments.skipgram.evaluation.word_sets import WordSets, read_word_sets, word_sets_folder
from experiments.skipgram.heads.contestants import Frequencies
from experiments.skipgram.plan import Plan
from experiments.skipgram.text.corpus import Corpus, CorpusSettings, make_corpus
from experiments.skipgram.text.examples import Examples, kept_share
from experiments.skipgram.text.numbered_text import Show


@dataclass(frozen=True)
class Task:
    """What a stage works with."""

    corpus: Corpus
    tests: Tests
    plan: Plan

    @cached_property
    def frequencies(self) -> Frequencies:
        """How often words occur, and how often they are met in training."""
        return Frequencies.of(self.corpus.counts, self.plan.sample)

    def examples(self, seed: int) -> Examples:
        """Return the examples to learn from."""
        keep = kept_share(self.corpus.counts, self.plan.sample)
        return Examples(self.corpus.train, keep, self.plan.window, self.plan.segments, seed=seed)


def open_task(run: Run, plan: Plan, settings: CorpusSettings | None = None, show: Show | None = None) -> Task:
    """Return the task of a run; its corpus is made by the first stage that asks for it."""
    settings = plan.corpus if settings is None else settings
    corpus = make_corpus(texts(run, plan), settings, run.cache, show or (lambda done, text: None))
    return Task(corpus, Tests.of(corpus, word_sets(run, plan), plan), replace(plan, corpus=settings))


def open_smaller_task(run: Run, plan: Plan) -> Task:
    """Return the task over the most frequent words alone, where full softmax can take part and an index is quick."""
    return open_task(run, plan, replace(plan.corpus, most_words=plan.seeds_words))


def texts(run: Run, plan: Plan) -> list[Path]:
    """Return the files or folders to learn from: made on the spot, given by --corpus, or those the variable names."""
    if run.options.corpus:
        return list(run.options.corpus)
    if plan.made_sentences:
        return [make_small_text(run.cache, plan.made_sentences, run.options.seed) / TEXT]
    named = os.environ.get(TEXT_VARIABLE)
    if not named:
        raise MissingDataError("no text to learn from", f"give --corpus FILE, or {GET_TEXT}")
    return [Path(named)]


def word_sets(run: Run, plan: Plan) -> WordSets | None:
    """Return what vectors are asked: of the made text, of --data or of the folder the variable names; or nothing."""
    if plan.made_sentences and not run.options.corpus:
        return read_word_sets(make_small_text(run.cache, plan.made_sentences, run.options.seed) / SETS)
    folder = run.options.data or word_sets_folder()
    return None if folder is None else read_word_sets(folder)
