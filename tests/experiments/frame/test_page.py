"""Laws of the page: text is text, the same page gives the same bytes, tables that do not fit are refused."""

from pathlib import Path

import pytest

from experiments.frame.drawing import canvas, save
from experiments.frame.inline_svg import inline_svg
from experiments.frame.page import Figure, Page, Section, Table, anchor, prose, write_page
from manyclass.errors import InputError


def test_what_looks_like_html_is_shown_as_it_is(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    page = Page(evil, evil, [], [Section(evil, evil, [Table([evil], [[evil]], evil)])])
    assert "<script" not in write_page(page, tmp_path).read_text()


def test_paragraphs_code_and_emphasis_are_understood() -> None:
    assert prose("one & `two`\n\n**three**") == "<p>one &amp; <code>two</code></p><p><strong>three</strong></p>"
    assert prose("") == ""


def test_an_anchor_has_no_spaces() -> None:
    assert anchor("Speed-up at 95%, by batch") == "speed-up-at-95-by-batch"


def test_the_same_page_gives_the_same_bytes(tmp_path: Path) -> None:
    pages = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        figure, (axis,) = canvas(1)
        axis.plot([1, 2, 3])
        drawing = Figure("line", save(figure, folder, "line"), "a line", "a line")
        pages.append(write_page(Page("A page", "", [], [Section("One", "", [drawing])]), folder).read_bytes())
    assert pages[0] == pages[1]


def test_names_and_style_of_a_drawing_stay_inside_it() -> None:
    svg = (
        '<?xml version="1.0"?><!DOCTYPE svg><svg width="10pt" viewBox="0 0 1 1"><metadata>m</metadata>'
        '<style type="text/css">*{fill: red}</style><g id="a" clip-path="url(#a)"/><use xlink:href="#a"/></svg>'
    )
    assert inline_svg(svg, "fig", 'say "x"') == (
        '<svg viewBox="0 0 1 1" id="fig" role="img" aria-label="say &quot;x&quot;">'
        '<style type="text/css">#fig *{fill: red}</style><g id="fig-a" clip-path="url(#fig-a)"/>'
        '<use xlink:href="#fig-a"/></svg>'
    )


def test_a_file_that_is_no_drawing_is_refused() -> None:
    with pytest.raises(InputError, match="figure 'fig' is not a drawing"):
        inline_svg("not a picture", "fig", "")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (Table(["a", "b"], [[1, 2], [3]], "cap"), "table 'cap' has 2 columns but the row"),
        (Table(["a", "b"], [[1, 2]], "cap", align="l"), "align='l'"),
    ],
)
def test_a_table_that_does_not_fit_its_columns_is_refused(tmp_path: Path, table: Table, said: str) -> None:
    with pytest.raises(InputError, match=said):
        write_page(Page("A page", "", [], [Section("One", "", [table])]), tmp_path)
    assert not list(tmp_path.iterdir())


def test_text_is_the_first_column_and_numbers_the_others_unless_said() -> None:
    assert Table(["a", "b", "c"], []).alignment == "lrr"
    assert Table(["a", "b", "c"], [], align="lcl").alignment == "lcl"
