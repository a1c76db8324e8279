"""Score against steps: does the candidate head learn what full softmax learns, on the tasks themselves?

Same data, same order, same steps, same rate, which falls exponentially to a tenth. Every run has one thread, and as
many run at a time, in processes of their own, as there are threads: they finish sooner than one after the other.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from experiments.datasets.missing import MissingDataError
from experiments.frame.stages import Run
from experiments.heads.apart import run_apart
from experiments.heads.same_seconds import tell_missing
from experiments.heads.sizes import TaskSizes, per_step_stage
from experiments.heads.tasks import Where, open_task
from experiments.heads.tasks.curve import Budget, learn

HEADS = ("full", "candidate")
DECAY = 0.1  # the learning rate's share that is left at the end


def run_per_step(run: Run, task: str, sizes: TaskSizes, seeds: Sequence[int], heads: Iterable[str]) -> None:
    """Write a record per head and seed that the records lack."""
    where = Where(run.options.quick, run.options.data)
    stage = per_step_stage(task)
    try:
        open_task(task, sizes, where, seeds[0])  # into the cache, or missing, before a process needs it
    except MissingDataError as missing:
        tell_missing(run, stage, missing)
        return
    key = {"stage": stage, "kind": "result", "task": task, "classes": sizes.classes, "budget_steps": sizes.steps,
           "batch": sizes.batch, "rate": sizes.rate}  # fmt: skip
    plans = [(head, seed) for seed in seeds for head in HEADS if head in heads]
    left = [(head, seed) for head, seed in plans if not run.records.done(**key, head=head, seed=seed)]
    with run.progress(len(left), "runs") as show:
        calls = [partial(learn_steps, task, head, seed, sizes, where) for head, seed in left]
        done = run_apart(calls, threads=1, at_once=run.options.threads, fresh=False)
        for completed, (number, found) in enumerate(done, start=1):
            head, seed = left[number]
            run.records.write(**key, head=head, seed=seed, tests=sizes.tests, **found)
            show(completed, f"{head}: {found['score']:.3f}")


def learn_steps(name: str, head: str, seed: int, sizes: TaskSizes, where: Where) -> dict[str, Any]:
    """Return curve and score at the end of one run."""
    task = open_task(name, sizes, where, seed)
    budget = Budget(steps=sizes.steps, decay=DECAY)
    _, found = learn(task, head, sizes.rate, seed, sizes.batch, budget, task.test(sizes.tests))
    return {**found, "score": found["curve"][-1][2], "metric": next(iter(task.metrics().metrics))}
