"""The stage that chooses learning rates: for every output layer from the same few, on validation articles.

Each rate gets the same CPU seconds; the one with the highest average precision on words of validation articles is
chosen. The tests are on other articles. A layer that cannot learn the whole vocabulary tries them on the smaller one.
"""

from dataclasses import replace

from experiments.frame.stages import Run
from experiments.skipgram.heads.contestants import CONTESTANTS
from experiments.skipgram.heads.learning import Budget
from experiments.skipgram.measuring.head_stages import reason_to_leave_out, trained
from experiments.skipgram.measuring.task import open_smaller_task, open_task
from experiments.skipgram.plan import Plan
from manyclass.errors import DivergedError


def try_rates(run: Run, heads: list[str], plan: Plan) -> None:
    """Try every rate that is not done with every output layer."""
    whole = open_task(run, plan)
    for head in heads:
        task = open_smaller_task(run, plan) if reason_to_leave_out(whole, head) else whole
        classes = len(task.corpus.words)
        for rate in plan.rates:
            if run.records.done(stage="rates", kind="rate", head=head, rate=rate):
                continue
            budget = Budget(seconds=plan.rates_seconds, evaluations=0)
            name = f"rates-{head}-{rate:g}"
            try:
                learner = trained(run, task, name, replace(CONTESTANTS[head], rate=rate), budget, run.options.seed)
            except DivergedError as error:  # a rate that is too high is no reason to stop
                told = {"average_precision": 0.0, "reason": str(error), "classes": classes}
                run.records.write(stage="rates", kind="rate", head=head, rate=rate, **told)
                continue
            told = task.tests.to_choose_by(learner.network.log_probs) | learner.progress.totals() | {"classes": classes}
            run.records.write(stage="rates", kind="rate", head=head, rate=rate, **told)
