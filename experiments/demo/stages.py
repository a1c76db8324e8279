"""One stage for each output layer: the same network, data, optimizer and seconds, and its accuracy on new examples."""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from experiments.demo.page import NAMES, documents, make_page, results_table
from experiments.frame.stages import Experiment, Options, Run, Stage

if TYPE_CHECKING:  # torch is loaded when something is to be trained, not by `report` and `doctor`
    from experiments.demo.task import Identification


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes of one run."""

    classes: int = 100_000
    features: int = 64
    hidden: int = 128  # width of the layer below the classes
    skew: float = 1.0  # classes are as unequal as words: a few are met all the time, most of them hardly ever
    batch: int = 256
    rate: float = 0.3
    momentum: float = 0.9
    seconds: float = 25.0  # of training for each output layer; evaluations cost none of them
    tests: int = 1000  # new examples to evaluate on
    evaluations: int = 5


FULL = Plan()
QUICK = Plan(classes=20_000, seconds=2.0, evaluations=4)


def head_settings(head: str, task: "Identification") -> dict[str, Any]:
    """Return what an output layer is given beside its sizes: all come as they are, but the tree knows frequencies.

    A Huffman tree over the true frequencies is the best case of a tree.
    """
    return {"counts": (task.frequencies * 1e9).long()} if head == "hierarchical" else {}


def train_head(head: str, plan: Plan, run: Run) -> None:
    """Train one output layer; a stage of half a minute that was killed starts again."""
    import torch

    import manyclass.torch as mct
    from experiments.demo.task import Identification, trunk
    from manyclass.training.loop import train
    from manyclass.training.metrics import Accuracy, Metrics

    torch.set_num_threads(run.options.threads)
    torch.manual_seed(run.options.seed)
    task = Identification.random(plan.classes, plan.features, run.options.seed, plan.skew)
    below = trunk(plan.features, plan.hidden)
    layer = mct.make_head(head, plan.hidden, plan.classes, **head_settings(head, task))
    optimizer = mct.RowSGD([*below.parameters(), *layer.parameters()], lr=plan.rate, momentum=plan.momentum)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mct.ApproximationWarning)  # a quick run has few classes to choose from
        trained = train(
            (below, layer),
            lambda step: task.batch(step, plan.batch),
            optimizer,
            seconds=plan.seconds,
            evaluate_on=[task.test(plan.tests)],
            evaluate_every=plan.seconds / plan.evaluations,
            metrics=Metrics([Accuracy()]),
            progress=run.progress,
        )
    curve = [(point["seconds"], point["accuracy"]) for point in trained.evaluations]
    run.records.write(
        stage=head, kind="result", head=head, classes=plan.classes, budget=plan.seconds, steps=trained.step,
        seconds=trained.seconds, accuracy=curve[-1][1], curve=curve, retrieval=getattr(layer, "pipeline", None),
    )  # fmt: skip


def stages(options: Options) -> list[Stage]:
    """Return a stage for each output layer that is wanted."""
    plan = QUICK if options.quick else FULL
    return [
        Stage(head, f"train with {NAMES[head]}", (plan.seconds + 4) / 60, partial(train_head, head, plan))
        for head in options.heads_among(NAMES)
    ]


EXPERIMENT = Experiment(
    "demo", "Train a network over 100,000 classes with five output layers, the same seconds each: three minutes",
    stages, make_page, documents=documents, table=results_table, replaces=True,
)  # fmt: skip
