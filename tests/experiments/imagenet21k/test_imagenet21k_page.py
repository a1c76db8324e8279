"""The page of the experiment: everything the paper shows is there, and what it says follows from the records."""

import json
import re
from pathlib import Path

import pytest
from browser import assert_page_is_whole
from synthetic_records import STAGES, write_records

from experiments.frame.page import Figure, Page, Table, write_page
from experiments.frame.records import Records
from experiments.imagenet21k import paper, results
from experiments.imagenet21k.documents import texts
from experiments.imagenet21k.page import differences_section, facts, make_page
from experiments.imagenet21k.page_layer import (
    accuracy_text,
    layer_sections,
    table_candidates,
    trade_off_text,
)

FIGURES = {"base", "accuracy", "trade_off", "batches", "heads", "end_to_end", "variance"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, Path]:
    """Return the page of a complete run, and where it was written."""
    out = tmp_path_factory.mktemp("complete")
    page = make_page(write_records(out / "records.jsonl"), out / "figures")
    return page, write_page(page, out)


def rewritten(path: Path, change: dict[str, object], **where: object) -> Records:
    """Return the records of a run with fields of some of them changed."""
    lines = [json.loads(line) for line in write_records(path).path.read_text().splitlines()]
    for line in lines:
        if all(line.get(name) == value for name, value in where.items()):
            line.update(change)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Records(path)


def test_every_figure_is_on_the_page_and_beside_it(made: tuple[Page, Path]) -> None:
    page, path = made
    assert {part.name for section in page.sections for part in section.parts if isinstance(part, Figure)} == FIGURES
    for name in FIGURES:
        assert (path.parent / "figures" / f"{name}.svg").exists()
        assert (path.parent / "figures" / f"{name}.png").exists()


def test_a_browser_shows_the_whole_page(made: tuple[Page, Path]) -> None:
    assert_page_is_whole(made[1], FIGURES)


def test_the_complete_page_has_nothing_left_to_run(made: tuple[Page, Path]) -> None:
    assert "ot run yet" not in made[1].read_text()


def test_the_papers_table_stands_beside_ours(made: tuple[Page, Path]) -> None:
    section = next(section for section in made[0].sections if section.title == "Time of the layer alone")
    tables = [part for part in section.parts if isinstance(part, Table)]
    assert len(tables) == 2
    for table in tables:
        printed = [row[-2] for row in table.rows]
        assert printed == [f"{paper.SPEEDUP[batch, k]:g}×" for batch in paper.BATCHES for k in paper.CANDIDATES]
        assert [row[0] for row in table.rows] == [batch for batch in paper.BATCHES for _ in paper.CANDIDATES]


def test_the_printed_speedups_are_those_of_the_printed_times() -> None:
    for (batch, candidates), spent in paper.WTA_MS.items():
        assert paper.SPEEDUP[batch, candidates] == pytest.approx(paper.SOFTMAX_MS[batch] / spent, rel=0.03)


def test_a_run_that_has_only_begun_names_the_stages_to_come(tmp_path: Path) -> None:
    page = make_page(write_records(tmp_path / "records.jsonl", stages=()), tmp_path)
    text = write_page(page, tmp_path).read_text()
    for stage in STAGES:
        assert re.search(f"Not run yet: stage .*<code>{stage}</code>", text), stage
    assert not page.facts


@pytest.mark.parametrize("stage", ["data", "base", "softmax_layer", "heads", "variance"])
def test_any_stage_alone_makes_a_page(tmp_path: Path, stage: str) -> None:
    write_page(make_page(write_records(tmp_path / "records.jsonl", stages=(stage,)), tmp_path), tmp_path)


def test_a_quick_run_says_so(tmp_path: Path) -> None:
    assert "quick run" in make_page(write_records(tmp_path / "records.jsonl", (), quick=True), tmp_path).lead
    assert "quick run" not in make_page(write_records(tmp_path / "full.jsonl", ()), tmp_path).lead


def test_verdicts_follow_the_records(tmp_path: Path) -> None:
    cells = results.layer_cells(write_records(tmp_path / "good.jsonl"))
    assert "99%, reached" in accuracy_text(cells)
    assert "the goal of 50× at 99% is reached" in trade_off_text(cells)
    worse = rewritten(tmp_path / "worse.jsonl", {"accuracy_kept": 0.98}, stage="layer", pipeline="default")
    assert "99%, not reached" in accuracy_text(results.layer_cells(worse))
    assert "the goal is not reached" in trade_off_text(results.layer_cells(worse))
    exact_ms = results.layer_cells(write_records(tmp_path / "exact.jsonl"))["default", 1, 30]["exact_ms"]
    slower = rewritten(tmp_path / "slower.jsonl", {"ours_ms": exact_ms / 20}, stage="layer", pipeline="default")
    assert "the goal of 50× at 99% is not reached" in trade_off_text(results.layer_cells(slower))
    assert facts(slower)[0].value == "20×"


def test_the_page_says_what_the_default_learned_from(tmp_path: Path) -> None:
    said = "configured by itself to the rows and 6,000 training features"
    learned = rewritten(tmp_path / "learned.jsonl", {"learned_from": 6000}, stage="layer", pipeline="default")
    for records, times in ((learned, 2), (write_records(tmp_path / "before.jsonl"), 0)):
        assert write_page(make_page(records, tmp_path), tmp_path).read_text().count(said) == times


def test_a_layer_that_is_never_right_is_drawn(tmp_path: Path) -> None:
    never = {"accuracy_kept": None, "accuracy": 0.0, "exact_accuracy": 0.0}
    assert layer_sections(rewritten(tmp_path / "records.jsonl", never, stage="layer"), tmp_path)


def test_few_classes_end_with_all_of_them(tmp_path: Path) -> None:
    records = write_records(tmp_path / "records.jsonl", ("layer",))
    cells = {key: cell for key, cell in results.layer_cells(records).items() if key[2] <= 500}
    assert table_candidates(cells, "default") == [30, 300, 500]
    assert table_candidates(results.layer_cells(records), "paper") == [30, 300, 3000]


def test_a_repeated_measurement_counts_as_it_was_taken_last(tmp_path: Path) -> None:
    records = write_records(tmp_path / "records.jsonl", ("layer", "heads"))
    cell = results.layer_cells(records)["default", 1, 30]
    records.write(**{**cell, "ours_ms": cell["exact_ms"] / 123})
    assert results.layer_cells(records)["default", 1, 30]["speedup"] == pytest.approx(123)
    records.write(stage="heads", head="full", kind="evaluation", step=400, seconds=1.0, accuracy=0.123)
    curve = results.curves(records, "heads")["full", None, None]
    assert [point["step"] for point in curve] == list(range(0, 2001, 200))
    assert curve[2]["accuracy"] == 0.123


def test_own_images_are_no_difference_to_explain_away(tmp_path: Path) -> None:
    table = differences_section(rewritten(tmp_path / "r.jsonl", {"source": "folder"}, stage="data")).parts[0]
    assert isinstance(table, Table)
    assert "--data" in str(table.rows[0][3])
    assert "may not be passed on" not in str(table.rows[0][3])


def test_an_exact_batch_takes_no_longer_than_its_parts_or_a_larger_one(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    for batch, exact_ms in ((1, 9.0), (2, 22.0), (4, 30.0), (64, 100.0), (128, 90.0)):
        records.write(stage="layer", pipeline="default", candidates=30, batch=batch, ours_ms=1.0, exact_ms=exact_ms)
    found = {batch: cell["exact_ms"] for (_, batch, _), cell in results.layer_cells(records).items()}
    assert found == {1: 9, 2: 18, 4: 30, 64: 90, 128: 90}
    assert results.layer_cells(records)["default", 2, 30]["speedup"] == 18


def test_times_that_differ_by_chance_do_not_choose_the_candidates(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    for candidates, ours_ms, share in ((10, 0.1, 0.98), (20, 0.3, 0.992), (50, 0.2, 0.999)):
        records.write(stage="layer", pipeline="default", candidates=candidates, batch=1, ours_ms=ours_ms,
                      exact_ms=9.0, accuracy_kept=share)  # fmt: skip
    chosen = results.fewest(results.layer_cells(records), "default", 1, 0.99)
    assert chosen is not None
    assert chosen["candidates"] == 20
    assert results.fewest(results.layer_cells(records), "default", 1, 0.9999) is None


@pytest.mark.parametrize(
    ("record", "series", "name"),
    [
        ({"head": "full"}, ("full", None, None), "full softmax"),
        ({"head": "wta", "candidates": 30}, ("wta", 30, None), "WTA softmax (the paper's layer), K = 30"),
        ({"head": "candidate"}, ("candidate", None, None), "candidate softmax"),
        ({"head": "candidate", "rule": "default"}, ("candidate", None, "default"),
         "candidate softmax, as it is by default"),
        ({"head": "candidate", "rule": "looked up"}, ("candidate", None, "looked up"),
         "candidate softmax, looked up for every example"),
        ({"head": "candidate", "candidates": 3000, "rule": "own"}, ("candidate", 3000, "own"),
         "candidate softmax, own candidates, K = 3,000"),
    ],
)  # fmt: skip
def test_heads_are_called_by_what_they_do(record: dict[str, object], series: results.Series, name: str) -> None:
    assert results.series_of(record) == series
    assert results.name_of(series) == name


def test_the_texts_of_documents_follow_the_records(tmp_path: Path) -> None:
    records = rewritten(tmp_path / "good.jsonl", {"accuracy_kept": 0.995}, stage="layer", pipeline="paper")
    records.write(stage="softmax_layer", kind="result", accuracy=0.71, by_style={"Song": 0.7, "Kai": 0.72})
    found = texts(records)
    assert "71.0%" in found["imagenet21k_exact_layer"]
    assert "candidate softmax, own candidates, K = 30 / 300 / 3000" in found["imagenet21k_heads"]
    assert all("None" not in text and "nan" not in text for text in found.values())
