"""Stage `motion`: the paper's explanation put to a test that it could fail.

The paper supposes that updates of few classes work so well on videos because the frames of a video lie near each other
(a low in-class variance). So: the same videos and the same frozen network, a camera that moves more and more, and with
each motion the paper's layer beside the full softmax for the same number of steps. If the supposition holds, the
paper's layer falls behind full softmax as the variance grows. If it keeps up, or falls behind where the variance is
low, the supposition is refuted.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from experiments.frame.stages import Run
from experiments.video_id.batches import CHUNK, Batch
from experiments.video_id.camera import Ids
from experiments.video_id.features import Halves, features_of, spread_frames
from experiments.video_id.network import features_and_standardization, new_head, optimizer_of, with_small_rows
from experiments.video_id.photographs import Photographs
from experiments.video_id.plan import Plan
from experiments.video_id.scenes import Scenes
from experiments.video_id.training import base_network, best_rate, heads_of
from experiments.video_id.videos import Every, Videos, evaluation_examples, fewer
from experiments.vision.in_class_variance import in_class_variance
from experiments.vision.learning import learn
from manyclass.training.evaluation import TrunkAndHead, evaluate
from manyclass.training.metrics import Accuracy, Metrics

STAGE = "motion"
HEADS = ("full", "wta", "candidate")
POINTS = 5


def with_motion(videos: Videos, motion: float) -> Videos | None:
    """Return the same videos with a camera that moves so much; None where it is not ours to move."""
    if isinstance(videos, Every):
        moved = with_motion(videos.videos, motion)
        return None if moved is None else replace(videos, videos=moved)
    return replace(videos, motion=motion) if isinstance(videos, Scenes | Photographs) else None


def run_motion(run: Run, videos: Videos, plan: Plan) -> None:
    """Train the layers on every motion and seed that the records lack."""
    if with_motion(videos, 1.0) is None:
        run.records.write(stage=STAGE, kind="left_out", reason="the camera of films cannot be moved")
        return
    trunk = base_network(run, videos, plan).trunk
    for motion in plan.series.motions:
        moved = with_motion(videos, motion)
        assert moved is not None
        run_one_motion(run, fewer(moved, plan.series.classes), trunk, motion, plan)


@dataclass(frozen=True)
class Kept:
    """Features of one motion's frames, and how the network standardizes them."""

    standardize: nn.Module
    train: Halves
    labels: Ids
    test: Halves
    test_labels: Ids

    @torch.no_grad()
    def examples(self, features: Halves, labels: Ids) -> Batch:
        """Return inputs and classes of an output layer."""
        return self.standardize(torch.from_numpy(features).float()), torch.from_numpy(labels)

    def batches(self, seed: int, size: int) -> Callable[[int], Batch]:
        """Return step → batch."""

        def batch(step: int) -> Batch:
            chosen = np.random.default_rng((seed, step)).integers(0, len(self.labels), size)
            return self.examples(self.train[chosen], self.labels[chosen])

        return batch

    def tests(self) -> list[Batch]:
        """Return what is evaluated on."""
        return self._in_chunks(self.test, self.test_labels)

    def seen(self, count: int) -> list[Batch]:
        """Return some of what was trained on: how well that is known says nothing of how far the halves lie apart."""
        chosen = np.random.default_rng(0).permutation(len(self.labels))[:count]
        return self._in_chunks(self.train[chosen], self.labels[chosen])

    def _in_chunks(self, features: Halves, labels: Ids) -> list[Batch]:
        starts = range(0, len(labels), CHUNK)
        return [self.examples(features[at : at + CHUNK], labels[at : at + CHUNK]) for at in starts]


def keep_features(run: Run, videos: Videos, trunk: nn.Module, plan: Plan) -> Kept:
    """Return the features of training and evaluation frames, in memory."""
    below, standardize = features_and_standardization(trunk)
    frames, width = spread_frames(videos, plan.series.frames), plan.trunk.features
    ids, of_video = np.repeat(np.arange(videos.classes), len(frames)), np.tile(frames, videos.classes)
    test_ids, test_frames = evaluation_examples(videos, plan.series.tests, run.options.seed)
    train, test = np.empty((len(ids), width), np.float16), np.empty((len(test_ids), width), np.float16)
    with run.progress(len(ids) + len(test_ids), "frames") as show:
        features_of(below, videos, ids, of_video, train, show)
        features_of(below, videos, test_ids, test_frames, test, show, len(ids))
    return Kept(standardize, train, ids, test, test_ids)


def run_one_motion(run: Run, videos: Videos, trunk: nn.Module, motion: float, plan: Plan) -> None:
    """Measure the variance at one motion, and train the layers there."""
    key: dict[str, Any] = {"stage": STAGE, "motion": motion}
    wanted = [(head, seed) for head in heads_of(run) if head in HEADS for seed in plan.series.seeds]
    left = [(head, seed) for head, seed in wanted if not run.records.done(**key, kind="result", head=head, seed=seed)]
    if not left and run.records.done(**key, kind="variance"):
        return
    kept = keep_features(run, videos, trunk, plan)
    if not run.records.done(**key, kind="variance"):
        found = in_class_variance(kept.train, kept.labels)
        run.records.write(**key, kind="variance", **{name: found[name] for name in ("mean", "median", "between")})
    for head, seed in left:
        torch.manual_seed(seed)
        rate = best_rate(run.records, head)
        layer = with_small_rows(new_head(head, plan.trunk.features, videos.classes, plan.series.candidates))
        trained = learn(
            TrunkAndHead(nn.Identity(), layer), kept.batches(seed, plan.series.batch),
            optimizer_of(layer, rate), run, steps=plan.series.steps, tests=kept.tests,
            points=POINTS,
        )  # fmt: skip
        curve = [point["accuracy"] for point in trained.evaluations]
        learned = evaluate(TrunkAndHead(nn.Identity(), layer), kept.seen(plan.series.tests), Metrics([Accuracy()]))
        run.records.write(
            **key, kind="result", head=head, seed=seed, steps=trained.step, accuracy=curve[-1], curve=curve,
            on_the_way=float(np.mean(curve)), seen=learned["accuracy"], classes=videos.classes,
            candidates=plan.series.candidates, rate=rate,
        )  # fmt: skip
