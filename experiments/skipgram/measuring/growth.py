"""Time of a step and bytes per word as the vocabulary grows: words drawn as unequally often as in a text, no text."""

import time
import warnings
from typing import Any

import numpy as np
import torch

import manyclass.torch as mct
from experiments.frame.stages import Run
from experiments.skipgram.heads.contestants import CONTESTANTS, Frequencies, made
from experiments.skipgram.heads.network import InputVectors, SkipGram
from experiments.skipgram.plan import Plan
from experiments.skipgram.text.examples import Examples, kept_share
from manyclass.torch.memory_budget import memory_budget

HEADS = ("candidate", "hierarchical", "sampled", "negative")
WARM_UP = 3  # steps that nobody counts


def measure_growth(run: Run, plan: Plan) -> None:
    """Time every head at every vocabulary that is not done."""
    torch.set_num_threads(run.options.threads)
    for words in plan.growth:
        for head in HEADS:
            if not run.records.done(stage="growth", kind="result", head=head, classes=words):
                run.records.write(stage="growth", kind="result", head=head, classes=words,
                                  **timed(head, words, plan, run.options.seed))  # fmt: skip


def timed(head: str, words: int, plan: Plan, seed: int) -> dict[str, Any]:
    """Return milliseconds of a step, words per second, and bytes per word of both layers with their optimizer."""
    examples, frequencies = zipf_text(words, plan, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mct.ApproximationWarning)
        layer = made(CONTESTANTS[head], plan.features, frequencies, seed)
        network = SkipGram(InputVectors(words, plan.features, seed), layer)
        optimizer = mct.RowAdagrad([network.vectors.weight], lr=CONTESTANTS[head].rate)
        learned, cpu, wall = 0, 0.0, 0.0
        for step in range(WARM_UP + plan.growth_steps):
            batch = examples.batch(step)
            started, clock = time.process_time(), time.perf_counter()
            loss = network(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step >= WARM_UP:
                cpu, wall = cpu + time.process_time() - started, wall + time.perf_counter() - clock
                learned += len(batch)
    return {
        "steps": plan.growth_steps, "cpu_ms": 1000 * cpu / plan.growth_steps,
        "step_ms": 1000 * wall / plan.growth_steps,
        "words_per_second": learned / wall, "words_per_cpu_second": learned / cpu,
        "bytes_per_class": bytes_of(head, words, plan) / words, "features": plan.features,
    }  # fmt: skip


def bytes_of(head: str, words: int, plan: Plan) -> float:
    """Return the bytes of the input vectors with their state, and of the head as the library works them out."""
    needs = memory_budget(plan.features, words, optimizer=mct.RowAdagrad, index=head == "candidate")
    return 2 * 4 * words * plan.features + needs.total - needs.step


def zipf_text(words: int, plan: Plan, seed: int) -> tuple[Examples, Frequencies]:
    """Return a text of random words, the r-th as often as 1/(r + 3), enough for all steps."""
    shares = 1 / (np.arange(words) + 3)
    shares /= shares.sum()
    counts = np.maximum(1, np.round(shares * 50 * words)).astype(np.int64)
    size = (WARM_UP + plan.growth_steps + 1) * plan.segments * 64
    places = np.random.default_rng(seed).random(size)
    text = np.searchsorted(np.cumsum(shares), places).clip(max=words - 1).astype(np.uint32)
    keep = kept_share(counts, plan.sample)
    return Examples(text, keep, plan.window, plan.segments, seed=seed), Frequencies.of(counts, plan.sample)
