"""A report in a real browser: nothing to complain of, nothing loaded, every figure there, and it fits a phone."""

from pathlib import Path

import pytest
from browser import assert_page_is_whole, opened

from experiments.frame.drawing import canvas, save
from experiments.frame.page import Fact, Figure, Page, Section, Table, Text, write_page


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Return a page of two figures that use the same names inside, a table wider than a phone, and text."""
    figures = []
    for name, colour in (("rising", "#d1361f"), ("falling", "#2c7fb8")):
        figure, (axis,) = canvas(1, width=9, height=4)
        axis.plot([0, 1, 2], [0, 1, 4] if name == "rising" else [4, 1, 0], color=colour)
        axis.set(xlabel="steps", ylabel="accuracy", title=f"A line that is {name}")
        figures.append(Figure(name, save(figure, tmp_path, name), f"It is **{name}** & more.", f'A "{name}" line'))
    table = Table(
        [f"column number {n}" for n in range(12)],
        [[f"{row * column:.4f}" for column in range(12)] for row in range(5)],
        "A wide table",
        emphasised={1},
    )
    sections = [
        Section("What <rises>", "One & two.\n\nThree `code`.", [figures[0], table]),
        Section("What falls", "", [figures[1], Text("A remark.", quiet=True)], short="falls"),
    ]
    facts = [Fact("50×", "faster than the exact product"), Fact("99%", "of the accuracy")]
    return write_page(Page("A report", "It **says** something.", facts, sections), tmp_path)


def test_the_page_is_whole(report: Path) -> None:
    assert_page_is_whole(report, {"rising", "falling"})


def test_the_navigation_leads_to_every_section(report: Path) -> None:
    with opened(report) as seen:
        links = seen.page.locator("nav a")
        assert links.all_inner_texts() == ["What <rises>", "falls"]
        for number in range(links.count()):
            target = links.nth(number).get_attribute("href")
            assert target is not None
            assert seen.page.locator(f"section{target} h2").count() == 1


def test_figures_can_be_read_by_ear_and_follow_the_dark(report: Path) -> None:
    paints = []
    for dark in (False, True):
        with opened(report, dark=dark) as seen:
            assert seen.page.get_by_role("img", name='A "rising" line').count() == 1
            script = "getComputedStyle(document.querySelector('#rising text')).fill"
            paints.append(seen.page.evaluate(script))
    assert paints[0] != paints[1]


def test_a_page_that_complains_or_loads_something_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("<script>console.error('ouch')</script><img src='missing.png'>")
    with opened(tmp_path / "report.html") as seen:
        assert any("ouch" in complaint for complaint in seen.complaints)
        assert any("missing.png" in url for url in seen.requests)
    (tmp_path / "report.html").write_text("<div style='width: 2000px'>wide</div>")
    with pytest.raises(AssertionError, match="sideways"):
        assert_page_is_whole(tmp_path / "report.html", set())
