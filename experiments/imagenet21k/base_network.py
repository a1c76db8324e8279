"""Stages `warm_up`, `base` and `end_to_end`: train the whole network, once to keep it, and with another head beside it.

Twenty thousand classes with sixteen pictures each teach an untrained network next to nothing in an hour: every class
comes by too seldom. So the network first learns a few of the classes, and then all of them.
"""

import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import manyclass.torch as mct
from experiments.frame.stages import Run
from experiments.imagenet21k.alexnet import AlexNet, multiply_adds
from experiments.imagenet21k.examples import Batches, test_batches
from experiments.imagenet21k.head_names import record_curve
from experiments.imagenet21k.images import SIDE, Images
from experiments.imagenet21k.plan import Plan
from manyclass.torch.checkpoint import load_checkpoint
from manyclass.training.evaluation import TrunkAndHead, evaluate
from manyclass.training.loop import Trained, train
from manyclass.training.metrics import Accuracy, Metrics

BASE_HEAD = "wta"  # the fastest of those that learn as well as the full softmax
EVALUATIONS = 10  # points of a learning curve
CHECKPOINTS = 12
TRIED_STEPS, SLOW_STEPS = 20, 5  # to see what a step takes; the first of them do not count


def new_network(plan: Plan, classes: int, head: str, seed: int) -> TrunkAndHead:
    """Return an untrained network with the given output layer.

    Between them the features are centred and scaled. After a rectifier they have a large common part, and each step
    of any of the heads would move all classes along it. A trained layer takes both into its rows and bias.
    """
    torch.manual_seed(seed)
    settings = {"shared_limit": 1024, "tail": 1024, "meter_every": 0} if head == "wta" else {}
    below = AlexNet(plan.features, plan.hidden, plan.widths)
    standardize = nn.BatchNorm1d(plan.features, affine=False)
    return TrunkAndHead(nn.Sequential(below, standardize), mct.make_head(head, plan.features, classes, **settings))


def train_network(network: TrunkAndHead, run: Run, images: Images, plan: Plan, steps: int, checkpoint: Path) -> Trained:
    """Train for so many steps, over which the rates fall exponentially; goes on from the checkpoint if there is one."""
    optimizer = optimizer_of(network, plan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mct.ApproximationWarning)  # a quick run has few classes to choose from
        return train(
            network,
            Batches(images, plan.batch, run.options.seed),
            optimizer,
            steps=steps,
            schedule=torch.optim.lr_scheduler.ExponentialLR(optimizer, plan.final_rate ** (1 / steps)),
            evaluate_on=test_batches(images, plan.curve_tests),
            evaluate_every=max(1, steps // EVALUATIONS),
            metrics=Metrics([Accuracy()]),
            checkpoint=checkpoint,
            checkpoint_every=max(1, steps // CHECKPOINTS),
            progress=run.progress,
        )


def optimizer_of(network: TrunkAndHead, plan: Plan) -> mct.RowSGD:
    """Return SGD with the paper's momentum; the rows of the classes have a rate of their own."""
    rates = zip((network.trunk, network.head), plan.rates, strict=True)
    groups = [{"params": list(part.parameters()), "lr": rate} for part, rate in rates]
    return mct.RowSGD(groups, lr=plan.rates[0], momentum=0.9)


def alexnet_of(network: TrunkAndHead) -> nn.Module:
    """Return the network up to its features."""
    assert isinstance(network.trunk, nn.Sequential)
    return network.trunk[0]


def standardization_of(network: TrunkAndHead) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return what is subtracted from the features before the output layer, and what they are multiplied by then."""
    assert isinstance(network.trunk, nn.Sequential)
    layer = network.trunk[1]
    assert isinstance(layer, nn.BatchNorm1d)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    return layer.running_mean.numpy(), (layer.running_var + layer.eps).rsqrt().numpy()


def run_warm_up(run: Run, images: Images, plan: Plan) -> None:
    """Train the network on some of the classes with the exact softmax, which is cheap for so few."""
    torch.set_num_threads(run.options.threads)
    fewer = images.every(plan.warm_up_every)
    network = new_network(plan, fewer.classes, "full", run.options.seed)
    trained = train_network(network, run, fewer, plan, plan.warm_up_steps, run.cache / "warm_up.mc")
    for point in trained.evaluations:
        run.records.write(stage="warm_up", kind="evaluation", **point)
    run.records.write(
        stage="warm_up", kind="result", head="full", classes=fewer.classes, steps=trained.step,
        seconds=trained.seconds, accuracy=trained.evaluations[-1]["accuracy"], batch=plan.batch,
        epochs=trained.step * plan.batch / len(fewer.train),
    )  # fmt: skip


def warmed_up(run: Run, images: Images, plan: Plan, head: str) -> TrunkAndHead:
    """Return a network over all classes whose part below the output layer is the warmed-up one."""
    start = new_network(plan, len(images.class_names[:: plan.warm_up_every]), "full", run.options.seed)
    load_checkpoint(run.cache / "warm_up.mc", start)
    network = new_network(plan, images.classes, head, run.options.seed)
    network.trunk.load_state_dict(start.trunk.state_dict())
    return network


def run_base(run: Run, images: Images, plan: Plan) -> None:
    """Train the network that all later stages stand on, with its accuracy on all held-out pictures."""
    torch.set_num_threads(run.options.threads)
    network = warmed_up(run, images, plan, BASE_HEAD)
    trained = train_network(network, run, images, plan, plan.base_steps, base_checkpoint(run))
    for point in trained.evaluations:
        run.records.write(stage="base", kind="evaluation", **point)
    accuracy = evaluate(network, test_batches(images, plan.tests), Metrics([Accuracy()]))["accuracy"]
    run.records.write(
        stage="base", kind="result", head=BASE_HEAD, steps=trained.step, seconds=trained.seconds, accuracy=accuracy,
        multiply_adds=multiply_adds(alexnet_of(network), torch.zeros(1, 1, SIDE, SIDE)), features=plan.features,
        parameters=sum(parameter.numel() for parameter in network.trunk.parameters()), batch=plan.batch,
        epochs=trained.step * plan.batch / len(images.train), rates=plan.rates, final_rate=plan.final_rate,
    )  # fmt: skip


def base_checkpoint(run: Run) -> Path:
    """Return where the trained network is kept."""
    return run.cache / "base.mc"


def run_end_to_end(run: Run, images: Images, plan: Plan) -> None:
    """Train the whole network with the exact softmax from where the base network began, as long as that was trained.

    The base network's own curve stands for its head: the same start, the same batches.
    """
    torch.set_num_threads(run.options.threads)
    base = run.records.last(stage="base", kind="result")
    assert base is not None  # the stages run in order
    if not run.records.done(stage="end_to_end", kind="result", head=BASE_HEAD):
        learned = run.records.select(stage="base", kind="evaluation")
        record_curve(run.records, "end_to_end", (BASE_HEAD, None, "shared"), learned, plan.batch)
    if run.records.done(stage="end_to_end", kind="result", head="full"):
        return
    if run.options.heads and "full" not in run.options.heads:
        return
    planned = run.records.last(stage="end_to_end", kind="plan")  # of a session that was killed
    if planned:
        steps = planned["steps"]
    else:
        step_seconds = _step_seconds(new_network(plan, images.classes, "full", 0), images, plan)
        steps = max(EVALUATIONS, round(base["seconds"] / step_seconds))
        run.records.write(stage="end_to_end", kind="plan", steps=steps)
    network = warmed_up(run, images, plan, "full")
    trained = train_network(network, run, images, plan, steps, run.cache / "end_to_end_full.mc")
    record_curve(run.records, "end_to_end", ("full", None, None), trained.evaluations, plan.batch)


def _step_seconds(network: TrunkAndHead, images: Images, plan: Plan) -> float:
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
