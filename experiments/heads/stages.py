"""The stages of the experiment in order."""

from collections.abc import Callable

from experiments.datasets import pubmed_mesh, wordnet
from experiments.frame.stages import Experiment, Options, Run, Stage
from experiments.heads.documents import texts
from experiments.heads.page import make_page
from experiments.heads.sizes import sizes_of


def stages(options: Options) -> list[Stage]:
    """Return the stages in order, with the minutes they take on 2 cores."""
    # torch is loaded when something is to be run, not by `report` and `doctor`
    from experiments.heads import learning, many_labels, same_seconds, serving, steps, tail
    from experiments.heads.contestants import HEADS

    sizes = sizes_of(options.quick)
    heads = options.heads_among(HEADS)
    learners = [head for head in ("full", "candidate", "wta") if head in heads]
    timed = [name for name in steps.STEP_HEADS if name.partition(", ")[0] in heads]

    def learn(stage: str, runs: list[learning.LearningRun]) -> Callable[[Run], None]:
        return lambda run: learning.run_learning(run, stage, sizes.learning, runs)

    return [
        options.stage("steps", "time of a step against classes (16 GB of memory)", 8, 0.15,
              lambda run: steps.run_steps(run, "steps", sizes.steps, timed)),
        options.stage("paper_setting", "time of a step in the paper's second setting (12 GB)", 4, 0.1,
              lambda run: steps.run_steps(run, "paper_setting", [sizes.paper_setting], timed)),
        options.stage("learning", "accuracy against steps, beside full softmax", 25, 0.3,
              learn("learning", learning.learning_runs(sizes.learning, learners))),
        options.stage("momentum", "the same with momentum kept per row", 2, 0.15,
              learn("momentum", learning.momentum_runs(sizes.learning))),
        options.stage("refresh", "the same with other ways to re-hash", 4, 0.3,
              learn("refresh", learning.refresh_runs(sizes.learning))),
        options.stage("tail", "bias of loss and gradient against samples of the tail", 1, 0.05,
              lambda run: tail.run_tail(run, sizes.samples, sizes.draws)),
        options.stage("demo", "accuracy after the same seconds, every head", 14, 0.25,
              lambda run: same_seconds.run_same_seconds(run, sizes.demo, heads)),
        options.stage("serving", "a head that is served: queries, threads, changed classes (8 GB)", 2, 0.1,
              lambda run: serving.run_serving(run, sizes.serving, heads)),
        options.stage("many_labels", "precision with many labels, by where the biases start", 25, 0.3,
              many_labels.run_many_labels),
    ]  # fmt: skip


EXPERIMENT = Experiment(
    "heads",
    "Output layers in training: steps, curves, biases",
    stages,
    make_page,
    lambda: [*wordnet.needs(), *pubmed_mesh.needs()],
    texts,
)
