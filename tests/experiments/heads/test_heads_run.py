"""A tiny run of the whole experiment in one process, processes of their own, and the committed run."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from layer_cases import quick_run

from experiments.frame.documents import RESULTS
from experiments.frame.records import Records
from experiments.frame.stages import Options, redraw
from experiments.heads import (
    EXPERIMENT,
    bfloat16,
    learning,
    many_labels,
    per_step,
    same_seconds,
    serving,
    sizes,
    steps,
    ten_million,
)
from experiments.heads.apart import run_apart
from experiments.heads.contestants import ON_TASKS
from experiments.heads.page import make_page
from experiments.heads.sizes import LearningSizes, LiteralSizes, ServingSizes, Sizes, StepSizes, TaskSizes, WideSizes
from experiments.heads.tables import learning_groups, mean_curve, steps_to
from manyclass.errors import ConfigError

pytestmark = pytest.mark.usefixtures("thread_counts")

SECONDS = {f"seconds_{task}" for task in ("demo", "families", "wordnet", "han", "places", "articles")}
PER_STEP = {f"per_step_{task}" for task in ("demo", "families", "places")}
OTHERS = {"steps", "paper_setting", "learning", "momentum", "refresh", "tail", "serving"}
STAGES = SECONDS | PER_STEP | OTHERS | {"bfloat16", "many_labels", "literal", "ten_million"}
TINY = Sizes(
    steps=(StepSizes(200, 16, 4, 10), StepSizes(400, 16, 4, 10)),
    paper_setting=StepSizes(300, 16, 4, 10),
    learning=LearningSizes(60, 4, 2, 20, ("random points",), (0,), periods=(10, 100)),
    samples=(8, 16),
    draws=4,
    tasks={
        "demo": TaskSizes(100, 0.02, 0.1, batch=8, tests=20, skewed=True, steps=10),
        "families": TaskSizes(100, 0.02, 0.1, batch=8, tests=20, skewed=True, steps=10),
        "wordnet": TaskSizes(60, 0.02, 0.1, batch=8, tests=20),
        "han": TaskSizes(40, 0.02, 0.1, batch=8, tests=20, full=False),
        "places": TaskSizes(80, 0.02, 0.1, batch=8, tests=20, skewed=True, steps=10),
        "articles": TaskSizes(300, 0.02, 0.1, batch=8, tests=20, full=False, skewed=True),
    },
    seeds=(0, 1),
    serving=ServingSizes(300, 16, 8, 4, 3, 400, 8),
    literal=LiteralSizes(80, 16, 3, (0.0, 4.0), (0.5,), 500),
    ten_million=WideSizes(300, 16, 4, 3),
)


def run_here(calls: Sequence[Callable[[], Any]], *_: object, **__: object) -> Iterator[tuple[int, Any]]:
    """Do the calls in this process."""
    yield from ((number, call()) for number, call in enumerate(calls))


def test_every_stage_runs_its_page_shows_it_and_resuming_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "QUICK", TINY)
    monkeypatch.setattr(many_labels, "QUICK", many_labels.ManyLabelsSizes((300, 40), 1, (0,)))
    for module in (bfloat16, learning, many_labels, per_step, same_seconds, serving, steps, ten_million):
        monkeypatch.setattr(module, "run_apart", run_here)
    records = run_stages(tmp_path)
    assert {record["stage"] for record in records.select(kind="result")} == STAGES
    trained = {(run["head"], run["seed"]) for run in records.select(stage="seconds_demo", kind="result")}
    assert trained == {(head, seed) for head in ON_TASKS for seed in (0, 1)}
    tried = records.select(stage="seconds_demo", kind="tuning")
    assert len(tried) == 3 * len(ON_TASKS)
    assert {run["seed"] for run in tried} == {0}
    assert {run["head"] for run in records.select(stage="per_step_demo", kind="result")} == {"full", "candidate"}
    without = {run["head"] for run in records.select(stage="seconds_han", kind="result")}
    assert without == {
        "candidate",
        "wta",
        "hierarchical",
        "sampled",
        "sampled 2048",
        "in-batch",
    }  # no full softmax, nothing skewed
    text = redraw(EXPERIMENT, tmp_path).read_text(encoding="utf-8")
    assert "quick run" in text
    assert "Not run yet" not in text
    before = len(records.select(kind="result"))
    assert len(run_stages(tmp_path).select(kind="result")) == before


def run_stages(folder: Path) -> Records:
    """Run what is not done of every stage, with the page left for later."""
    run = quick_run(folder)
    run.records.write_card(EXPERIMENT.name, seed=0, threads=1, options=run.options.fixed())
    for stage in EXPERIMENT.stages(run.options):
        stage.run(run)
    return run.records


def test_only_the_heads_asked_for_are_run() -> None:
    with pytest.raises(ConfigError, match="--head none: there is no such output layer"):
        EXPERIMENT.stages(Options(heads=("none",)))
    assert EXPERIMENT.stages(Options(heads=("full",)))


def test_a_page_without_results_says_what_was_not_run(tmp_path: Path) -> None:
    page = make_page(Records(tmp_path / "records.jsonl"), tmp_path)
    told = " ".join(section.text for section in page.sections)
    assert all(f"Not run yet: stage `{stage}`." in told for stage in OTHERS | SECONDS)
    assert all(f"`{stage}`" in told for stage in PER_STEP)
    assert page.facts == []


def test_without_wordnet_its_runs_are_left_out_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    monkeypatch.setenv("MANYCLASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(learning, "run_apart", run_here)
    run = quick_run(tmp_path, quick=False)
    learning.run_learning(run, "refresh", TINY.learning, [learning.LearningRun("wordnet", "plain", "candidate")])
    assert [record["kind"] for record in run.records.select(stage="refresh")] == ["missing"]
    told = [section.text for section in make_page(run.records, tmp_path).sections]
    assert any("Left out: no WordNet" in text for text in told)


def test_a_task_without_its_data_is_recorded_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCLASS_CACHE", str(tmp_path / "cache"))
    for variable in ("MANYCLASS_GOWALLA", "MANYCLASS_WIKIPEDIA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    run = quick_run(tmp_path, quick=False)
    for task in ("han", "places", "articles"):
        same_seconds.run_same_seconds(run, task, TINY.tasks[task], TINY.seeds, ON_TASKS)
    assert [record["kind"] for record in run.records.all()] == ["missing"] * 3
    told = " ".join(section.text for section in make_page(run.records, tmp_path).sections)
    for way in ("--data", "MANYCLASS_GOWALLA", "MANYCLASS_WIKIPEDIA"):
        assert way in told


def test_a_process_of_its_own_has_the_threads_it_is_given() -> None:
    calls = [os.getpid, torch.get_num_threads, partial(os.getenv, "OMP_WAIT_POLICY")]
    found = dict(run_apart(calls, threads=1, fresh=False))
    assert found[0] != os.getpid()
    assert found[1] == 1
    assert found[2] == os.environ.get("OMP_WAIT_POLICY", "PASSIVE")


def test_the_peak_of_memory_is_that_of_this_process() -> None:
    assert 2**20 < steps.peak_bytes() < 2**40


def test_where_a_curve_reaches_a_level() -> None:
    assert steps_to([(10, 0.2), (20, 0.4)], 0.3) == pytest.approx(15)
    assert steps_to([(10, 0.2), (20, 0.4)], 0.5) is None
    assert mean_curve([[(10, 0.2)], [(10, 0.4)]]) == [(10, pytest.approx(0.3))]


# The committed run


@pytest.fixture(scope="module")
def committed() -> Records:
    """Return the records of the full run."""
    return Records(RESULTS / "heads" / "records.jsonl")


def test_every_stage_was_run_in_full(committed: Records) -> None:
    done = {end["stage"] for end in committed.select(kind="stage_end")}
    assert OTHERS <= done <= STAGES  # the tasks, and what is new, are recorded one by one
    assert {stage.name for stage in EXPERIMENT.stages(Options(quick=False))} == STAGES
    assert not any(card["options"]["quick"] for card in committed.select(kind="card"))


def test_the_runs_of_the_stages_are_those_that_are_recorded(committed: Records) -> None:
    """So that a run that is resumed takes the committed records for what they are."""
    full = sizes.FULL.learning
    runs = {
        "learning": learning.learning_runs(full, ("full", "candidate", "wta")),
        "momentum": learning.momentum_runs(full),
        "refresh": learning.refresh_runs(full),
    }
    for stage, planned in runs.items():
        for plan in planned:
            key = {"task": plan.task, "trunk": plan.trunk, "head": plan.head, "seed": plan.seed}
            assert committed.done(stage=stage, kind="result", steps=full.steps, classes=full.classes, **key)
    for size in sizes.FULL.steps:
        for head in steps.STEP_HEADS:
            done = committed.done(stage="steps", kind="result", head=head, classes=size.classes, batch=size.batch)
            assert done == (head != "full" or size.classes <= steps.FULL_LIMIT)
    assert len(learning_groups(committed)) == 4
