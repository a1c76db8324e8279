"""The stage of the peers: each learns for the same CPU seconds; one that is not installed is recorded as missing."""

from experiments.frame.stages import Run
from experiments.skipgram.peer_packages import INSTALL
from experiments.skipgram.peers import PEERS, learn_for
from experiments.skipgram.plan import Plan
from experiments.skipgram.task import open_task


def train_peers(run: Run, plan: Plan) -> None:
    """Train those that are not done."""
    task = open_task(run, plan)
    for name, (library, learn) in PEERS.items():
        if run.records.done(stage="peers", kind="result", head=name):
            continue
        try:
            found, words = learn_for(
                plan.seconds,
                learn,
                task.corpus,
                plan,
                run.cache,
                run.options.threads,
                run.options.seed,
                plan.corpus.name,
            )
        except ModuleNotFoundError as missing:
            reason = f"{library} is not installed ({missing.name}); {INSTALL}"
            run.records.write(stage="peers", kind="missing", head=name, reason=reason)
            run.console.print(f"  {name} is left out: {reason}", highlight=False, markup=False)
            continue
        tested = task.tests.all(found.log_probs, found.vectors.numpy())
        run.records.write(
            stage="peers", kind="result", head=name, classes=len(task.corpus.words), features=plan.features,
            budget=plan.seconds, cpu_seconds=found.cpu_seconds, seconds=found.seconds, tokens=words, **tested,
        )  # fmt: skip
