"""The experiment on videos in miniature, for the tests that run it, also in a process that is killed."""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from experiments.frame.stages import Options, run_experiment
from experiments.video_id import plan
from experiments.video_id.plan import QUICK, FewerVideos, TrunkSizes
from experiments.video_id.stages import EXPERIMENT

TRUNK = TrunkSizes(features=24, hidden=16, widths=(4, 6, 8, 8, 6))
PLAN = replace(
    QUICK, scenes=60, trunk=TRUNK, warm_up_classes=20, warm_up_steps=20, warm_up_batch=20, rate_classes=30,
    rate_steps=2, rates=(0.1, 0.005), fewer=FewerVideos(classes=20, steps=8, candidates=3), steps=60,
    slow_steps={"wta": 40}, candidates=5, tests=60, curve_tests=40, points=4, kept_frames=2, frozen_seconds=0.1,
    frozen_batch=16, variance_videos=30, measured_steps=4,
    series=replace(QUICK.series, classes=30, motions=(0.25, 2.0), frames=3, steps=5, batch=8, tests=40),
    million=replace(
        QUICK.million, classes=300, trunk=TRUNK, light_classes=30, light_steps=10, light_batch=16, frames=8, chunk=100,
        tests=60, batch=32, seconds=0.3, bottleneck=TRUNK, step_batch=8, measured_steps=2, candidates=(5, 20),
        queries=40,
    ),
)  # fmt: skip
TRAINING = ("frames", "warm_up", "rates", "end_to_end")
OPTIONS = Options(quick=True, threads=1, seed=3, heads=("candidate",))


def run_training(out: Path, resume: bool) -> None:
    """Run the stages up to the training of the whole network, with our own output layer alone."""
    plan.QUICK = PLAN
    run_experiment(EXPERIMENT, out, replace(OPTIONS, stages=TRAINING), resume, Console(quiet=True))
