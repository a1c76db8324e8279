"""The stages of the experiment in order."""

from dataclasses import replace
from functools import partial

from experiments.datasets import wikipedia
from experiments.frame.needs import Need
from experiments.frame.stages import Experiment, Options, Run, Stage
from experiments.skipgram import plan as plans
from experiments.skipgram.evaluation import word_sets
from experiments.skipgram.names import FALLING, NAMES, PEER_NAMES, falling, stage_of
from experiments.skipgram.page.documents import texts
from experiments.skipgram.page.page import make_page
from experiments.skipgram.page.tables import results_table
from experiments.skipgram.peers import packages
from experiments.skipgram.plan import Plan


def read_corpus(run: Run, plan: Plan) -> None:
    """Make the corpus, and record what it is and what the most frequent words alone would give."""
    from experiments.skipgram.measuring.task import open_task

    if run.records.done(stage="corpus", kind="corpus"):
        return
    with run.progress(1.0, "of the text") as show:
        task = open_task(run, plan, show=show)
    corpus, sets = task.corpus, task.tests.sets
    run.records.write(stage="corpus", kind="baseline", **task.tests.guessed(corpus, plan.sample))
    run.records.write(
        stage="corpus", kind="corpus", classes=len(corpus.words), tokens=corpus.tokens, min_count=plan.corpus.min_count,
        held_out=int((corpus.held_out < len(corpus.words)).sum()), phrases=plan.corpus.phrases, window=plan.window,
        sample=plan.sample, features=plan.features, made=bool(plan.made_sentences and not run.options.corpus),
        missing_sets=["all"] if sets is None else sets.missing,
    )  # fmt: skip


def train(head: str, plan: Plan, run: Run) -> None:
    """Train one output layer."""
    from experiments.skipgram.measuring.head_stages import train_head

    train_head(run, head, plan)


def train_falling(head: str, plan: Plan, run: Run) -> None:
    """Train one output layer with a rate that falls."""
    from experiments.skipgram.measuring.rates import train_falling

    train_falling(run, head, plan)


def train_peer(peer: str, plan: Plan, run: Run) -> None:
    """Train one of the peers."""
    from experiments.skipgram.measuring.peer_stage import train_peer

    train_peer(run, peer, plan)


def others(stage: str, plan: Plan, heads: list[str], run: Run) -> None:
    """Run one of the other stages; torch is loaded here, not by `report` and `doctor`."""
    from experiments.skipgram.measuring import growth, head_stages, lookup_stage, rates

    calls = {
        "rates": lambda: rates.try_rates(run, heads, plan),
        "lookup": lambda: lookup_stage.ask_vectors(run, heads),
        "ablations": lambda: head_stages.train_ablations(run, plan),
        "growth": lambda: growth.measure_growth(run, plan),
        "seeds": lambda: head_stages.train_seeds(run, heads, plan),
    }
    calls[stage]()


def plan_of(options: Options) -> Plan:
    """Return the sizes of a run, with what the user has chosen of the text."""
    plan = plans.QUICK if options.quick else plans.FULL
    chosen = {"phrases": options.phrases, "min_count": options.min_count}
    settings = {name: value for name, value in chosen.items() if value is not None}
    return replace(plan, corpus=replace(plan.corpus, **settings))


def stages(options: Options) -> list[Stage]:
    """Return the stages in order, with the minutes they take on 2 cores: none of the full run's more than an hour."""
    plan = plan_of(options)
    heads = options.heads_among(NAMES)
    of_one = plan.seconds / 2 / 60  # two cores make two CPU seconds in one
    tests = 0.03 if options.quick else 3.0
    tried = len(heads) * len(plan.rates) * (plan.rates_seconds / 2 / 60 + (0.002 if options.quick else 0.3))

    def stage(name: str, title: str, full: float, quick: float, *after: str) -> Stage:
        return options.stage(name, title, full, quick, partial(others, name, plan, heads), *after)

    return [
        options.stage("corpus", "read the text, number its words (minutes)", 3, 0.1, partial(read_corpus, plan=plan)),
        stage("rates", "choose learning rates on validation articles", tried, tried, "corpus"),
        *(Stage(head, f"learn with {NAMES[head]}", of_one + tests, partial(train, head, plan), ("corpus", "rates"))
          for head in heads),
        *(Stage(falling(head), f"{NAMES[head]} with a rate that falls", of_one + tests + tried / len(heads),
                partial(train_falling, head, plan), ("corpus",)) for head in FALLING if head in heads),
        stage("lookup", "nearest words from saved vectors, through the index", 1, 0.05, heads[0]),
        *(Stage(stage_of(peer), f"{PEER_NAMES[peer]} for the same CPU seconds", of_one * 1.2 + tests,
                partial(train_peer, peer, plan), ("corpus",)) for peer in PEER_NAMES),
        stage("ablations", "what explains the paper's failure at analogies", 20, 0.5, "corpus", "rates"),
        stage("growth", "time of a step and bytes per word as the vocabulary grows (8 GB)", 3, 0.1),
        stage("seeds", "several seeds on a smaller vocabulary", 22, 0.4, "corpus", "rates"),
    ]  # fmt: skip


def needs() -> list[Need]:
    """Return the texts, the sets and the peers."""
    return [*wikipedia.needs(), *word_sets.needs(), *packages.needs()]


EXPERIMENT = Experiment(
    "skipgram", "The paper's second experiment: skip-gram over a whole vocabulary, precision and analogies",
    stages, make_page, needs, texts, results_table,
)  # fmt: skip
