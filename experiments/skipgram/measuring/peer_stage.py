"""The stages of the peers: each learns for the same CPU seconds; one that is missing or fails is recorded as such."""

from experiments.frame.stages import Run
from experiments.skipgram.measuring.task import open_task
from experiments.skipgram.names import stage_of
from experiments.skipgram.peers.libraries import PEERS, learn_for
from experiments.skipgram.peers.packages import INSTALL
from experiments.skipgram.plan import Plan


def train_peer(run: Run, name: str, plan: Plan) -> None:
    """Train one of them, if that is not done."""
    stage, (library, learn) = stage_of(name), PEERS[name]
    if run.records.done(stage=stage, kind="result"):
        return
    task, threads, seed = open_task(run, plan), run.options.threads, run.options.seed
    try:
        found, read = learn_for(plan.seconds, learn, task.corpus, plan, run.cache, threads, seed)
    except ImportError as missing:
        leave_out(run, "missing", name, f"{library} is not installed ({missing.name}); {INSTALL}")
        return
    except (RuntimeError, ValueError, MemoryError) as error:  # of a library that could not learn this text
        leave_out(run, "left_out", name, f"{library} failed: {error}")
        return
    words = round(read * float(task.frequencies.met.sum()) / task.corpus.tokens)  # that stay, by the same rule
    vectors, spent = found.vectors.numpy(), {"cpu_seconds": found.cpu_seconds, "seconds": found.seconds, "words": words}
    end = spent | task.tests.some(found.log_probs, vectors)  # by the same few pairs as the curves of our layers
    run.records.write(
        stage=stage, kind="result", head=name, classes=len(task.corpus.words), features=plan.features,
        budget=plan.seconds, read=read, **spent, curve=[end], **task.tests.all(found.log_probs, vectors),
    )  # fmt: skip


def leave_out(run: Run, kind: str, name: str, reason: str) -> None:
    """Record and say why a peer is not there, and how to try it again."""
    run.records.write(stage=stage_of(name), kind=kind, head=name, reason=reason)
    again = f"--resume --again --stage {stage_of(name)} tries it again"
    run.console.print(f"  {name} is left out: {reason}; {again}", highlight=False, markup=False)
