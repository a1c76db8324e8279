"""The third experiment from its frames to its page, in miniature; and a process that is killed in the middle of it."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_video_id
import torch
from browser import assert_page_is_whole
from PIL import Image
from rich.console import Console
from tiny_video_id import OPTIONS, PLAN

from experiments.frame.page import write_page
from experiments.frame.records import Records
from experiments.frame.stages import RECORDS, Options, Run, redraw
from experiments.video_id import EXPERIMENT, features, million, plan, training
from experiments.video_id.documents import texts
from experiments.video_id.page import make_page
from manyclass.errors import ConfigError
from manyclass.identification import IdentificationModel

pytestmark = pytest.mark.usefixtures("thread_counts")
FIGURES = {
    "sheet",
    "end_to_end",
    "fewer_videos",
    "frozen",
    "step_parts",
    "variance",
    "motion",
    "million",
    "million_steps",
    "latency",
}


class KilledError(Exception):
    """Stands for the end of a process in the middle of a stage."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the experiment, stopped once in the middle of writing features and resumed."""
    out = tmp_path_factory.mktemp("video_id")
    options = Options(quick=True, threads=1, seed=3)
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", PLAN)
        original, calls = million._note, []

        def stopped_at_the_third(*arguments: object) -> None:
            calls.append(arguments)
            if len(calls) == 3:
                raise KilledError
            original(*arguments)  # type: ignore[arg-type]

        patch.setattr(million, "_note", stopped_at_the_third)
        run = Run(out, options, Records(out / RECORDS), Console(quiet=True))
        run.records.write_card(EXPERIMENT.name, seed=3, threads=1, options=options.fixed())
        for stage in EXPERIMENT.stages(options):
            if stage.name == "scene_features":
                with pytest.raises(KilledError):
                    stage.run(run)
                network = million.fingerprint(million.light_trunk(run, PLAN))
                assert million._done(out / "cache" / "scene_features", network)["scenes"] == 200
                assert million._done(out / "cache" / "scene_features", network + 1)["scenes"] == 0
            stage.run(run)
        assert len(calls) == 4  # one chunk was left
        count = len(run.records.all())
        for stage in EXPERIMENT.stages(options):
            if stage.name in (
                "rates",
                "fewer_videos",
                "end_to_end",
                "step_parts",
                "frozen",
                "motion",
                "million_steps",
                "latency",
            ):
                stage.run(run)  # finds everything done
        assert len(run.records.all()) == count
    redraw(EXPERIMENT, out)
    torch.set_num_threads(threads)
    return out


@pytest.fixture(scope="module")
def records(finished: Path) -> Records:
    return Records(finished / RECORDS)


def test_every_stage_and_every_output_layer_is_run(records: Records) -> None:
    stages = {stage.name for stage in EXPERIMENT.stages(Options(quick=True))}
    assert {one["stage"] for one in records.select(kind="result")} == stages
    for stage in ("end_to_end", "fewer_videos", "frozen", "step_parts", "million_steps"):
        assert {one["head"] for one in records.select(stage=stage, kind="result")} == set(training.HEADS)
    tried = records.select(stage="rates", kind="result")
    assert sorted({one["rate"] for one in tried}) == sorted(PLAN.rates)
    assert len(tried) == len(PLAN.rates) * len(training.HEADS)
    for head in training.HEADS:
        result = records.last(stage="end_to_end", kind="result", head=head)
        assert result is not None
        assert result["rate"] == training.best_rate(records, head)
        assert result["steps"] == PLAN.slow_steps.get(head, PLAN.steps)


def test_the_parts_of_a_step_add_up(records: Records) -> None:
    for one in records.select(stage="step_parts", kind="result"):
        parts = [one[f"{part}_ms"] for part in ("frames", "trunk", "find", "logits", "update", "refresh")]
        assert one["step_ms"] == pytest.approx(sum(parts))
        assert one["trunk_ms"] > 0
        assert (one["find_ms"] > 0) == (one["head"] in ("wta", "mined"))


def test_both_variances_are_recorded(records: Records) -> None:
    ours, theirs = (records.last(stage="variance", kind=kind) for kind in ("result", "of_21k"))
    assert ours is not None
    assert 0 < ours["mean"] < ours["between"]
    assert theirs is not None
    assert theirs["mean"] == features.variance_of_21k()["mean"]  # type: ignore[index]
    moved = {one["motion"]: one["mean"] for one in records.select(stage="motion", kind="variance")}
    assert moved[2.0] > moved[0.25]  # the series moves what it says


def test_the_nearest_mean_is_exact(finished: Path, records: Records) -> None:
    run = Run(finished, OPTIONS, records, Console(quiet=True))
    kept = million.scene_features(run)
    means = np.asarray(kept.train, np.float32).mean(axis=1)
    queries = np.asarray(kept.test, np.float32)
    nearest = ((queries[:, None] - means[None]) ** 2).sum(2).argmin(1)
    recorded = records.last(stage="million", kind="nearest_mean")
    assert recorded is not None
    assert recorded["accuracy"] == pytest.approx((nearest == kept.test_labels).mean())


def test_blocks_of_rows_give_what_all_rows_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(million, "ROWS_AT_ONCE", 7)
    torch.manual_seed(0)
    rows, bias, queries = torch.randn(30, 5), torch.randn(30), torch.randn(11, 5)
    assert million.best_rows(rows, bias, queries).equal((queries @ rows.T + bias).argmax(1))


def test_memory_of_a_class_is_told(records: Records) -> None:
    trained = records.last(stage="million", kind="result")
    assert trained is not None
    assert trained["row_bytes"] == 4 * (PLAN.million.trunk.features + 1)
    assert trained["state_bytes"] >= 0
    assert records.done(stage="latency", kind="result")


def test_the_saved_model_identifies(finished: Path, records: Records) -> None:
    model = IdentificationModel.load(finished / "model")
    assert model.classes == PLAN.scenes
    frames = sorted((finished / "frames").iterdir())
    found = model.identify(frames)
    right = [one.matches[0].number == int(path.stem.split()[-1]) for one, path in zip(found, frames, strict=True)]
    told = records.last(stage="model", kind="result")
    assert told is not None
    assert told["first_is_right"] == pytest.approx(np.mean(right))
    assert found[0].matches[0].name.startswith("scene ")


def test_the_page_shows_all_of_it(finished: Path, records: Records) -> None:
    assert_page_is_whole(finished / "report.html", FIGURES)
    text = (finished / "report.html").read_text(encoding="utf-8")
    assert "Not measured yet" not in text
    told = texts(records)
    assert all(name.startswith("video_id_") for name in told)
    assert told["video_id_end_to_end"].count("\n") == 1 + len(training.HEADS)


def test_a_page_of_nothing_says_so(tmp_path: Path) -> None:
    empty = Records(tmp_path / RECORDS)
    page = write_page(make_page(empty, tmp_path), tmp_path).read_text(encoding="utf-8")
    for stage in (
        "frames",
        "end_to_end",
        "rates",
        "step_parts",
        "frozen",
        "variance",
        "motion",
        "light_trunk",
        "model",
    ):
        assert f"Not measured yet: stage <code>{stage}</code>" in page
    assert "Not measured yet" in texts(empty)["video_id_end_to_end"]


def test_an_output_layer_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="--head wtf: there is no such output layer"):
        EXPERIMENT.stages(Options(quick=True, heads=("wtf",)))


def test_a_few_videos_of_ones_own_become_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "QUICK", replace(PLAN, steps=30))
    for number in range(3):
        (tmp_path / "films" / f"film {number}").mkdir(parents=True)
        for place in range(8):
            picture = np.full((20, 24, 3), 0, np.uint8)
            picture[:, :, number] = 150 + 10 * place
            Image.fromarray(picture).save(tmp_path / "films" / f"film {number}" / f"{place}.png")
    options = replace(OPTIONS, data=tmp_path / "films")
    run = Run(tmp_path / "out", options, Records(tmp_path / "out" / RECORDS), Console(quiet=True))
    for stage in EXPERIMENT.stages(options):
        if stage.name in (*tiny_video_id.TRAINING, "variance", "motion", "model"):
            stage.run(run)
    model = IdentificationModel.load(tmp_path / "out" / "model")
    found = model.identify([tmp_path / "films" / "film 2" / "7.png"], k=10)[0]
    assert sorted(match.name for match in found.matches) == ["film 0", "film 1", "film 2"]
    assert sum(match.probability for match in found.matches) == pytest.approx(1, abs=1e-4)
    assert run.records.done(stage="motion", kind="left_out")
    assert "Left out: the camera of films cannot be moved" in redraw(EXPERIMENT, run.out).read_text(encoding="utf-8")


# Killed and resumed


def curve(out: Path) -> list[tuple[int, float]]:
    found = Records(out / RECORDS).select(stage="end_to_end", kind="evaluation")
    return [(point["step"], point["accuracy"]) for point in found]


def test_a_killed_process_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resumed curve is that of a run that nobody stopped."""
    monkeypatch.setattr(plan, "QUICK", PLAN)
    tiny_video_id.run_training(tmp_path / "whole", resume=False)
    out = tmp_path / "killed"
    program = f"import tiny_video_id, pathlib; tiny_video_id.run_training(pathlib.Path({str(out)!r}), resume=False)"
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), str(root / "tests" / "experiments")])
    process = subprocess.Popen([sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path})
    checkpoint = training.head_checkpoint(
        Run(out, OPTIONS, Records(out / RECORDS), Console(quiet=True)), "end_to_end", "candidate"
    )
    try:
        deadline = time.monotonic() + 120
        while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert checkpoint.exists()
    assert not Records(out / RECORDS).done(stage="end_to_end", kind="result")  # it was killed before its end
    tiny_video_id.run_training(out, resume=True)
    assert len(curve(out)) == PLAN.points
    assert curve(out) == curve(tmp_path / "whole")
    records = Records(out / RECORDS)
    assert len(records.select(kind="card")) == 2
    assert {one["head"] for one in records.select(kind="result") if "head" in one} == {"candidate"}  # as was wanted
