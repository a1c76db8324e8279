"""AlexNet for other frames than those of the first experiment, and the parts of a step."""

import time
from pathlib import Path

import pytest
import torch
from rich.console import Console

from experiments.frame.records import Records
from experiments.frame.stages import Options, Run
from experiments.video_id.network import (
    MINED,
    features_and_standardization,
    fine_tuning_optimizer,
    new_head,
    new_trunk,
    optimizer_of,
    with_small_rows,
)
from experiments.video_id.parts import Clock, looking_at
from experiments.video_id.plan import FULL, QUICK, TrunkSizes
from experiments.vision.alexnet import AlexNet, multiply_adds
from experiments.vision.learning import learn
from manyclass.errors import ConfigError
from manyclass.torch import HEADS
from manyclass.training.evaluation import TrunkAndHead


@pytest.mark.parametrize("side", [16, 32, 48, 64])
def test_alexnet_takes_frames_of_any_multiple_of_sixteen(side: int) -> None:
    network = AlexNet(features=8, hidden=4, widths=(2, 2, 2, 2, 2), channels=3, side=side).eval()
    assert network(torch.zeros(2, 3, side, side)).shape == (2, 8)


def test_other_sides_are_refused() -> None:
    with pytest.raises(ConfigError, match="side=20 is not a multiple of 16; try 16"):
        AlexNet(features=8, hidden=4, widths=(2, 2, 2, 2, 2), side=20)


def test_the_full_network_has_the_papers_features_and_the_bottleneck_few() -> None:
    frame = torch.zeros(1, 3, FULL.side, FULL.side)
    trunk = new_trunk(FULL.trunk, FULL.side).eval()
    assert trunk(frame).shape == (1, 4096)
    assert 10e6 < multiply_adds(trunk, frame) < 70e6
    narrow = new_trunk(FULL.million.bottleneck, FULL.side).eval()
    assert narrow(frame).shape == (1, 256)
    light = multiply_adds(new_trunk(FULL.million.trunk, FULL.side), frame)
    assert light < multiply_adds(trunk, frame) / 3


def test_features_are_standardized_before_the_output_layer() -> None:
    torch.manual_seed(0)
    trunk = new_trunk(TrunkSizes(features=8, hidden=16, widths=(4, 4, 4, 4, 4)), 32)
    below, standardize = features_and_standardization(trunk)
    frames = torch.randn(200, 3, 32, 32)
    found = trunk(frames)
    alive = below(frames).std(0) > 1e-3
    torch.testing.assert_close(found.mean(0)[alive], torch.zeros(int(alive.sum())), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.std(0)[alive], torch.ones(int(alive.sum())), atol=0.05, rtol=0)
    assert standardize.weight is None


def test_the_papers_settings_are_the_full_plan() -> None:
    assert (FULL.batch, FULL.candidates) == (32, 3000)
    assert sorted(FULL.rates) == [0.001, 0.005, 0.05, 0.1]
    assert FULL.million.classes == 1_200_000
    assert FULL.million.frames >= 8
    assert QUICK.frames % 2 == FULL.frames % 2 == 0


FEW = pytest.mark.filterwarnings("ignore::manyclass.torch.ApproximationWarning")


@FEW
@pytest.mark.parametrize("head", [*sorted(HEADS), MINED])
def test_every_head_is_made_also_for_fewer_classes_than_candidates(head: str) -> None:
    assert new_head(head, 16, 5, 3000, 4)(torch.randn(4, 16), torch.arange(4)).isfinite()


@FEW
def test_a_clock_adds_up_and_the_index_gets_its_own_methods_back() -> None:
    clock = Clock()
    assert clock.around(lambda value: time.sleep(0.01) or value)(5) == 5
    assert clock.taken() >= 0.01
    assert clock.taken() == 0
    head = new_head("wta", 16, 50, 5)
    before = head.index.shortlist.__func__
    with looking_at(head) as (find, refresh):
        head(torch.randn(4, 16), torch.arange(4)).backward()
        assert find.taken() > 0
        assert refresh.taken() > 0
    assert head.index.shortlist.__func__ is before


@FEW
@pytest.mark.parametrize("head", [*sorted(HEADS), MINED])
def test_small_rows_hardly_pull_the_network_and_every_layer_learns_from_them(head: str) -> None:
    torch.manual_seed(0)
    network = TrunkAndHead(torch.nn.Linear(6, 16), with_small_rows(new_head(head, 16, 40, 10, 8)))
    x, y = torch.randn(8, 6), torch.arange(8)
    optimizer = fine_tuning_optimizer(network, 0.5, 0.1)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.5, 0.05])
    pulls = []
    for _ in range(20):
        optimizer.zero_grad()
        network(x, y).backward()
        pulls.append(float(network.trunk.weight.grad.abs().max()))
        optimizer.step()
    assert 0 < pulls[0] < 0.01
    assert network(x, y).isfinite()
    assert (network.eval().topk(x, 1).classes[:, 0] == y).float().mean() > 0.5  # chance: one in 40


@pytest.mark.parametrize(("again", "steps"), [(False, 2), (True, 5)])
def test_a_stage_that_is_run_anew_does_not_go_on_from_its_checkpoint(tmp_path: Path, again: bool, steps: int) -> None:
    taken: list[int] = []

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        taken.append(step)
        return torch.randn(8, 16), torch.arange(8)

    for repeated, length in ((False, 3), (again, 5)):
        head = new_head("full", 16, 10, 0)
        run = Run(tmp_path, Options(again=repeated), Records(tmp_path / "records.jsonl"), Console(quiet=True))
        taken.clear()
        learn(TrunkAndHead(torch.nn.Identity(), head), batch, optimizer_of(head, 0.1), run, steps=length,
              tests=[(torch.randn(8, 16), torch.arange(8))], points=1, checkpoint=tmp_path / "kept")  # fmt: skip
    assert len(taken) == steps
