"""What holds of every committed run: its page, and nothing else, is what its records give."""

import re
import shutil
from pathlib import Path

from browser import assert_page_is_whole

from experiments.frame.stages import FIGURES, RECORDS, Experiment, redraw

RESULTS = Path(__file__).parents[2] / "experiments" / "results"


def assert_page_is_from_its_records(experiment: Experiment, folder: Path) -> None:
    """Fail unless drawing the committed records again, in another folder, gives the committed page and figures."""
    committed = RESULTS / experiment.name
    shutil.copy(committed / RECORDS, folder)
    drawn = redraw(experiment, folder)
    assert words(drawn) == words(committed / "report.html"), f"run: python -m experiments report {committed}"
    names = {file.name for file in (committed / FIGURES).iterdir()}
    assert names == {file.name for file in (folder / FIGURES).iterdir()}
    assert_page_is_whole(committed / "report.html", {Path(name).stem for name in names})


def words(page: Path) -> str:
    """Return the page without its drawings, whose outlines depend on the version of matplotlib."""
    return re.sub(r"<svg.*?</svg>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
