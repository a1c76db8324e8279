"""Other people's skip-gram beside ours: gensim by hierarchical softmax and by negative sampling, and fastText.

They learn the same words with the same window, features and rule for frequent words, on as many threads, for about the
CPU seconds that ours have. Both want to know beforehand how long they will learn, so two short runs tell their pace,
without what they take before they begin, and then they get as much text as they learn in that time. Paces of short and
long runs differ by some percent: what they took is recorded.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from experiments.skipgram.evaluation.prediction import LogProbs
from experiments.skipgram.heads.negative_sampling import NOISE_POWER
from experiments.skipgram.peers.peer_text import peer_text
from experiments.skipgram.peers.tree_probabilities import levels_of, tree_log_probs
from experiments.skipgram.plan import Plan
from experiments.skipgram.text.corpus import Corpus

FASTTEXT_NOISE_POWER = 0.5
FASTTEXT_TRIES = 5
LARGEST = 1e6  # a number of a vector; beyond, something is broken
PACE_SHARE = 0.05  # of the CPU seconds, to measure the pace
MARGIN = 1.03  # rather more time than less


@dataclass(frozen=True)
class Learned:
    """What a peer has learned, and the CPU and clock seconds of learning alone."""

    vectors: Tensor
    log_probs: LogProbs
    cpu_seconds: float
    seconds: float


Learn = Callable[[Path, Corpus, Plan, int, int], Learned]  # file, corpus, plan, threads, seed


def learn_gensim(tree: bool, file: Path, corpus: Corpus, plan: Plan, threads: int, seed: int) -> Learned:
    """Learn with gensim's Word2Vec."""
    from gensim.models import Word2Vec

    model = Word2Vec(
        vector_size=plan.features, window=plan.window, sg=1, hs=int(tree), negative=0 if tree else 5,
        sample=plan.sample, min_count=1, workers=threads, seed=seed + 1,
    )  # fmt: skip
    model.build_vocab(corpus_file=str(file))
    cpu, wall = time.process_time(), time.perf_counter()
    model.train(
        corpus_file=str(file), total_examples=model.corpus_count, total_words=model.corpus_total_words, epochs=1
    )
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    places = [model.wv.key_to_index.get(word, -1) for word in corpus.words]
    vectors = rows_at(model.wv.vectors, places)
    if not tree:
        return Learned(vectors, by_noise(vectors, rows_at(model.syn1neg, places), corpus), cpu, wall)
    known = [word for word in corpus.words if word in model.wv]
    points = [model.wv.get_vecattr(word, "point") for word in known]
    sides = [1.0 - 2.0 * np.asarray(model.wv.get_vecattr(word, "code"), np.float32) for word in known]
    levels, nodes = levels_of(points, sides, len(model.syn1)), torch.from_numpy(model.syn1)
    columns = torch.tensor([number for number, place in enumerate(places) if place >= 0])

    def log_probs(words: Tensor) -> Tensor:
        found = torch.full((len(words), len(corpus.words)), -torch.inf)
        found[:, columns] = tree_log_probs(levels, vectors[words] @ nodes.T, len(known))
        return found

    return Learned(vectors, log_probs, cpu, wall)


def learn_fasttext(file: Path, corpus: Corpus, plan: Plan, threads: int, seed: int) -> Learned:
    """Learn with fastText as it comes, parts of words included; its pace includes that it counts the words once."""
    import fasttext

    settings = {
        "dim": plan.features, "ws": plan.window, "epoch": 1, "minCount": 1, "neg": 5, "t": plan.sample,
        "thread": threads, "verbose": 0, "bucket": max(1000, min(2_000_000, 5 * len(corpus.words))),
    }  # fmt: skip
    for left in reversed(range(FASTTEXT_TRIES)):
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            model = fasttext.train_unsupervised(str(file), model="skipgram", **settings)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            own, outputs = np.stack([model.get_word_vector(word) for word in corpus.words]), model.get_output_matrix()
            if not (np.abs(own) < LARGEST).all() or not (np.abs(outputs) < LARGEST).all():
                raise RuntimeError("its vectors are not finite")
            break
        except RuntimeError:  # this, or "Encountered NaN": now and then, of a text that it learns the next time
            if not left:
                raise
    numbers = {word: number for number, word in enumerate(model.get_words(on_unicode_error="replace"))}
    places = [numbers.get(word, -1) for word in corpus.words]
    vectors = torch.from_numpy(own)
    log_probs = by_noise(vectors, rows_at(outputs, places), corpus, FASTTEXT_NOISE_POWER)
    return Learned(vectors, log_probs, cpu, wall)


PEERS: dict[str, tuple[str, Learn]] = {  # by name: what pip calls the library, and how it learns
    "gensim hierarchical": ("gensim", partial(learn_gensim, True)),
    "gensim negative": ("gensim", partial(learn_gensim, False)),
    "fastText": ("fasttext-numpy2", learn_fasttext),
}


def learn_for(
    seconds: float, learn: Learn, corpus: Corpus, plan: Plan, cache: Path, threads: int, seed: int
) -> tuple[Learned, int]:
    """Return what a peer learns in about so many CPU seconds, by its pace, and how many words it has read."""
    wanted = math.ceil(MARGIN * seconds / pace_of(seconds, learn, corpus, plan, cache, threads, seed))
    file = peer_text(corpus, cache, plan.corpus.name, wanted, seed)
    return learn(file, corpus, plan, threads, seed), wanted


def pace_of(seconds: float, learn: Learn, corpus: Corpus, plan: Plan, cache: Path, threads: int, seed: int) -> float:
    """Return the CPU seconds of a word, from the difference of two runs: what comes before learning is in both."""
    words, before = min(corpus.tokens, 20_000), 0.0
    while True:  # until a run is long enough to tell
        file = peer_text(corpus, cache, plan.corpus.name, words, seed)
        taken = learn(file, corpus, plan, threads, seed).cpu_seconds
        if taken >= PACE_SHARE * seconds or words >= corpus.tokens / 2:
            return max(taken - before, 1e-6) / (words - (words // 4 if before else 0))
        words, before = 4 * words, taken


def rows_at(rows: npt.NDArray[Any], places: list[int]) -> Tensor:
    """Return rows in the order of our words; zeros for a word that a part of the text lacks."""
    chosen = torch.tensor(places)
    return torch.from_numpy(np.asarray(rows, np.float32))[chosen.clamp_min(0)].masked_fill(chosen[:, None] < 0, 0)


def by_noise(vectors: Tensor, outputs: Tensor, corpus: Corpus, power: float = NOISE_POWER) -> LogProbs:
    """Return log probabilities from what negative sampling learns, log ratios to its noise: counts to a power.

    None for words whose output is zero still: the peer has not met them.
    """
    noise = torch.from_numpy(corpus.counts).double() ** power
    log_noise = (noise / noise.sum()).log().float().masked_fill(~outputs.any(1), -torch.inf)  # words it never met
    return lambda words: torch.log_softmax(vectors[words] @ outputs.T + log_noise, 1)
