"""The stages of the experiment in order."""

from collections.abc import Callable
from pathlib import Path

from experiments.datasets import wordnet
from experiments.frame.needs import Need
from experiments.frame.page import Page
from experiments.frame.records import Records
from experiments.frame.stages import Experiment, Options, Run, Stage
from experiments.heads.sizes import sizes_of


def stages(options: Options) -> list[Stage]:
    """Return the stages in order, with the minutes they take on 2 cores."""
    # torch is loaded when something is to be run, not by `report` and `doctor`
    from experiments.heads import learning, same_seconds, steps, tail
    from experiments.heads.contestants import HEADS

    sizes = sizes_of(options.quick)
    heads = options.heads_among(HEADS)
    learners = [head for head in ("full", "candidate", "wta") if head in heads]
    timed = [name for name in steps.STEP_HEADS if name.partition(", ")[0] in heads]

    def stage(name: str, title: str, full: float, quick: float, run: Callable[[Run], None]) -> Stage:
        # what a title has in brackets is true of the full run only
        return Stage(name, title.partition(" (")[0], quick, run) if options.quick else Stage(name, title, full, run)

    def learn(stage: str, runs: list[learning.LearningRun]) -> Callable[[Run], None]:
        return lambda run: learning.run_learning(run, stage, sizes.learning, runs)

    return [
        stage("steps", "time of a step against classes (16 GB of memory)", 8, 0.15,
              lambda run: steps.run_steps(run, "steps", sizes.steps, timed)),
        stage("paper_setting", "time of a step in the paper's second setting (12 GB)", 4, 0.1,
              lambda run: steps.run_steps(run, "paper_setting", [sizes.paper_setting], timed)),
        stage("learning", "accuracy against steps, beside full softmax", 25, 0.3,
              learn("learning", learning.learning_runs(sizes.learning, learners))),
        stage("momentum", "the same with momentum kept per row", 2, 0.15,
              learn("momentum", learning.momentum_runs(sizes.learning))),
        stage("refresh", "the same with other ways to re-hash", 4, 0.3,
              learn("refresh", learning.refresh_runs(sizes.learning))),
        stage("tail", "bias of loss and gradient against samples of the tail", 1, 0.05,
              lambda run: tail.run_tail(run, sizes.samples, sizes.draws)),
        stage("demo", "accuracy after the same seconds, every head", 14, 0.25,
              lambda run: same_seconds.run_same_seconds(run, sizes.demo, heads)),
    ]  # fmt: skip


def page(records: Records, figures: Path) -> Page:
    """Return the page of the experiment."""
    from experiments.heads.page import make_page

    return make_page(records, figures)


def documents(records: Records) -> dict[str, str]:
    """Return the figures that README and docs give from these records."""
    from experiments.heads.documents import texts

    return texts(records)


def needs() -> list[Need]:
    """Return what WordNet's glosses, one of the tasks, are made from."""
    return wordnet.needs()


EXPERIMENT = Experiment("heads", "Output layers in training: steps, curves, biases", stages, page, needs, documents)
