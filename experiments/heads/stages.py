"""The stages of the experiment in order."""

from collections.abc import Callable

from experiments.datasets import gowalla, han_layer, pubmed_mesh, wikipedia, wordnet
from experiments.frame.needs import Need
from experiments.frame.stages import Experiment, Options, Run, Stage
from experiments.heads.documents import texts
from experiments.heads.page import make_page
from experiments.heads.sizes import LEARNERS, minutes_of, per_step_stage, seconds_stage, sizes_of


def stages(options: Options) -> list[Stage]:
    """Return the stages in order, with the minutes they take on 2 cores."""
    # torch is loaded when something is to be run, not by `report` and `doctor`
    from experiments.heads import (
        bfloat16,
        learning,
        literal,
        many_labels,
        per_step,
        same_seconds,
        serving,
        steps,
        tail,
        ten_million,
    )
    from experiments.heads.contestants import HEADS, runs_on

    sizes = sizes_of(options.quick)
    heads = options.heads_among(HEADS)
    learners = [head for head in LEARNERS if head in heads]
    timed = [name for name in steps.STEP_HEADS if name.partition(", ")[0] in heads]

    def learn(stage: str, runs: list[learning.LearningRun]) -> Callable[[Run], None]:
        return lambda run: learning.run_learning(run, stage, sizes.learning, runs)

    def in_the_same_seconds(task: str) -> Stage:
        size = sizes.tasks[task]
        compared = runs_on(heads, full=size.full, skewed=size.skewed)
        minutes = minutes_of(size, len(sizes.seeds), len(compared), options.quick)
        return Stage(seconds_stage(task), f"score after the same seconds, task {task}", minutes,
                     lambda run: same_seconds.run_same_seconds(run, task, size, sizes.seeds, heads))  # fmt: skip

    def step_by_step(task: str) -> Stage:
        size = sizes.tasks[task]
        products = 1.4e-10 * size.classes * size.batch * 128 * size.steps  # seconds of full softmax, about
        return Stage(per_step_stage(task), f"score after as many steps as full softmax, task {task}",
                     len(sizes.seeds) * (products + 10) / 60,
                     lambda run: per_step.run_per_step(run, task, size, sizes.seeds, heads))  # fmt: skip

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
        options.stage("bfloat16", "rows of 16 bits: rounded by chance, to nearest, and float32", 12, 0.2,
              lambda run: bfloat16.run_bfloat16(run, sizes.learning)),
        options.stage("ten_million", "ten million classes × 256 in rows of 16 bits (16 GB)", 6, 0.1,
              lambda run: ten_million.run_ten_million(run, sizes.ten_million)),
        options.stage("tail", "bias of loss and gradient against samples of the tail", 1, 0.05,
              lambda run: tail.run_tail(run, sizes.samples, sizes.draws)),
        options.stage("literal", "why the paper's rule learns here and not there", 6, 0.1,
              lambda run: literal.run_literal(run, sizes)),
        *(in_the_same_seconds(task) for task in sizes.tasks),
        *(step_by_step(task) for task, size in sizes.tasks.items() if size.steps),
        options.stage("serving", "a head that is served: queries, threads, changed classes (8 GB)", 2, 0.1,
              lambda run: serving.run_serving(run, sizes.serving, heads)),
        options.stage("many_labels", "precision with many labels, by where the biases start", 25, 0.3,
              many_labels.run_many_labels),
    ]  # fmt: skip


def needs() -> list[Need]:
    """Return the data that its tasks want."""
    return [need for data in (wordnet, han_layer, gowalla, wikipedia, pubmed_mesh) for need in data.needs()]


EXPERIMENT = Experiment(
    "heads",
    "Output layers in training: six tasks per second and per step, step times, biases",
    stages,
    make_page,
    needs,
    texts,
)
