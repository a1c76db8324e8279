"""Score against seconds, one task after the other: every head learns for the same seconds, at a rate it was tuned to.

Each head first tries every learning rate for all of the seconds, with seed 0, and is judged by the validation part: a
rate that is best after half of them may be too high for the rest. The best rate then runs with every seed, and every
tenth of the seconds is judged by the test. Every run has one thread, and as many run at a time as there are threads;
one seed of all heads comes after the other, so that a machine that is slower for some minutes is so for all of them.
Who runs beside whom matters: a step of full softmax drives everything else out of the cache that two cores share, and
a light step beside it takes a fifth longer (contestants.py has the order). Each run is one record.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from experiments.datasets.missing import MissingDataError
from experiments.frame.stages import Run
from experiments.heads.apart import run_apart
from experiments.heads.contestants import runs_on
from experiments.heads.sizes import RATE_FACTORS, TaskSizes, seconds_stage
from experiments.heads.tasks import Where, open_task
from experiments.heads.tasks.curve import POINTS, Budget, learn


@dataclass(frozen=True)
class SecondsRun:
    """One run: to choose the learning rate, or with the chosen one."""

    head: str
    rate: float
    seed: int
    tuning: bool

    def key(self, stage: str, sizes: TaskSizes) -> dict[str, Any]:
        """Return by what its record is known."""
        kind = "tuning" if self.tuning else "result"
        common = {"classes": sizes.classes, "batch": sizes.batch, "budget": sizes.seconds}
        return {"stage": stage, "kind": kind, "head": self.head, "rate": self.rate, "seed": self.seed, **common}


def run_same_seconds(run: Run, task: str, sizes: TaskSizes, seeds: Sequence[int], heads: Iterable[str]) -> None:
    """Write the records of a task that are lacking: first the rates that are tried, then the runs."""
    stage, where = seconds_stage(task), Where(run.options.quick, run.options.data)
    try:
        open_task(task, sizes, where, seeds[0])  # into the cache, or missing, before a process needs it
    except MissingDataError as missing:
        tell_missing(run, stage, missing)
        return
    compared = runs_on(heads, full=sizes.full, skewed=sizes.skewed)
    tried = [SecondsRun(head, rate, seeds[0], True) for head in compared for rate in rates(sizes)]
    _run_all(run, task, sizes, tried)
    best = {head: best_rate(run, stage, sizes, [plan for plan in tried if plan.head == head]) for head in compared}
    for seed in seeds:  # each in its turn, so that the same heads run beside each other
        _run_all(run, task, sizes, [SecondsRun(head, best[head], seed, False) for head in compared])


def tell_missing(run: Run, stage: str, missing: MissingDataError) -> None:
    """Say that a task is left out, and record why."""
    run.console.print(f"  left out: {missing}", highlight=False, markup=False)
    record = {"stage": stage, "kind": "missing", "reason": missing.reason, "install": missing.install}
    if not run.records.done(**record):
        run.records.write(**record)


def rates(sizes: TaskSizes) -> list[float]:
    """Return the learning rates that are tried."""
    return [sizes.rate * factor for factor in RATE_FACTORS]


def best_rate(run: Run, stage: str, sizes: TaskSizes, tried: list[SecondsRun]) -> float:
    """Return the rate with which a head did best on the validation part."""
    found = [run.records.select(**plan.key(stage, sizes))[-1] for plan in tried]
    return float(max(found, key=lambda record: record["score"])["rate"])


def _run_all(run: Run, task: str, sizes: TaskSizes, runs: list[SecondsRun]) -> None:
    stage = seconds_stage(task)
    left = [plan for plan in runs if not run.records.done(**plan.key(stage, sizes))]
    where = Where(run.options.quick, run.options.data)
    with run.progress(len(left), "runs") as show:
        calls = [partial(run_one, task, plan, sizes, where) for plan in left]
        done = run_apart(calls, threads=1, at_once=run.options.threads, fresh=False)
        for completed, (number, found) in enumerate(done, start=1):
            plan = left[number]
            run.records.write(**plan.key(stage, sizes), task=task, tests=sizes.tests, **found)
            show(completed, f"{plan.head}, rate {plan.rate:.3g}: {found['score']:.3f} after {found['steps']:,} steps")


def run_one(name: str, plan: SecondsRun, sizes: TaskSizes, where: Where) -> dict[str, Any]:
    """Return curve and score at the end of one run, and all metrics over what else its end is judged by."""
    task = open_task(name, sizes, where, plan.seed, tuning=plan.tuning)
    if plan.tuning:
        examples, points = task.validation(sizes.tests), 1
    else:
        examples, points = task.test(sizes.tests), POINTS
    budget = Budget(seconds=sizes.seconds)
    learner, found = learn(task, plan.head, plan.rate, plan.seed, sizes.batch, budget, examples, points)
    told = {"score": found["curve"][-1][2], "metric": next(iter(task.metrics().metrics))}
    if not plan.tuning and not found["diverged"]:
        told["at_the_end"] = {name: learner.scores(tests) for name, tests in task.tests_at_the_end().items()}
    return {**found, **told, "pipeline": getattr(learner.head, "pipeline", None)}
