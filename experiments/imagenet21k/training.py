"""Everything that is trained: the network (stages `warm_up`, `base`, `end_to_end`), and output layers on kept features
(`softmax_layer`, `heads`).

Twenty thousand classes with sixteen pictures each teach an untrained network next to nothing in an hour: every class
comes by too seldom. So the network first learns a few of the classes, and then all of them.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import manyclass.torch as mct
from experiments.datasets.kept_features import FeatureBatches, Features
from experiments.frame.records import Record, Records
from experiments.frame.stages import Run
from experiments.imagenet21k.data import Batches, Images, held_out, held_out_batches
from experiments.imagenet21k.features import keep_layer, open_features, open_layer
from experiments.imagenet21k.model import (
    BASE_HEAD,
    BASE_SERIES,
    Plan,
    alexnet_of,
    base_checkpoint,
    new_network,
    optimizer_of,
    trained_network,
)
from experiments.imagenet21k.results import Series, name_of
from experiments.imagenet21k.sources import SIDE
from experiments.peers.problem import Problem
from experiments.vision.alexnet import multiply_adds
from experiments.vision.learning import learn
from manyclass.torch.checkpoint import load_checkpoint
from manyclass.training.evaluation import TrunkAndHead, evaluate
from manyclass.training.loop import Trained
from manyclass.training.metrics import Accuracy, Metrics

Batch = tuple[Tensor, Tensor]
CHECKPOINTS = 12  # of a training
CURVE_POINTS, HEAD_POINTS, LAYER_POINTS = 10, 8, 5  # of a learning curve: the network, a head, the exact layer
TRAIN_TESTS = 4000  # training examples whose accuracy is told beside the held-out one
TRIED_STEPS, SLOW_STEPS = 20, 5  # to see what a step takes; the first of them do not count

# (head, candidates, rule) → settings. "own": every example its own candidates, as in the paper, with the tail that our
# default has.
HEADS: dict[Series, dict[str, Any]] = {
    ("candidate", None, "default"): {},
    **{("candidate", count, "own"): {"candidates": count, "shared": False} for count in (30, 300, 3000)},
    **{("wta", count, None): {"candidates": count} for count in (30, 300, 3000)},
    ("sampled", None, None): {"samples": 1024},
    ("hierarchical", None, None): {},
    ("full", None, None): {},
}


def record_curve(records: Records, stage: str, series: Series, evaluations: Iterable[Record], batch: int) -> None:
    """Write a point for every evaluation of a head, and where it ended as its result."""
    key = {"stage": stage, **fields_of(series)}
    points = [{name: point[name] for name in ("step", "seconds", "accuracy")} for point in evaluations]
    for point in points:
        records.write(kind="evaluation", **key, **point)
    last = points[-1]
    records.write(
        kind="result", **key, steps=last["step"], seconds=last["seconds"], accuracy=last["accuracy"], batch=batch,
        ms_per_step=1000 * last["seconds"] / last["step"],
    )  # fmt: skip


def fields_of(series: Series) -> dict[str, Any]:
    """Return the fields that say of which head a record is."""
    return dict(zip(("head", "candidates", "rule"), series, strict=True))


# The network


def learn_network(network: TrunkAndHead, run: Run, images: Images, plan: Plan, steps: int, checkpoint: Path) -> Trained:
    """Train the whole network; goes on from the checkpoint if there is one."""
    return learn(
        network, Batches(images, plan.batch, run.options.seed), optimizer_of(network, plan), run, steps=steps,
        final_rate=plan.final_rate, tests=held_out_batches(images, plan.curve_tests), points=CURVE_POINTS,
        checkpoint=checkpoint, checkpoint_every=max(1, steps // CHECKPOINTS),
    )  # fmt: skip


def run_warm_up(run: Run, images: Images, plan: Plan) -> None:
    """Train the network on some of the classes with the exact softmax, which is cheap for so few."""
    fewer = images.every(plan.warm_up_every)
    network = new_network(plan, fewer.classes, "full", run.options.seed)
    trained = learn_network(network, run, fewer, plan, plan.warm_up_steps, warm_up_checkpoint(run))
    for point in trained.evaluations:
        run.records.write(stage="warm_up", kind="evaluation", **point)
    run.records.write(
        stage="warm_up", kind="result", head="full", classes=fewer.classes, steps=trained.step,
        seconds=trained.seconds, accuracy=trained.evaluations[-1]["accuracy"], batch=plan.batch,
        epochs=trained.step * plan.batch / len(fewer.train),
    )  # fmt: skip


def warm_up_checkpoint(run: Run) -> Path:
    """Return where the network is kept that knows some of the classes."""
    return run.cache / "warm_up.checkpoint"


def warmed_up(run: Run, images: Images, plan: Plan, head: str) -> TrunkAndHead:
    """Return a network over all classes whose part below the output layer is the warmed-up one."""
    start = new_network(plan, len(images.class_names[:: plan.warm_up_every]), "full", run.options.seed)
    load_checkpoint(warm_up_checkpoint(run), start)
    network = new_network(plan, images.classes, head, run.options.seed)
    network.trunk.load_state_dict(start.trunk.state_dict())
    return network


def run_base(run: Run, images: Images, plan: Plan) -> None:
    """Train the network that all later stages stand on, with its accuracy on all held-out pictures."""
    network = warmed_up(run, images, plan, BASE_HEAD)
    trained = learn_network(network, run, images, plan, plan.base_steps, base_checkpoint(run))
    for point in trained.evaluations:
        run.records.write(stage="base", kind="evaluation", **point)
    accuracy = evaluate(network, held_out_batches(images, plan.tests), Metrics([Accuracy()]))["accuracy"]
    run.records.write(
        stage="base", kind="result", **fields_of(BASE_SERIES), steps=trained.step, seconds=trained.seconds,
        accuracy=accuracy, multiply_adds=multiply_adds(alexnet_of(network), torch.zeros(1, 1, SIDE, SIDE)),
        features=plan.features, parameters=sum(parameter.numel() for parameter in network.trunk.parameters()),
        batch=plan.batch, epochs=trained.step * plan.batch / len(images.train), rates=plan.rates,
        final_rate=plan.final_rate,
    )  # fmt: skip


def run_end_to_end(run: Run, images: Images, plan: Plan) -> None:
    """Train the whole network with the exact softmax from where the base network began, as long as that was trained.

    The base network's own curve stands for its head: the same start, the same batches.
    """
    base = run.records.last(stage="base", kind="result")
    assert base is not None  # the stage comes after `base`
    if not run.records.done(stage="end_to_end", kind="result", **fields_of(BASE_SERIES)):
        learned = run.records.select(stage="base", kind="evaluation")
        record_curve(run.records, "end_to_end", BASE_SERIES, learned, plan.batch)
    if run.records.done(stage="end_to_end", kind="result", head="full"):
        return
    if run.options.heads and "full" not in run.options.heads:
        return
    planned = run.records.last(stage="end_to_end", kind="plan")  # of a session that was killed
    if planned:
        steps = planned["steps"]
    else:
        step_seconds = seconds_of_a_step(new_network(plan, images.classes, "full", 0), images, plan)
        steps = max(CURVE_POINTS, round(base["seconds"] / step_seconds))
        run.records.write(stage="end_to_end", kind="plan", steps=steps)
    network = warmed_up(run, images, plan, "full")
    trained = learn_network(network, run, images, plan, steps, run.cache / "end_to_end_full.checkpoint")
    record_curve(run.records, "end_to_end", ("full", None, None), trained.evaluations, plan.batch)


def seconds_of_a_step(network: TrunkAndHead, images: Images, plan: Plan) -> float:
    """Return what one step takes: how many fit into a time must be known beforehand, for the decay of the rate.

    The mean of some: steps differ by half between minutes, and the first ones are slow.
    """
    optimizer, batches = optimizer_of(network, plan), Batches(images, plan.batch, 0)
    taken = []
    for step in range(TRIED_STEPS):
        started = time.perf_counter()
        optimizer.zero_grad()
        network(*batches(step)).backward()
        optimizer.step()
        taken.append(time.perf_counter() - started)
    return statistics.mean(taken[SLOW_STEPS:])


# Output layers on kept features


def learn_head(
    head: mct.OutputHead, batches: Callable[[int], Batch], rate: float, run: Run, **settings: Any
) -> Trained:
    """Train an output layer alone."""
    optimizer = mct.RowSGD(head.parameters(), lr=rate, momentum=0.9)
    return learn(TrunkAndHead(nn.Identity(), head), batches, optimizer, run, **settings)


def run_heads(run: Run, images: Images, plan: Plan) -> None:
    """Train every output layer from nothing on the same features, for the same seconds each."""
    features = open_features(run)
    for series in HEADS:
        head, candidates, _ = series
        if run.options.heads and head not in run.options.heads:
            continue
        if run.records.done(stage="heads", kind="result", **fields_of(series)):
            continue
        if candidates is not None and candidates > images.classes:
            continue
        run.console.print(f"  {name_of(series)}, {plan.head_seconds:.0f} s", highlight=False)
        trained = learn_from_nothing(series, run, features, images.classes, plan)
        record_curve(run.records, "heads", series, trained.evaluations, plan.batch)


def learn_from_nothing(series: Series, run: Run, features: Features, classes: int, plan: Plan) -> Trained:
    """Train one new output layer for the planned seconds."""
    torch.manual_seed(run.options.seed)
    head = mct.make_head(series[0], plan.features, classes, **HEADS[series])
    return learn_head(
        head, FeatureBatches(features, plan.batch, run.options.seed), plan.rates[1], run, seconds=plan.head_seconds,
        tests=features.tests(plan.curve_tests), points=HEAD_POINTS,
    )  # fmt: skip


def run_softmax_layer(run: Run, images: Images, plan: Plan) -> None:
    """Train an exact softmax layer on the kept features to its end: what all approximations are measured against.

    It starts from the rows the network was trained with, passes over all examples with the approximate layer, because
    that is quick, and ends with exact steps over all classes.
    """
    features = open_features(run)
    approximate = trained_network(run, images.classes, plan).head
    assert isinstance(approximate, mct.CandidateSoftmax)
    batch = plan.softmax_batch
    rate = plan.rates[1] * batch / plan.batch  # the gradient is a mean over the batch: a class meets it as often
    steps = round(plan.softmax_epochs * len(features.train) / batch)
    batches = FeatureBatches(features, batch, run.options.seed)
    common = {"final_rate": 0.1, "tests": features.tests(plan.curve_tests), "points": LAYER_POINTS}
    first = learn_head(approximate, batches, rate, run, steps=steps,
                       checkpoint=run.cache / "softmax_layer_1.checkpoint", **common)  # fmt: skip
    exact = mct.FullSoftmax.from_linear(approximate.to_linear())
    last = learn_head(exact, lambda step: batches(steps + step), 0.1 * rate, run, steps=plan.softmax_steps,
                      checkpoint=run.cache / "softmax_layer_2.checkpoint", **common)  # fmt: skip
    assert exact.bias is not None
    keep_layer(run, *features.folded(exact.weight.detach().numpy(), exact.bias.detach().numpy().ravel()))
    for trained, before, seconds in ((first, 0, 0.0), (last, first.step, first.seconds)):
        for point in trained.evaluations:
            moved = {"step": before + point["step"], "seconds": seconds + point["seconds"]}
            run.records.write(stage="softmax_layer", kind="evaluation", exact=trained is last, **{**point, **moved})
    layer = open_layer(run)
    sample = np.random.default_rng(0).choice(len(features.train), min(TRAIN_TESTS, len(features.train)), replace=False)
    seen = [features.examples("train", np.sort(sample))]
    run.records.write(
        stage="softmax_layer", kind="result", start=f"{BASE_HEAD} head of the base network",
        accuracy=layer.exact_accuracy, by_style=accuracy_by_style(layer, images, plan),
        train_accuracy=evaluate(TrunkAndHead(nn.Identity(), exact), seen, Metrics([Accuracy()]))["accuracy"],
        steps=first.step + last.step, exact_steps=last.step, seconds=first.seconds + last.seconds, batch=batch,
    )  # fmt: skip


def accuracy_by_style(layer: Problem, images: Images, plan: Plan) -> dict[str, float]:
    """Return the accuracy of the exact layer in each of the held-out styles."""
    styles = images.styles[held_out(images, plan.tests)]
    return {
        images.style_names[style]: layer.accuracy(layer.exact.classes[:, 0], styles == style)
        for style in np.unique(styles)
    }
