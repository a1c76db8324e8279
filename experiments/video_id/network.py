"""The network: AlexNet for small frames in colour, its features standardized, and an output layer over the videos."""

from typing import Any

import torch
from torch import nn

import manyclass.torch as mct
from experiments.video_id.plan import Plan, TrunkSizes
from experiments.vision.alexnet import AlexNet
from manyclass.torch.checkpoint import load_checkpoint
from manyclass.training.evaluation import TrunkAndHead
from manyclass.training.run_state import Path

BASE_HEAD = "candidate"  # our default; the network that it was trained with is what later stages stand on
MINED = "mined"  # our layer, where every example looks up the classes that it is mistaken for, in every step
MOMENTUM = 0.9
SMALL = 0.01  # of the size that rows start with elsewhere


def new_trunk(sizes: TrunkSizes, side: int) -> nn.Sequential:
    """Return (n, 3, side, side) → (n, features), centred and scaled.

    After a rectifier features have a large common part, and each step of any of the heads would move all classes along
    it. Weights lie with their channels last: small convolutions are a third to a half faster so.
    """
    below = AlexNet(sizes.features, sizes.hidden, sizes.widths, channels=3, side=side)
    standardized = nn.Sequential(below, nn.BatchNorm1d(sizes.features, affine=False))
    return standardized.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def new_head(
    head: str, features: int, classes: int, candidates: int, mined: int = 0, **settings: Any
) -> mct.OutputHead:
    """Return an untrained output layer.

    candidates: of the paper's. mined: examples for which ours looks candidates up, where it is the one that does.
    """
    if head == MINED:
        assert mined
        return mct.make_head("candidate", features, classes, mined_examples=mined, meter_every=0, **settings)
    own: dict[str, Any] = {"candidates": min(candidates, classes)} if head == "wta" else {}
    return mct.make_head(head, features, classes, **own, **settings)


def new_network(plan: Plan, classes: int, head: str, seed: int) -> TrunkAndHead:
    """Return an untrained network with the given output layer."""
    torch.manual_seed(seed)
    trunk = new_trunk(plan.trunk, plan.side)
    return TrunkAndHead(trunk, new_head(head, plan.trunk.features, classes, plan.candidates, plan.batch))


def with_small_rows(head: mct.OutputHead) -> mct.OutputHead:
    """Return an untrained output layer with its rows scaled down, for a network that has learned something already.

    Random rows pull such a network about until each has met its class. At zero they would not, but neither would the
    paper's layer learn anything: rows that are constant share no codes with inputs, and nothing is anybody's rival.
    """
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(SMALL)
    return head


def optimizer_of(network: nn.Module, rate: float) -> mct.RowSGD:
    """Return SGD with momentum, one rate for all, as in the paper."""
    return mct.RowSGD(network.parameters(), lr=rate, momentum=MOMENTUM)


def fine_tuning_optimizer(network: TrunkAndHead, rate: float, trunk_share: float) -> mct.RowSGD:
    """Return SGD with momentum at this rate for the output layer, and at a share of it for the trained trunk."""
    groups = [{"params": list(network.head.parameters())},
              {"params": list(network.trunk.parameters()), "lr": trunk_share * rate}]  # fmt: skip
    return mct.RowSGD(groups, lr=rate, momentum=MOMENTUM)


def with_trunk_of(path: Path, network: TrunkAndHead, start: TrunkAndHead) -> TrunkAndHead:
    """Return the network with the trunk that a checkpoint has. start: a network like the one in it."""
    load_checkpoint(path, start)
    network.trunk.load_state_dict(start.trunk.state_dict())
    return network


def features_and_standardization(trunk: nn.Module) -> tuple[nn.Module, nn.BatchNorm1d]:
    """Return the two parts of a trunk."""
    assert isinstance(trunk, nn.Sequential)
    last = trunk[1]
    assert isinstance(last, nn.BatchNorm1d)
    return trunk[0], last
