"""Stages that train our output layers: one each on the whole text, all of them with several seeds on a smaller one."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import manyclass.torch as mct
from experiments.frame.stages import Run
from experiments.skipgram.heads.ablations import ABLATIONS
from experiments.skipgram.heads.contestants import CONTESTANTS, Contestant
from experiments.skipgram.heads.learning import Budget, Learner, vectors_of
from experiments.skipgram.heads.network import SkipGram
from experiments.skipgram.measuring.task import Task, open_task
from experiments.skipgram.plan import Plan
from experiments.skipgram.vectors.vector_files import save_vectors


def vectors_file(run: Run, name: str) -> Path:
    """Return where the vectors of an output layer are saved."""
    return run.cache / "vectors" / f"{name.replace(' ', '-')}.bin"


def train_head(run: Run, head: str, plan: Plan) -> None:
    """Train one output layer for its CPU seconds, test it on everything and save its vectors."""
    if run.records.done(stage=head, kind="result"):
        return
    task = open_task(run, plan)
    if head == "full" and len(task.corpus.words) > plan.full_softmax:
        reason = f"softmax over all {len(task.corpus.words):,} words would see next to nothing of the text in this time"
        run.records.write(stage=head, kind="left_out", head=head, reason=reason)
        return
    budget = Budget(seconds=plan.seconds, evaluations=plan.evaluations)
    network, found = learned(run, task, head, CONTESTANTS[head], budget, run.options.seed)
    file = vectors_file(run, head)
    file.parent.mkdir(exist_ok=True)
    save_vectors(file, task.corpus.words, vectors_of(network))
    run.records.write(stage=head, kind="result", head=head, **found)
    checkpoint_of(run, head, run.options.seed).unlink(missing_ok=True)


def train_seeds(run: Run, heads: list[str], plan: Plan) -> None:
    """Train every output layer with several seeds on a smaller vocabulary, where full softmax can take part."""
    small = replace(plan.corpus, most_words=plan.seeds_words)
    task = open_task(run, replace(plan, corpus=small))
    for seed in plan.seeds:
        for head in heads:
            if run.records.done(stage="seeds", kind="result", head=head, seed=seed):
                continue
            _, found = learned(run, task, head, CONTESTANTS[head], Budget(seconds=plan.seeds_seconds), seed, "seeds-")
            run.records.write(stage="seeds", kind="result", head=head, **found)
            checkpoint_of(run, f"seeds-{head}", seed).unlink(missing_ok=True)


def train_ablations(run: Run, plan: Plan) -> None:
    """Train every ablation, on the same words as the one it is compared with but for the one about their number."""
    task, seed = open_task(run, plan), run.options.seed
    for name, ablation in ABLATIONS.items():
        if run.records.done(stage="ablations", kind="result", head=name):
            continue
        words = plan.few_words if ablation.few else plan.ablation_words
        _, found = learned(run, task, name, ablation.contestant, Budget(words=words), seed, "ablations-")
        told = {"question": ablation.question, "beside": ablation.beside}
        run.records.write(stage="ablations", kind="result", head=name, **told, **found)
        checkpoint_of(run, f"ablations-{name}", seed).unlink(missing_ok=True)


def learned(
    run: Run, task: Task, name: str, contestant: Contestant, budget: Budget, seed: int, prefix: str = ""
) -> tuple[SkipGram, dict[str, Any]]:
    """Return the trained network and what a record tells of it; a killed run goes on from its checkpoint."""
    torch.set_num_threads(run.options.threads)
    plan, tests = task.plan, task.tests

    def look(network: SkipGram) -> dict[str, Any]:
        return tests.some(network.log_probs, vectors_of(network))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mct.ApproximationWarning)  # a quick run has few words to choose from
        checkpoint = checkpoint_of(run, f"{prefix}{name}", seed)
        learner = Learner(contestant, task.examples(seed), task.frequencies, plan.features, seed, checkpoint)
        with run.progress(budget.total, budget.unit) as show:
            progress = learner.learn(budget, look, lambda done, text: show(done, f"{name}, {text}"))
    network = learner.network
    told = {"seed": seed, "classes": len(task.corpus.words), "features": plan.features, "budget": budget.total}
    return network, told | progress.totals() | {"curve": progress.curve} | tests.all(
        network.log_probs, vectors_of(network)
    )


def checkpoint_of(run: Run, name: str, seed: int) -> Path:
    """Return where a run keeps how far it has come."""
    return run.cache / f"{name.replace(' ', '-')}-{seed}.safetensors"
