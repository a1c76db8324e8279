"""The network, and how large everything is: the full run, and the quick one that shows the same in three minutes."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import manyclass.torch as mct
from experiments.frame.stages import Options, Run
from experiments.imagenet21k.results import Series
from experiments.vision.alexnet import AlexNet
from manyclass.torch.checkpoint import load_checkpoint
from manyclass.training.evaluation import TrunkAndHead

BASE_SERIES: Series = ("candidate", None, "looked up")  # what the network is trained with
BASE_HEAD = BASE_SERIES[0]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes of one run of the experiment."""

    features: int  # width of the layer below the classes
    hidden: int  # width of the dense layer before it
    widths: tuple[int, ...]  # channels of the five convolutions
    drawn_classes: int  # random stroke characters, where no fonts are used
    batch: int
    warm_up_every: int  # the network first learns every so many-th class alone, each of them more often
    warm_up_steps: int
    base_steps: int  # training of the network with all classes
    rates: tuple[float, float]  # learning rates at the start: network, output layer
    final_rate: float  # share of them at the end; the decay between is exponential
    examples: int  # pictures whose features are kept for training output layers
    tests: int  # held-out pictures, at most
    curve_tests: int  # of them, for the points of a learning curve
    softmax_epochs: float  # passes of the approximate layer before the exact one
    softmax_steps: int  # steps of the exact layer
    softmax_batch: int
    head_seconds: float  # training time of each output layer on kept features
    batches: tuple[int, ...]
    candidates: tuple[int, ...]


FULL = Plan(
    features=4096,
    hidden=2048,
    widths=(48, 128, 192, 192, 128),  # one of AlexNet's two towers
    drawn_classes=20_000,
    batch=256,
    warm_up_every=16,
    warm_up_steps=600,
    base_steps=1900,
    rates=(0.1, 0.03),
    final_rate=0.05,
    examples=240_000,
    tests=42_000,
    curve_tests=4_000,
    softmax_epochs=2,
    softmax_steps=160,
    softmax_batch=1024,
    head_seconds=120,
    batches=(1, 2, 4, 8, 16, 32, 64, 128),
    candidates=(10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000, 3000),
)
QUICK = Plan(
    features=512,
    hidden=256,
    widths=(24, 48, 64, 64, 48),
    drawn_classes=4000,
    batch=128,
    warm_up_every=8,
    warm_up_steps=120,
    base_steps=140,
    rates=(0.1, 0.1),
    final_rate=0.1,
    examples=16_000,
    tests=3_000,
    curve_tests=500,
    softmax_epochs=1,
    softmax_steps=30,
    softmax_batch=512,
    head_seconds=2,
    batches=(1, 8, 64),
    candidates=(10, 30, 100, 300, 1000, 3000),
)


def plan_of(options: Options) -> Plan:
    """Return the sizes of a run."""
    return QUICK if options.quick else FULL


def new_network(plan: Plan, classes: int, head: str, seed: int) -> TrunkAndHead:
    """Return an untrained network with the given output layer.

    Between them the features are centred and scaled. After a rectifier they have a large common part, and each step
    of any of the heads would move all classes along it. A trained layer takes both into its rows and bias. Weights lie
    with their channels last: a pass and its gradients take two thirds of the time so.
    """
    torch.manual_seed(seed)
    # The convolutions take most of a step: every example may look up the classes that it is mistaken for.
    settings = {"tail": 1024, "mined_examples": plan.batch} if head == "candidate" else {}
    below = AlexNet(plan.features, plan.hidden, plan.widths)
    standardize = nn.BatchNorm1d(plan.features, affine=False)
    trunk = nn.Sequential(below, standardize).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return TrunkAndHead(trunk, mct.make_head(head, plan.features, classes, **settings))


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


def base_checkpoint(run: Run) -> Path:
    """Return where the trained network is kept."""
    return run.cache / "base.checkpoint"


def trained_network(run: Run, classes: int, plan: Plan) -> TrunkAndHead:
    """Return the network as stage `base` left it."""
    network = new_network(plan, classes, BASE_HEAD, run.options.seed)
    load_checkpoint(base_checkpoint(run), network)
    return network
