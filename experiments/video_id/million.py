"""Stages `light_trunk`, `scene_features` and `million`: an output layer over 1.2 million made scenes.

End to end there is no time for several examples of each on two cores. So a light network is trained on fewer scenes,
frames of all of them pass through it once, and the output layer is trained on what it gives, beside the exact nearest
class mean on the same features.
"""

import json
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import manyclass.torch as mct
from experiments.frame.stages import Run
from experiments.video_id.batches import CHUNK, Batch, FrameBatches, evaluation_batches
from experiments.video_id.camera import Ids
from experiments.video_id.features import Halves, features_of, spread_frames
from experiments.video_id.network import MOMENTUM, new_trunk
from experiments.video_id.plan import Plan
from experiments.video_id.scenes import Scenes
from experiments.video_id.training import CHECKPOINTS
from experiments.video_id.videos import evaluation_examples, fewer
from experiments.vision.learning import learn
from manyclass._atomic_file import replacement, write_all
from manyclass.torch.checkpoint import load_checkpoint
from manyclass.training.evaluation import TrunkAndHead

Floats = npt.NDArray[np.float32]
ROWS_AT_ONCE = 100_000  # of the exact products
POINTS = 8  # of a curve; at each of them the index over all scenes is built anew


def scenes_of(run: Run, plan: Plan) -> Scenes:
    """Return the scenes of these stages."""
    return Scenes(plan.million.classes, plan.frames, plan.side, run.options.seed)


# The light network


def light_network(run: Run, plan: Plan, classes: int) -> TrunkAndHead:
    """Return an untrained light network over fewer scenes.

    With the exact softmax, as the network of the videos warms up: the fewer scenes, each met the more often, teach
    features that tell other scenes apart, too. Of 20,000 scenes that come by 50 times it learned a tenth of that.
    """
    torch.manual_seed(run.options.seed)
    sizes = plan.million.trunk
    return TrunkAndHead(new_trunk(sizes, plan.side), mct.FullSoftmax(sizes.features, classes))


def light_checkpoint(run: Run) -> Path:
    """Return where it is kept."""
    return run.cache / "light_trunk.checkpoint"


def run_light_trunk(run: Run, plan: Plan) -> None:
    """Train the light network on fewer scenes."""
    sizes, some = plan.million, fewer(scenes_of(run, plan), plan.million.light_classes)
    network = light_network(run, plan, some.classes)
    optimizer = mct.RowSGD(network.parameters(), lr=sizes.light_rate, momentum=MOMENTUM)
    with FrameBatches(some, sizes.light_batch, run.options.seed) as batches:
        trained = learn(
            network, batches, optimizer, run, steps=sizes.light_steps, final_rate=plan.warm_up_final_rate,
            tests=evaluation_batches(some, plan.curve_tests, run.options.seed), points=POINTS,
            checkpoint=light_checkpoint(run), checkpoint_every=max(1, sizes.light_steps // CHECKPOINTS),
        )  # fmt: skip
    run.records.write(
        stage="light_trunk", kind="result", classes=some.classes, steps=trained.step, seconds=trained.seconds,
        accuracy=trained.evaluations[-1]["accuracy"], batch=sizes.light_batch, features=sizes.trunk.features,
        waited_seconds=batches.waited,
    )  # fmt: skip


def light_trunk(run: Run, plan: Plan) -> nn.Module:
    """Return the trained light network below its output layer, in evaluation mode."""
    network = light_network(run, plan, fewer(scenes_of(run, plan), plan.million.light_classes).classes)
    load_checkpoint(light_checkpoint(run), network)
    return network.trunk.eval()


# Features of all scenes


@dataclass(frozen=True)
class SceneFeatures:
    """What the light network makes of all scenes, in 16 bits. train: (classes, frames, features)."""

    train: npt.NDArray[np.float16]
    test: Halves
    test_labels: Ids

    def batches(self, size: int, seed: int) -> Any:
        """Return step → (features, scenes): frames of random scenes, each frame once per pass, nearly."""
        classes, frames, _ = self.train.shape

        def batch(step: int) -> Batch:
            random = np.random.default_rng((seed, step))
            ids = np.sort(random.integers(0, classes, size))  # reads the file from front to back
            chosen = self.train[ids, random.integers(0, frames, size)]
            return torch.from_numpy(chosen).float(), torch.from_numpy(ids)

        return batch

    def tests(self) -> list[Batch]:
        """Return what is evaluated on."""
        queries, labels = self.queries(), torch.from_numpy(np.array(self.test_labels))
        return list(zip(queries.split(CHUNK), labels.split(CHUNK), strict=True))

    def queries(self) -> Tensor:
        """Return the features of all frames of evaluation."""
        return torch.from_numpy(np.asarray(self.test, np.float32))

    def means(self) -> Floats:
        """Return the mean feature of each scene's training frames."""
        found = np.empty((len(self.train), self.train.shape[2]), np.float32)
        for start in range(0, len(found), ROWS_AT_ONCE):
            found[start : start + ROWS_AT_ONCE] = self.train[start : start + ROWS_AT_ONCE].mean(
                axis=1, dtype=np.float32
            )
        return found


def run_scene_features(run: Run, plan: Plan) -> None:
    """Keep the features of all scenes; a killed session is gone on with from its last whole chunk."""
    scenes, sizes, trunk = scenes_of(run, plan), plan.million, light_trunk(run, plan)
    frames, width = spread_frames(scenes, sizes.frames), sizes.trunk.features
    folder = run.cache / "scene_features"
    folder.mkdir(exist_ok=True)
    kept = _opened(folder / "train.npy", (scenes.classes, len(frames), width))
    network = fingerprint(trunk)
    done = _done(folder, network)
    started = time.perf_counter()
    with run.progress(scenes.classes, "scenes") as show:
        for start in range(done["scenes"], scenes.classes, sizes.chunk):
            end = min(start + sizes.chunk, scenes.classes)
            ids = np.repeat(np.arange(start, end), len(frames))
            part = kept[start:end].reshape(-1, width)
            features_of(trunk, scenes, ids, np.tile(frames, end - start), part)
            kept.flush()
            spent = done["seconds"] + time.perf_counter() - started
            _note(folder, {"scenes": end, "seconds": spent, "network": network})
            show(end, "")
    test_ids, test_frames = evaluation_examples(scenes, sizes.tests, run.options.seed)
    tests = np.empty((sizes.tests, width), np.float16)
    features_of(trunk, scenes, test_ids, test_frames, tests)
    np.save(folder / "test.npy", tests)
    np.save(folder / "test_labels.npy", test_ids)
    run.records.write(
        stage="scene_features", kind="result", classes=scenes.classes, frames=len(frames), features=width,
        tests=sizes.tests, gigabytes=kept.nbytes / 1e9, seconds=_done(folder, network)["seconds"],
    )  # fmt: skip


def scene_features(run: Run) -> SceneFeatures:
    """Return the kept features of all scenes."""
    folder = run.cache / "scene_features"
    return SceneFeatures(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("train", "test", "test_labels")))


def _opened(path: Path, shape: tuple[int, ...]) -> np.memmap[Any, np.dtype[np.float16]]:
    """Return the file to write into; it takes its name when it has its whole length."""
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        np.lib.format.open_memmap(unfinished, "w+", np.float16, shape).flush()
        unfinished.rename(path)
    opened: np.memmap[Any, np.dtype[np.float16]] = np.lib.format.open_memmap(path, "r+")
    return opened


def fingerprint(network: nn.Module) -> int:
    """Return a number that another network hardly has: features of another one are not gone on with."""
    found = 0
    for tensor in network.state_dict().values():
        found = zlib.crc32(tensor.numpy().tobytes(), found)
    return found


def _done(folder: Path, network: int) -> dict[str, Any]:
    """Return how far the features of this network have come."""
    path = folder / "done.json"
    done: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
    return done if done.get("network") == network else {"scenes": 0, "seconds": 0.0}


def _note(folder: Path, done: dict[str, Any]) -> None:
    with replacement(str((folder / "done.json").resolve())) as file:
        write_all(file, json.dumps(done).encode())


# The output layer


def million_checkpoint(run: Run) -> Path:
    """Return where the output layer over all scenes is kept."""
    return run.cache / "million.checkpoint"


def million_head(run: Run, plan: Plan) -> mct.CandidateSoftmax:
    """Return an untrained output layer over all scenes."""
    torch.manual_seed(run.options.seed)
    return mct.CandidateSoftmax(plan.million.trunk.features, plan.million.classes)


def run_million(run: Run, plan: Plan) -> None:
    """Train the output layer on the kept features for the planned time, and judge it beside the nearest class mean."""
    sizes, features = plan.million, scene_features(run)
    key = {"stage": "million", "kind": "nearest_mean"}
    if not run.records.done(**key):
        started = time.perf_counter()
        run.records.write(**key, accuracy=nearest_mean_accuracy(features), seconds=time.perf_counter() - started)
    head = million_head(run, plan)
    optimizer = mct.RowAdagrad(head.parameters(), lr=sizes.rate)
    trained = learn(
        TrunkAndHead(nn.Identity(), head), features.batches(sizes.batch, run.options.seed), optimizer, run,
        seconds=sizes.seconds, tests=features.tests, points=POINTS, checkpoint=million_checkpoint(run),
        checkpoint_every=sizes.seconds / CHECKPOINTS,
    )  # fmt: skip
    for point in trained.evaluations:
        run.records.write(stage="million", kind="evaluation", **point)
    run.records.write(
        stage="million", kind="result", classes=sizes.classes, steps=trained.step, seconds=trained.seconds,
        batch=sizes.batch, rate=sizes.rate, accuracy=trained.evaluations[-1]["accuracy"],
        epochs=trained.step * sizes.batch / features.train[:, :, 0].size, **bytes_per_class(head, optimizer),
    )  # fmt: skip


def bytes_per_class(head: mct.CandidateSoftmax, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Return what a class takes in memory while it is trained: row and bias, the optimizer's state, the index."""
    parameters = sum(parameter.nbytes for parameter in head.parameters())
    states = sum(
        value.nbytes for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)
    )
    extra = sum(tensor.nbytes for name, tensor in head.extra_tensors().items() if not name.startswith("tables."))
    built = head.index.built
    index = 0.0 if built is None else sum(size for part, size in built.memory_report().items() if part != "rows")
    sizes = {"row_bytes": parameters, "state_bytes": states, "memory_bytes": extra}
    return {name: size / head.num_classes for name, size in sizes.items()} | {"index_bytes": index}


def nearest_mean_accuracy(features: SceneFeatures) -> float:
    """Return how often the nearest of all class means is the right one: an exact search, block by block."""
    means = torch.from_numpy(features.means())
    halves = means.square().sum(1) / 2  # |x - m|² is smallest where x·m - |m|²/2 is largest
    found = best_rows(means, -halves, features.queries())
    return float((found.numpy() == features.test_labels).mean())


@torch.no_grad()
def best_rows(rows: Tensor, bias: Tensor, queries: Tensor) -> Tensor:
    """Return for each query the row with the largest product and bias."""
    best = torch.full((len(queries),), -torch.inf)
    found = torch.zeros(len(queries), dtype=torch.int64)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        logits = torch.addmm(bias[start : start + ROWS_AT_ONCE], queries, rows[start : start + ROWS_AT_ONCE].T)
        value, place = logits.max(dim=1)
        better = value > best
        best, found = torch.where(better, value, best), torch.where(better, place + start, found)
    return found
