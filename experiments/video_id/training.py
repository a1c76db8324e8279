"""Stages `frames`, `warm_up`, `rates`, `fewer_videos` and `end_to_end`: the videos, and whole networks trained on them.

A hundred thousand videos that come by a few times each teach an untrained network little. So the network first learns a
few of them, and every output layer starts from there, at the best of the paper's rates. Over all videos full softmax
and the paper's layer have time for few steps only; what all learn step by step is shown with fewer videos.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import manyclass.torch as mct
from experiments.frame.records import Records
from experiments.frame.stages import Run
from experiments.video_id.batches import WORKERS, FrameBatches, evaluation_batches
from experiments.video_id.network import (
    BASE_HEAD,
    MINED,
    fine_tuning_optimizer,
    new_network,
    optimizer_of,
    with_small_rows,
    with_trunk_of,
)
from experiments.video_id.plan import Plan
from experiments.video_id.videos import Videos, contact_sheet, fewer, training_frames
from experiments.vision.alexnet import multiply_adds
from experiments.vision.learning import learn
from manyclass.errors import ConfigError, DivergedError
from manyclass.torch.checkpoint import load_checkpoint
from manyclass.training.evaluation import TrunkAndHead, evaluate
from manyclass.training.loop import Trained
from manyclass.training.metrics import Accuracy, Metrics

HEADS = ("full", "hierarchical", "sampled", "wta", MINED, BASE_HEAD)
CHECKPOINTS = 5  # of a training; gigabytes each with full softmax
SPEED_BATCHES = 8  # whose frames are made to see how quick that is


def heads_of(run: Run) -> list[str]:
    """Return the output layers that are wanted; the one that later stages stand on is always trained."""
    wanted = run.options.heads_among(HEADS)
    return [head for head in HEADS if head in wanted or head == BASE_HEAD]


# Frames


def run_frames(run: Run, videos: Videos, plan: Plan) -> None:
    """Record what the videos are, a contact sheet of some, and how quickly frames are made."""
    with FrameBatches(videos, 256, run.options.seed) as batches:
        rate = batches.frames_per_second(SPEED_BATCHES)
    run.records.write(stage="frames", kind="sheet", **contact_sheet(videos, run.options.seed))
    run.records.write(
        stage="frames", kind="result", source=videos.source, classes=videos.classes, frames=videos.frames,
        training_frames=training_frames(videos), side=videos.side, frames_per_second=rate, workers=WORKERS,
    )  # fmt: skip


# Networks


def warm_up_checkpoint(run: Run) -> Path:
    """Return where the network is kept that knows some of the videos."""
    return run.cache / "warm_up.checkpoint"


def run_warm_up(run: Run, videos: Videos, plan: Plan) -> None:
    """Train the network on some of the videos with the exact softmax, which is cheap for so few."""
    some = fewer(videos, plan.warm_up_classes)
    network = new_network(plan, some.classes, "full", run.options.seed)
    with FrameBatches(some, plan.warm_up_batch, run.options.seed) as batches:
        trained = learn(
            network, batches, optimizer_of(network, plan.warm_up_rate), run, steps=plan.warm_up_steps,
            final_rate=plan.warm_up_final_rate, tests=evaluation_batches(some, plan.curve_tests, run.options.seed),
            points=plan.points, checkpoint=warm_up_checkpoint(run),
            checkpoint_every=max(1, plan.warm_up_steps // CHECKPOINTS),
        )  # fmt: skip
    for point in trained.evaluations:
        run.records.write(stage="warm_up", kind="evaluation", **point)
    example = batches.videos.pictures(np.zeros(1, np.int64), np.zeros(1, np.int64))
    run.records.write(
        stage="warm_up", kind="result", classes=some.classes, steps=trained.step, seconds=trained.seconds,
        accuracy=trained.evaluations[-1]["accuracy"], batch=plan.warm_up_batch, rate=plan.warm_up_rate,
        features=plan.trunk.features, multiply_adds=multiply_adds(network.trunk, example),
        parameters=sum(parameter.numel() for parameter in network.trunk.parameters()),
    )  # fmt: skip


def warmed_up(run: Run, everything: Videos, some: Videos, plan: Plan, head: str) -> TrunkAndHead:
    """Return a network over some of the videos whose trunk is the warmed-up one, and whose rows are small."""
    start = new_network(plan, fewer(everything, plan.warm_up_classes).classes, "full", run.options.seed)
    network = new_network(plan, some.classes, head, run.options.seed)
    assert isinstance(network.head, mct.OutputHead)
    with_small_rows(network.head)
    return with_trunk_of(warm_up_checkpoint(run), network, start)


def learn_network(
    run: Run, network: TrunkAndHead, videos: Videos, plan: Plan, rate: float, steps: int, **settings: Any
) -> tuple[Trained, float]:
    """Train a whole network; return how far it came, and the seconds it waited for frames in this session."""
    with FrameBatches(videos, plan.batch, run.options.seed) as batches:
        trained = learn(
            network, batches, fine_tuning_optimizer(network, rate, plan.trunk_share), run, steps=steps,
            final_rate=plan.final_rate, tests=evaluation_batches(videos, plan.curve_tests, run.options.seed),
            **settings,
        )  # fmt: skip
    return trained, batches.waited


def run_rates(run: Run, videos: Videos, plan: Plan) -> None:
    """Try the paper's learning rates with every output layer for some steps, on some of the videos."""
    some = fewer(videos, plan.rate_classes)
    for head in heads_of(run):
        for rate in plan.rates:
            key = {"stage": "rates", "kind": "result", "head": head, "rate": rate}
            if run.records.done(**key):
                continue
            run.console.print(f"  {head}, rate {rate:g}, {plan.rate_steps} steps", highlight=False)
            try:
                network = warmed_up(run, videos, some, plan, head)
                trained, _ = learn_network(run, network, some, plan, rate, plan.rate_steps, points=1)
                found: dict[str, Any] = {
                    "accuracy": trained.evaluations[-1]["accuracy"],
                    "loss": trained.loss,
                    "diverged": False,
                }
            except DivergedError:
                found = {"accuracy": 0.0, "loss": None, "diverged": True}
            run.records.write(**key, steps=plan.rate_steps, classes=some.classes, **found)


def best_rate(records: Records, head: str) -> float:
    """Return the rate with which an output layer was best; where none is, the one with the smallest loss."""
    tried = records.select(stage="rates", kind="result", head=head)
    if not tried:
        raise ConfigError(f"no learning rate was tried with the output layer {head!r}; add --again --stage rates")
    usable = [one for one in tried if not one["diverged"] and one["loss"] is not None] or tried
    best = max(usable, key=lambda one: (one["accuracy"], -(one["loss"] or 0.0)))
    return float(best["rate"])


def head_checkpoint(run: Run, stage: str, head: str) -> Path:
    """Return where a network is kept while it is trained; that of our default over all videos stays."""
    return run.cache / f"{stage}_{head}.checkpoint"


def run_fewer_videos(run: Run, videos: Videos, plan: Plan) -> None:
    """Train the whole network on fewer videos, where every output layer can take all steps."""
    some = fewer(videos, plan.fewer.classes)
    # Candidates are the paper's layer's. Layers come closer to each other here: points of curves have as many tests.
    sizes = replace(plan, candidates=plan.fewer.candidates, curve_tests=plan.tests)
    for head in heads_of(run):
        train_head(run, "fewer_videos", head, videos, some, sizes, plan.fewer.steps)
        head_checkpoint(run, "fewer_videos", head).unlink(missing_ok=True)


def run_end_to_end(run: Run, videos: Videos, plan: Plan) -> None:
    """Train the whole network with every output layer over all videos; the one that later stages need comes first."""
    for head in sorted(heads_of(run), key=lambda head: head != BASE_HEAD):
        steps = min(plan.steps, plan.slow_steps.get(head, plan.steps))  # no more than the others, however few those are
        train_head(run, "end_to_end", head, videos, videos, plan, steps)
        if head != BASE_HEAD:
            head_checkpoint(run, "end_to_end", head).unlink(missing_ok=True)  # gigabytes each


def train_head(run: Run, stage: str, head: str, everything: Videos, videos: Videos, plan: Plan, steps: int) -> None:
    """Train a whole network with one output layer at its best rate, and record its curve and where it ends."""
    if run.records.done(stage=stage, kind="result", head=head):
        return
    network = warmed_up(run, everything, videos, plan, head)
    rate = best_rate(run.records, head)
    run.console.print(f"  {head}, rate {rate:g}, {steps} steps", highlight=False)
    trained, waited = learn_network(
        run, network, videos, plan, rate, steps, points=plan.points, checkpoint=head_checkpoint(run, stage, head),
        checkpoint_every=max(1, steps // CHECKPOINTS),
    )  # fmt: skip
    final = evaluate(network, evaluation_batches(videos, plan.tests, run.options.seed)(), Metrics([Accuracy()]))
    for point in trained.evaluations:
        run.records.write(stage=stage, kind="evaluation", head=head, **point)
    run.records.write(
        stage=stage, kind="result", head=head, rate=rate, steps=trained.step, seconds=trained.seconds,
        accuracy=final["accuracy"], tests=plan.tests, batch=plan.batch, candidates=plan.candidates,
        ms_per_step=1000 * trained.seconds / trained.step, waited_seconds=waited, classes=videos.classes,
        threads=run.options.threads,
    )  # fmt: skip


def base_network(run: Run, videos: Videos, plan: Plan) -> TrunkAndHead:
    """Return the network with our default layer as stage `end_to_end` left it."""
    network = new_network(plan, videos.classes, BASE_HEAD, run.options.seed)
    load_checkpoint(head_checkpoint(run, "end_to_end", BASE_HEAD), network)
    network.eval()
    return network
