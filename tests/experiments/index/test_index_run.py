"""A tiny run of the whole experiment, and the committed one."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from layer_cases import quick_run, small_layer

from experiments.frame.documents import RESULTS
from experiments.frame.records import Records
from experiments.frame.stages import Options, redraw
from experiments.index import EXPERIMENT, sizes
from experiments.index.contest_tables import ratio, short_table, standings_table, summary_table, update_ratio, won
from experiments.index.defaults import SAMPLES, misled, sample_of
from experiments.index.documents import NOT_YET, texts
from experiments.index.layers import LAYERS
from experiments.index.page import make_page
from experiments.index.paper_table import GOALS
from experiments.index.stages import run_contest
from experiments.index.tables import exponent, growth_table, missed_defaults, speedup_table
from experiments.peers.entries import EXACT, OURS, Entry
from experiments.peers.exact import FastestExact
from experiments.peers.manyclass_peer import Manyclass, SelfConfigured

pytestmark = pytest.mark.usefixtures("thread_counts")

CONTESTS = {"language_model", "han", "wordnet", "million"}
STAGES = CONTESTS | {"defaults", "paper_table", "growth", "outliers", "bands", "candidates"}


def test_every_stage_runs_its_page_shows_it_and_resuming_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = replace(
        sizes.QUICK,
        made=dict.fromkeys(LAYERS, (600, 64, 160)),
        entries=(
            Entry(OURS, {"as build chooses": SelfConfigured}),
            Entry("another", {"scan": partial(Manyclass, pipeline="scan")}),
            Entry(EXACT, {"": FastestExact}),
        ),
        outliers=(600, 16),
        growth=(2000, 2500),
        layer=(200, 64),
        queries=60,
        contestants=(partial(Manyclass, pipeline="scan"), FastestExact),
    )
    monkeypatch.setattr(sizes, "QUICK", tiny)
    records = run_stages(tmp_path)
    kinds = {"judged" if stage in CONTESTS else "result": stage for stage in STAGES}
    assert {record["stage"] for kind in kinds for record in records.select(kind=kind)} == STAGES
    text = redraw(EXPERIMENT, tmp_path).read_text(encoding="utf-8")
    assert "quick run" in text
    assert "Not run yet" not in text
    told = texts(records)
    assert [name for name in told if told[name] == NOT_YET] == ["index_updates", "index_bands"]  # no hnswlib, few bands
    before = len(records.all())
    assert len(run_stages(tmp_path).all()) == before + 1  # the card of the second session


def run_stages(folder: Path) -> Records:
    """Run what is not done of every stage, with the page left for later."""
    run = quick_run(folder)
    run.records.write_card(EXPERIMENT.name, seed=0, threads=1, options=run.options.fixed())
    for stage in EXPERIMENT.stages(run.options):
        stage.run(run)
    return run.records


def test_a_page_without_results_says_what_was_not_run(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    page = make_page(records, tmp_path)
    told = " ".join(section.text for section in page.sections)
    assert all(f"Not run yet: stage `{stage}`." in told for stage in STAGES)
    assert page.facts == []
    assert set(texts(records).values()) == {NOT_YET}


@pytest.mark.parametrize(
    ("name", "reason"),
    [("wordnet", "no WordNet"), ("han", "no trained layer"), ("language_model", "no text for the language model")],
)
def test_a_layer_that_cannot_be_made_is_left_out_by_name(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    monkeypatch.setenv("MANYCLASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MANYCLASS_TEXT", raising=False)
    run = quick_run(tmp_path, quick=False)
    run_contest(run, name)
    run_contest(run, name)
    assert [record["kind"] for record in run.records.select(stage=name)] == ["missing"]
    section = make_page(run.records, tmp_path).sections[list(LAYERS).index(name)]
    assert f"Left out: {reason}" in section.text


# The tables, from records made up


def judged(entry: str, agreement: float, single: float, batch: float, setting: int = 1) -> dict[str, object]:
    """Return a record of a contest, as slow on the judging half as it was on the other."""
    calibration = {"agreement": agreement, "single": single, "batch": batch}
    return {
        "stage": "han", "kind": "judged", "entry": entry, "build": "b", "setting": {"x": setting},
        "calibration": calibration, "agreement": agreement - 0.001, "accuracy_kept": 1.0, "recall_at_10": 0.8,
        "us_single": single, "us_batch": batch, "spread_single": 0.1, "spread_batch": 0.1, "build_seconds": 1.0,
        "bytes_per_class": 10.0, "sample": 0, "queries": 100, "exact_accuracy": 0.5, "floor_single": 1.0,
        "floor_batch": 0.5,
    }  # fmt: skip


def test_the_tables_of_a_contest(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    for one in (
        judged(OURS, 0.95, 10, 5), judged(OURS, 0.995, 40, 20, 2), judged("LoRANN", 0.92, 30, 4),
        judged("ScaNN", 0.85, 1, 1), judged(EXACT, 1.0, 900, 90),
    ):  # fmt: skip
        records.write(**one)
    assert ratio(records, "han", 0.9, "single") == pytest.approx(3)
    assert ratio(records, "han", 0.9, "batch") == pytest.approx(0.8)
    assert ratio(records, "han", 0.99, "single") is None  # no other library gets there
    table = standings_table(records, "han", 0.9, "single")
    assert [row[0] for row in table.rows] == [OURS, "LoRANN", EXACT, "ScaNN (never)"]
    assert [row[3] for row in table.rows][:2] == ["94.9%", "91.9%"]
    assert [won(records, "han", target, "batch") for target in (0.9, 0.97, 0.99)] == [False, True, True]
    assert won(records, "million", 0.9, "batch") is None
    assert summary_table(records, "han").rows[0] == ["≥ 0.9", "one at a time", "10.0", "LoRANN", "30.0", "3.0×", "1.00"]
    short = {str(row[0]): row[1:] for row in short_table(records, "han").rows}
    assert short == {
        f"**{OURS}**": ["10.0 / 5.00", "40.0 / 20.0", "40.0 / 20.0"],
        EXACT: ["900 / 90.0"] * 3,
        "LoRANN": ["30.0 / 4.00", "–", "–"],
    }
    assert "quicker on “A trained image layer” at ≥ 0.9 in batches of 1000 (1.2×)" in texts(records)["index_missed"]
    for entry, spent in ((OURS, 10.0), ("hnswlib", 700.0)):
        records.write(stage="han", kind="update", entry=entry, us_update=spent)
    assert update_ratio(records, "han") == pytest.approx(70)


def test_what_misses_its_goal_is_told(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    for sample, agreement in zip(SAMPLES, (0.98, 0.96, 0.5), strict=True):
        records.write(stage="defaults", kind="result", layer="han", sample=sample, agreement=agreement)
    assert missed_defaults(records) == ["On han, given queries of the layer, it agrees on 98.0% (goal: 99%)."]
    assert len(speedup_table(records).rows) == len(GOALS)


def test_a_misleading_sample_is_half_noise_of_the_same_length() -> None:
    halves = small_layer().halves()
    real = halves.calibration.queries
    assert sample_of(halves, "real") is real
    assert sample_of(halves, "none") is None
    mixed = misled(real)
    np.testing.assert_array_equal(mixed[::2], real[::2])
    np.testing.assert_allclose(np.linalg.norm(mixed, axis=1), np.linalg.norm(real, axis=1), rtol=1e-5)
    assert (np.abs(mixed[1::2] - real[1::2]) > 0).all()


def test_exponents_of_growth() -> None:
    line = [{"classes": 10**power, "us": 3.0 * 10 ** (power / 2)} for power in (3, 4, 5)]
    assert exponent(line, "us") == pytest.approx(0.5)


# The committed run


@pytest.fixture(scope="module")
def committed() -> Records:
    """Return the records of the full run."""
    return Records(RESULTS / "index" / "records.jsonl")


def test_the_committed_run_is_a_full_one_of_these_stages(committed: Records) -> None:
    assert {end["stage"] for end in committed.select(kind="stage_end")} <= STAGES
    assert {stage.name for stage in EXPERIMENT.stages(Options(quick=False))} == STAGES
    assert not any(card["options"]["quick"] for card in committed.select(kind="card"))
    # The image layer takes half an hour or more to train; what was run without it says so.
    assert {record.get("layer") for record in committed.select(kind="missing")} <= {"han"}


def test_growth_is_told_by_size(committed: Records) -> None:
    sizes_told = [row[0] for row in growth_table(committed, "planted neighbours").rows]
    assert sizes_told in ([], ["100,000", "1,000,000", "10,000,000"])
