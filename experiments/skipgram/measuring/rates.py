"""The stage that chooses learning rates: for every output layer from the same few, on validation articles.

Each rate gets the same CPU seconds; the one with the highest average precision on words of validation articles is
chosen. The tests are on other articles. A layer that cannot learn the whole vocabulary tries them on the smaller one.
"""

from dataclasses import replace

from experiments.frame.stages import Run
from experiments.skipgram.chosen_rates import chosen_rates
from experiments.skipgram.heads.contestants import CONTESTANTS, Contestant
from experiments.skipgram.heads.learning import Budget
from experiments.skipgram.measuring.head_stages import learn_and_save, reason_to_leave_out, trained
from experiments.skipgram.measuring.task import Task, open_smaller_task, open_task
from experiments.skipgram.names import falling
from experiments.skipgram.plan import Plan
from manyclass.errors import DivergedError


def try_rates(run: Run, heads: list[str], plan: Plan) -> None:
    """Try every rate that is not done with every output layer."""
    whole = open_task(run, plan)
    for head in heads:
        task = open_smaller_task(run, plan) if reason_to_leave_out(whole, head) else whole
        try_rates_of(run, "rates", task, head, CONTESTANTS[head], plan.rates)


def try_rates_of(run: Run, stage: str, task: Task, head: str, contestant: Contestant, rates: tuple[float, ...]) -> None:
    """Try every rate that a stage has not tried with one output layer."""
    classes, budget = len(task.corpus.words), Budget(seconds=task.plan.rates_seconds, evaluations=0)
    for rate in rates:
        key = {"stage": stage, "kind": "rate", "head": head, "rate": rate}
        if run.records.done(**key):
            continue
        try:
            tried = replace(contestant, rate=rate)
            learner = trained(run, task, f"{stage}-{head}-{rate:g}", tried, budget, run.options.seed)
        except DivergedError as error:  # a rate that is too high is no reason to stop
            run.records.write(**key, average_precision=0.0, reason=str(error), classes=classes)
            continue
        found = task.tests.to_choose_by(learner.network.log_probs)
        run.records.write(**key, **found, **learner.progress.totals(), classes=classes)


def train_falling(run: Run, head: str, plan: Plan) -> None:
    """Choose the rate of one output layer once more, where it falls, and train it like that."""
    stage, contestant = falling(head), replace(CONTESTANTS[head], falls=True)
    if run.records.done(stage=stage, kind="result"):
        return
    task = open_task(run, plan)
    try_rates_of(run, stage, task, head, contestant, plan.falling_rates)
    best = replace(contestant, rate=chosen_rates(run.records, stage)[head])
    learn_and_save(run, stage, task, head, best, evaluations=0)  # on the way, a rate that is yet to fall tells little
