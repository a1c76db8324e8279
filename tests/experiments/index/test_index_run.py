"""A tiny run of the whole experiment, and the committed one."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from layer_cases import quick_run

from experiments.frame.documents import RESULTS
from experiments.frame.records import Records
from experiments.frame.stages import Options, redraw
from experiments.index import EXPERIMENT, sizes
from experiments.index.page import make_page
from experiments.index.stages import run_wordnet
from experiments.index.tables import cells_table, exponent, growth_table, kinds_of, short_table
from experiments.peers.exact import FastestExact
from experiments.peers.manyclass_peer import Manyclass
from experiments.peers.reading import ACCURACY, WINNER

pytestmark = pytest.mark.usefixtures("thread_counts")

STAGES = {"wordnet", "million", "outliers", "growth", "bands", "candidates"}


def test_every_stage_runs_its_page_shows_it_and_resuming_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = replace(
        sizes.QUICK,
        glosses=(600, 16),
        million=(600, 16),
        outliers=(600, 16),
        growth=(2000, 2500),
        layer=(200, 64),
        queries=60,
        contestants=(*(partial(Manyclass, pipeline=name) for name in ("scan", "cells")), FastestExact),
    )
    monkeypatch.setattr(sizes, "QUICK", tiny)
    records = run_stages(tmp_path)
    assert {record["stage"] for record in records.select(kind="result")} == STAGES
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


def test_a_page_without_results_says_what_was_not_run(tmp_path: Path) -> None:
    page = make_page(Records(tmp_path / "records.jsonl"), tmp_path)
    told = " ".join(section.text for section in page.sections)
    assert all(f"Not run yet: stage `{stage}`." in told for stage in STAGES)
    assert page.facts == []


def test_without_wordnet_the_stage_is_left_out_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    monkeypatch.setenv("MANYCLASS_CACHE", str(tmp_path / "cache"))
    run = quick_run(tmp_path, quick=False)
    run_wordnet(run)
    run_wordnet(run)
    assert [record["kind"] for record in run.records.select(stage="wordnet")] == ["missing"]
    assert "Left out: no WordNet" in make_page(run.records, tmp_path).sections[0].text


# The committed run


@pytest.fixture(scope="module")
def committed() -> Records:
    """Return the records of the full run."""
    return Records(RESULTS / "index" / "records.jsonl")


def test_every_stage_was_run_in_full(committed: Records) -> None:
    assert {end["stage"] for end in committed.select(kind="stage_end")} == STAGES
    assert {stage.name for stage in EXPERIMENT.stages(Options(quick=False))} == STAGES
    assert not any(card["options"]["quick"] for card in committed.select(kind="card"))
    assert not committed.select(kind="missing")


def test_the_short_tables_name_the_quickest_of_each_kind(committed: Records) -> None:
    wordnet = {str(row[0]): row for row in short_table(committed, "wordnet", ACCURACY).rows}
    assert wordnet["manyclass (scan with cells)"][1:] == ["87.3", "32.8", "2.94", "68.7"]
    assert wordnet["faiss IVF-PQ fast-scan"][-1] == "cannot"
    assert wordnet["exact softmax in torch"][3:] == ["", ""]
    million = [str(row[0]) for row in short_table(committed, "million", WINNER).rows]
    assert million[0] == "manyclass (scan with cells)"
    assert "ScaNN" not in million  # it never finds 99% of the winners


def test_tables_of_the_documents_are_complete(committed: Records) -> None:
    assert len(cells_table(committed).rows) == 6
    assert [row[0] for row in growth_table(committed).rows] == ["100,000", "1,000,000", "10,000,000"]


def test_exponents_of_growth() -> None:
    line = [{"classes": 10**power, "us": 3.0 * 10 ** (power / 2)} for power in (3, 4, 5)]
    assert exponent(line, "us") == pytest.approx(0.5)


def test_peers_of_a_kind_are_told_by_how_their_names_begin() -> None:
    peers = {"faiss IVF512,PQ{d/4}x4fs,RFlat": [{"a": 1}], "faiss IVF512,PQ{d/2}x4fs,RFlat": [{"a": 2}], "ScaNN": []}
    assert kinds_of(peers)["faiss IVF-PQ fast-scan"] == [{"a": 1}, {"a": 2}]
    assert kinds_of(peers)["faiss flat PQ fast-scan"] == []
