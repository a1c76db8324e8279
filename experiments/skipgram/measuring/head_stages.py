"""Stages that train our output layers: one each on the whole text, all of them with several seeds on a smaller one."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import manyclass.torch as mct
from experiments.frame.records import Records
from experiments.frame.stages import Run
from experiments.skipgram.chosen_rates import chosen_rates
from experiments.skipgram.heads.ablations import ABLATIONS
from experiments.skipgram.heads.contestants import CONTESTANTS, Contestant
from experiments.skipgram.heads.learning import Budget, Learner, vectors_of
from experiments.skipgram.heads.network import SkipGram
from experiments.skipgram.measuring.task import Task, open_smaller_task, open_task
from experiments.skipgram.plan import Plan
from experiments.skipgram.vectors.vector_files import save_vectors
from manyclass.errors import DivergedError


def vectors_file(run: Run, name: str) -> Path:
    """Return where the vectors of an output layer are saved."""
    return run.cache / "vectors" / f"{name.replace(' ', '-')}.bin"


def train_head(run: Run, head: str, plan: Plan) -> None:
    """Train one output layer for its CPU seconds, test it on everything and save its vectors."""
    if run.records.done(stage=head, kind="result"):
        return
    task = open_task(run, plan)
    if reason := reason_to_leave_out(task, head):
        run.records.write(stage=head, kind="left_out", head=head, reason=reason)
        return
    learn_and_save(run, head, task, head, with_chosen_rate(run.records, head), plan.evaluations)


def learn_and_save(run: Run, stage: str, task: Task, head: str, contestant: Contestant, evaluations: int) -> None:
    """Train an output layer for its CPU seconds as the result of a stage, and save its vectors under that name."""
    budget = Budget(seconds=task.plan.seconds, evaluations=evaluations)
    network, found = learned(run, task, stage, contestant, budget, run.options.seed)
    file = vectors_file(run, stage)
    file.parent.mkdir(exist_ok=True)
    save_vectors(file, task.corpus.words, vectors_of(network))
    run.records.write(stage=stage, kind="result", head=head, **found)
    checkpoint_of(run, stage, run.options.seed).unlink(missing_ok=True)


def reason_to_leave_out(task: Task, head: str) -> str:
    """Return why an output layer cannot learn this text, or nothing."""
    if head != "full" or len(task.corpus.words) <= task.plan.full_softmax:
        return ""
    return f"softmax over all {len(task.corpus.words):,} words would see next to nothing of the text in this time"


def with_chosen_rate(records: Records, head: str) -> Contestant:
    """Return an output layer with the rate that was chosen for it, or the usual one."""
    return replace(CONTESTANTS[head], rate=chosen_rates(records).get(head, CONTESTANTS[head].rate))


def train_seeds(run: Run, heads: list[str], plan: Plan) -> None:
    """Train every output layer with several seeds on a smaller vocabulary, where full softmax can take part."""
    task, budget = open_smaller_task(run, plan), Budget(seconds=plan.seeds_seconds)
    for seed in plan.seeds:
        for head in heads:
            record_learned(run, "seeds", task, head, with_chosen_rate(run.records, head), budget, seed)


def train_ablations(run: Run, plan: Plan) -> None:
    """Train every ablation on the smaller vocabulary, where an index that every word asks leaves time for many words.

    On the same words as the one it is compared with but for the one about their number.
    """
    task, seed = open_smaller_task(run, plan), run.options.seed
    for name, ablation in ABLATIONS.items():
        words = plan.few_words if ablation.few else plan.ablation_words
        contestant = ablation.contestant(with_chosen_rate(run.records, "candidate").rate)
        told = {"question": ablation.question, "role": ablation.role, "beside": ablation.beside}
        record_learned(run, "ablations", task, name, contestant, Budget(words=words), seed, **told)


def record_learned(
    run: Run, stage: str, task: Task, name: str, contestant: Contestant, budget: Budget, seed: int, **told: str
) -> None:
    """Train one of a stage's runs, unless it is done; one that diverges is recorded as such, and the others go on."""
    if run.records.done(stage=stage, kind="result", head=name, seed=seed):
        return
    try:
        _, found = learned(run, task, name, contestant, budget, seed, f"{stage}-")
        run.records.write(stage=stage, kind="result", head=name, **told, **found)
    except DivergedError as error:
        run.records.write(stage=stage, kind="diverged", head=name, seed=seed, reason=str(error))
    checkpoint_of(run, f"{stage}-{name}", seed).unlink(missing_ok=True)


def learned(
    run: Run, task: Task, name: str, contestant: Contestant, budget: Budget, seed: int, prefix: str = ""
) -> tuple[SkipGram, dict[str, Any]]:
    """Return the trained network and what a record tells of it."""
    learner = trained(run, task, f"{prefix}{name}", contestant, budget, seed)
    network, progress = learner.network, learner.progress
    told: dict[str, Any] = {
        "seed": seed,
        "classes": len(task.corpus.words),
        "features": task.plan.features,
        "budget": budget.total,
    }
    told |= {"rate": contestant.rate, **progress.totals(), "curve": progress.curve}
    return network, told | task.tests.all(network.log_probs, vectors_of(network))


def trained(run: Run, task: Task, name: str, contestant: Contestant, budget: Budget, seed: int) -> Learner:
    """Return a learner that has used up its budget; a killed run goes on from its checkpoint."""
    torch.set_num_threads(run.options.threads)

    def look(network: SkipGram) -> dict[str, Any]:
        return task.tests.some(network.log_probs, vectors_of(network))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mct.ApproximationWarning)  # a quick run has few words to choose from
        checkpoint = checkpoint_of(run, name, seed)
        learner = Learner(contestant, task.examples(seed), task.frequencies, task.plan.features, seed, checkpoint)
        with run.progress(budget.total, budget.unit) as show:
            learner.learn(budget, look, lambda done, text: show(done, f"{name}, {text}"))
    return learner


def checkpoint_of(run: Run, name: str, seed: int) -> Path:
    """Return where a run keeps how far it has come."""
    return run.cache / f"{name.replace(' ', '-')}-{seed}.safetensors"
