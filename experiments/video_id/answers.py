"""Stages `latency` and `model`: one frame asked for its video, among 1.2 million and with the saved model."""

import statistics
from functools import partial

import numpy as np
import torch

import manyclass.torch as mct
from experiments.frame.stages import Run
from experiments.peers.timing import timed_runs
from experiments.video_id.features import features_of
from experiments.video_id.million import best_rows, million_checkpoint, million_head, scene_features
from experiments.video_id.plan import Plan
from experiments.video_id.training import base_network
from experiments.video_id.videos import Videos, evaluation_examples, training_frames
from manyclass.identification import IdentificationModel
from manyclass.index import ClassIndex
from manyclass.torch.checkpoint import load_checkpoint
from manyclass.training.evaluation import TrunkAndHead

SHARE = 0.99  # of the exact accuracy
SAMPLE, LEAST_SAMPLE = 4000, 256  # training features that an index is fitted to
FRAMES = 32  # that the saved model is asked


def run_latency(run: Run, plan: Plan) -> None:
    """Record accuracy and time of one query on one core, by candidates, beside the exact answer."""
    features = scene_features(run)
    model = TrunkAndHead(torch.nn.Identity(), million_head(run, plan))
    load_checkpoint(million_checkpoint(run), model)
    head = model.head
    assert isinstance(head, mct.CandidateSoftmax)
    linear = head.to_linear()
    rows, bias = linear.weight.detach(), linear.bias.detach()
    queries, labels = features.queries()[: plan.million.queries], features.test_labels[: plan.million.queries]
    exact = float((best_rows(rows, bias, queries).numpy() == labels).mean())
    sample, _ = features.batches(min(SAMPLE, 2 * len(rows)), run.options.seed)(0)
    index = ClassIndex.build(
        rows.numpy(), bias=bias.numpy(), queries=sample.numpy(), optimize="single", target=SHARE,
        threads=run.options.threads,
    )  # fmt: skip
    asked = queries.numpy()
    for candidates in sorted({*plan.million.candidates, index.config.candidates}):
        key = {"stage": "latency", "kind": "result", "candidates": candidates}
        if run.records.done(**key) or candidates > len(rows):
            continue
        found = index.search(asked, 1, candidates=candidates, threads=run.options.threads).classes[:, 0]
        timed = timed_runs(partial(index.search, k=1, candidates=candidates, threads=1), asked, batch=1)
        run.records.write(
            **key, accuracy=float((found == labels).mean()), exact_accuracy=exact, us=timed.median,
            spread=timed.spread, pipeline=index.config.pipeline, classes=len(rows), features=index.features,
            index_bytes=sum(size for part, size in index.memory_report().items() if part != "rows"),
        )  # fmt: skip


def identification_model(run: Run, videos: Videos, plan: Plan) -> IdentificationModel:
    """Return the trained network with our default layer as a model that identifies frames."""
    network = base_network(run, videos, plan)
    head, trunk = network.head, network.trunk
    assert isinstance(head, mct.CandidateSoftmax)
    assert isinstance(trunk, torch.nn.Sequential)
    linear = head.to_linear()
    random = np.random.default_rng(run.options.seed)
    ids = random.integers(0, videos.classes, max(LEAST_SAMPLE, min(SAMPLE, 4 * videos.classes)))
    frames = random.integers(0, training_frames(videos), len(ids))
    queries = np.empty((len(ids), head.in_features), np.float32)
    features_of(trunk, videos, ids, frames, queries)
    index = ClassIndex.build(
        linear.weight.detach().numpy(), bias=linear.bias.detach().numpy(), queries=queries, optimize="single",
        names=[videos.name(number) for number in range(videos.classes)], threads=run.options.threads,
    )  # fmt: skip
    return IdentificationModel(trunk, index, videos.side)


def run_model(run: Run, videos: Videos, plan: Plan) -> None:
    """Save the model into OUT/model, open it as a user would, and ask it for frames that are stored as pictures."""
    from PIL import Image

    identification_model(run, videos, plan).save(run.out / "model")
    model = IdentificationModel.load(run.out / "model", mmap=True)
    ids, frames = evaluation_examples(videos, min(FRAMES, plan.tests), run.options.seed)
    pixels = (videos.pictures(ids, frames).permute(0, 2, 3, 1).numpy() * 255).round().astype(np.uint8)
    folder = run.out / "frames"
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{place:02d} of {number}.png" for place, number in enumerate(ids)]
    for path, picture in zip(paths, pixels, strict=True):
        Image.fromarray(picture).save(path)
    found = model.identify(paths)
    spent = [one.milliseconds for one in found[1:]]  # the first one warms up
    run.records.write(
        stage="model", kind="result", classes=model.classes, frames=len(found), features=model.index.features,
        first_is_right=float(np.mean([one.matches[0].number for one in found] == ids)),
        **{f"{part}_ms": statistics.median(getattr(one, part) for one in spent)
           for part in ("reading", "network", "classes", "total")},
    )  # fmt: skip
