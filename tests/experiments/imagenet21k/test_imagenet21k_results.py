"""The committed full run of imagenet21k: complete, on real glyphs, and its page says what its records say."""

import re
import shutil
from pathlib import Path

import pytest
from browser import assert_page_is_whole

from experiments.frame.records import Records
from experiments.frame.stages import Options, redraw
from experiments.imagenet21k import EXPERIMENT

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "experiments" / "results" / "imagenet21k"


@pytest.fixture(scope="module")
def records() -> Records:
    """Return the records of the full run."""
    return Records(RESULTS / "records.jsonl")


def test_every_stage_was_run_on_the_real_thing(records: Records) -> None:
    stages = {stage.name for stage in EXPERIMENT.stages(Options(quick=False))}
    assert {end["stage"] for end in records.select(kind="stage_end")} == stages
    assert not any(card["options"]["quick"] for card in records.select(kind="card"))
    assert not records.select(kind="missing")
    data = records.last(stage="data", kind="result")
    assert data is not None
    assert (data["source"], data["classes"]) == ("glyphs", 20_976)


def test_the_page_is_what_the_records_say(records: Records, tmp_path: Path) -> None:
    shutil.copy(records.path, tmp_path)
    drawn = redraw(EXPERIMENT, tmp_path)
    assert words(drawn) == words(RESULTS / "report.html")
    names = {file.name for file in (RESULTS / "figures").iterdir()}
    assert names == {file.name for file in (tmp_path / "figures").iterdir()}
    assert_page_is_whole(RESULTS / "report.html", {Path(name).stem for name in names})


def words(page: Path) -> str:
    """Return the page without its drawings, whose outlines depend on the version of matplotlib."""
    return re.sub(r"<svg.*?</svg>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
