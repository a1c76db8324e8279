"""Every committed result: its page and figures are what its records give, and a browser shows the page whole."""

import re
import shutil
from pathlib import Path

import pytest
from browser import assert_page_is_whole

import experiments
from experiments.frame.documents import RESULTS
from experiments.frame.stages import FIGURES, RECORDS, redraw

COMMITTED = [name for name in experiments.EXPERIMENTS if (RESULTS / name / RECORDS).exists()]


def test_there_are_committed_results() -> None:
    assert {"demo", "imagenet21k"} <= set(COMMITTED)


@pytest.mark.parametrize("name", COMMITTED)
def test_the_page_is_what_the_records_say(name: str, tmp_path: Path) -> None:
    folder = RESULTS / name
    shutil.copy(folder / RECORDS, tmp_path)
    drawn = redraw(experiments.find(name), tmp_path)
    assert words(drawn) == words(folder / "report.html"), f"run: python -m experiments report {folder}"
    names = {file.name for file in (folder / FIGURES).iterdir()}
    assert names == {file.name for file in (tmp_path / FIGURES).iterdir()}
    assert_page_is_whole(folder / "report.html", {Path(name).stem for name in names})


def words(page: Path) -> str:
    """Return the page without its look, and without its drawings, whose outlines depend on matplotlib's version."""
    return re.sub(r"<(style|svg).*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
