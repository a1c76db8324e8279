"""Stages `features`, `frozen` and `variance`: what the trained network makes of frames, kept, and used again."""

import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from experiments.datasets.kept_features import FeatureBatches, Features, read_features
from experiments.frame.documents import RESULTS
from experiments.frame.records import Records
from experiments.frame.stages import RECORDS, Run
from experiments.frame.whole_folder import whole_folder
from experiments.video_id.batches import CHUNK, frame_batch
from experiments.video_id.camera import Ids
from experiments.video_id.network import features_and_standardization, new_head, optimizer_of, with_small_rows
from experiments.video_id.plan import Plan
from experiments.video_id.training import base_network, best_rate, heads_of
from experiments.video_id.videos import Videos, evaluation_examples, fewer, training_frames
from experiments.vision.in_class_variance import in_class_variance
from experiments.vision.learning import learn
from manyclass.errors import CorruptFileError
from manyclass.training.evaluation import TrunkAndHead
from manyclass.training.progress import Show

Halves = npt.NDArray[np.float16]
Floats = npt.NDArray[np.float32]
LARGEST_HALF = 65504.0


def _silent(done: float, text: str) -> None:
    """Show nothing."""


def spread_frames(videos: Videos, count: int) -> Ids:
    """Return training frames at even distances."""
    half = training_frames(videos)
    return np.linspace(0, half - 1, min(count, half)).round().astype(np.int64)


@torch.inference_mode()
def features_of(
    network: nn.Module,
    videos: Videos,
    ids: Ids,
    frames: Ids,
    into: Halves | Floats,
    show: Show = _silent,
    done: int = 0,
) -> None:
    """Write what a network makes of these frames into an array of 16 or 32 bits; it is in evaluation mode."""
    for start in range(0, len(ids), CHUNK):
        pictures, _ = frame_batch(videos, ids[start : start + CHUNK], frames[start : start + CHUNK])
        into[start : start + CHUNK] = network(pictures).clamp_(-LARGEST_HALF, LARGEST_HALF).numpy()
        show(done + start + len(pictures), "features")


def kept_features(run: Run) -> Features:
    """Return the kept features."""
    try:
        return read_features(run.cache / "features")
    except (OSError, ValueError, EOFError) as problem:
        raise CorruptFileError(
            f"{run.cache / 'features'} cannot be read ({problem}); run stage features again with --again"
        ) from problem


def run_features(run: Run, videos: Videos, plan: Plan) -> None:
    """Pass frames of all videos through the trained network and keep its last layer."""
    below, standardize = features_and_standardization(base_network(run, videos, plan).trunk)
    frames = spread_frames(videos, plan.kept_frames)
    everything = np.arange(videos.classes, dtype=np.int64)
    examples = {
        "train": (np.repeat(everything, len(frames)), np.tile(frames, videos.classes)),
        "test": evaluation_examples(videos, plan.tests, run.options.seed),
    }
    folder = run.cache / "features"
    shutil.rmtree(folder, ignore_errors=True)  # of a killed session: written, but not yet recorded
    total = sum(len(ids) for ids, _ in examples.values())
    with whole_folder(folder) as unfinished, run.progress(total, "frames") as show:
        done = 0
        for name, (ids, of_video) in examples.items():
            kept = np.lib.format.open_memmap(
                unfinished / f"{name}.npy", "w+", np.float16, (len(ids), plan.trunk.features)
            )
            features_of(below, videos, ids, of_video, kept, show, done)
            kept.flush()
            np.save(unfinished / f"{name}_labels.npy", ids)
            done += len(ids)
        assert standardize.running_mean is not None
        assert standardize.running_var is not None
        np.save(unfinished / "mean.npy", standardize.running_mean.numpy())
        np.save(unfinished / "scale.npy", (standardize.running_var + standardize.eps).rsqrt().numpy())
    run.records.write(
        stage="features", kind="result", train_examples=len(examples["train"][0]), tests=plan.tests,
        frames=len(frames), features=plan.trunk.features, gigabytes=2 * plan.trunk.features * total / 1e9,
    )  # fmt: skip


def run_frozen(run: Run, videos: Videos, plan: Plan) -> None:
    """Train every output layer from nothing on the kept features, for the same seconds each."""
    features = kept_features(run)
    for head in heads_of(run):
        key = {"stage": "frozen", "head": head}
        if run.records.done(**key, kind="result"):
            continue
        rate = best_rate(run.records, head)
        run.console.print(f"  {head}, rate {rate:g}, {plan.frozen_seconds:.0f} s", highlight=False)
        torch.manual_seed(run.options.seed)
        layer = with_small_rows(new_head(head, plan.trunk.features, videos.classes, plan.candidates, plan.frozen_batch))
        trained = learn(
            TrunkAndHead(nn.Identity(), layer), FeatureBatches(features, plan.frozen_batch, run.options.seed),
            optimizer_of(layer, rate), run, seconds=plan.frozen_seconds, tests=features.tests(plan.curve_tests),
            points=plan.points,
        )  # fmt: skip
        for point in trained.evaluations:
            run.records.write(**key, kind="evaluation", **point)
        run.records.write(
            **key, kind="result", rate=rate, steps=trained.step, seconds=trained.seconds, batch=plan.frozen_batch,
            accuracy=trained.evaluations[-1]["accuracy"], ms_per_step=1000 * trained.seconds / trained.step,
        )  # fmt: skip


def run_variance(run: Run, videos: Videos, plan: Plan) -> None:
    """Record how far the frames of a video lie apart, and what the 21k-class task recorded of its pictures."""
    below, _ = features_and_standardization(base_network(run, videos, plan).trunk)
    some, frames = fewer(videos, plan.variance_videos), spread_frames(videos, 8)
    ids, of_video = np.repeat(np.arange(some.classes), len(frames)), np.tile(frames, some.classes)
    found = np.empty((len(ids), plan.trunk.features), np.float16)
    with run.progress(len(ids), "frames") as show:
        features_of(below, some, ids, of_video, found, show)
    run.records.write(stage="variance", kind="result", **in_class_variance(found, ids))
    other = variance_of_21k()
    if other is not None:
        run.records.write(stage="variance", kind="of_21k", **other)


def variance_of_21k(results: Path = RESULTS) -> dict[str, object] | None:
    """Return what the committed run of the experiment imagenet21k says of its in-class variance."""
    path = results / "imagenet21k" / RECORDS
    found = Records(path).last(stage="variance", kind="result") if path.exists() else None
    return None if found is None else {name: value for name, value in found.items() if name not in AROUND}


AROUND = ("stage", "kind", "time")  # fields that belong to a record and not to what it found
