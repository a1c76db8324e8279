"""The network, and how large everything is: the full run, and the quick one that shows the same in three minutes.

AlexNet for small grey pictures is the paper's network below the classification layer: five convolutions and two dense
layers as in Krizhevsky et al. 2012, with the width of one of their two towers. What differs: the first layer sees
64 × 64 pixels in one channel, batch normalisation stands where local response normalisation and dropout were, so that
it learns within an hour on two cores.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import manyclass.torch as mct
from experiments.frame.stages import Options, Run
from manyclass.torch.checkpoint import load_checkpoint
from manyclass.training.evaluation import TrunkAndHead

BASE_HEAD = "candidate"  # what the network is trained with: the fastest that learns as well as the full softmax


class AlexNet(nn.Sequential):
    """(n, 1, 64, 64) → (n, features), after a rectifier. hidden: width of the dense layer before the last."""

    def __init__(self, features: int, hidden: int, widths: tuple[int, ...]) -> None:
        first, second, third, fourth, fifth = widths
        super().__init__(
            *_convolution(1, first, 11, stride=4),
            nn.MaxPool2d(3, 2, 1),  # 16 × 16 → 8 × 8
            *_convolution(first, second, 5),
            nn.MaxPool2d(3, 2, 1),  # → 4 × 4
            *_convolution(second, third, 3),
            *_convolution(third, fourth, 3),
            *_convolution(fourth, fifth, 3),
            nn.MaxPool2d(2),  # → 2 × 2
            nn.Flatten(),
            nn.Linear(4 * fifth, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, features, bias=False),
            nn.BatchNorm1d(features),
            nn.ReLU(),
        )


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return [layer, nn.BatchNorm2d(outputs), nn.ReLU()]


@torch.no_grad()
def multiply_adds(network: nn.Module, picture: Tensor) -> int:
    """Return the products of one forward pass over (1, 1, side, side), counted layer by layer."""
    counted = 0

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        nonlocal counted
        weight = layer.weight
        assert isinstance(weight, Tensor)
        counted += output.numel() * weight[0].numel()

    layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    modes = [(module, module.training) for module in network.modules()]
    try:
        network.eval()
        network(picture)
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in modes:
            module.training = mode
    return counted


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
    peer_tests: int  # of them, for judging other libraries: a graph takes up to 30 ms for each
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
    peer_tests=4_000,
    softmax_epochs=2,
    softmax_steps=160,
    softmax_batch=1024,
    head_seconds=180,
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
    peer_tests=500,
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
    of any of the heads would move all classes along it. A trained layer takes both into its rows and bias.
    """
    torch.manual_seed(seed)
    settings = {"tail": 1024} if head == "candidate" else {}
    below = AlexNet(plan.features, plan.hidden, plan.widths)
    standardize = nn.BatchNorm1d(plan.features, affine=False)
    return TrunkAndHead(nn.Sequential(below, standardize), mct.make_head(head, plan.features, classes, **settings))


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
