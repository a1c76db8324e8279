"""The parts a report is made of, and the one file they become: no script, no request, figures inside."""

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from experiments.frame.inline_svg import inline_svg
from manyclass._atomic_file import replacement, write_all
from manyclass.errors import InputError

__all__ = ["Fact", "Figure", "Page", "Section", "Table", "Text", "write_page"]


@dataclass(frozen=True)
class Text:
    """Paragraphs, separated by empty lines; `code` and **bold** are understood. quiet: set as a side remark."""

    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under columns. align: a letter (l, c, r) for each column; emphasised: numbers of the rows that matter.

    groups: (name, how many columns it stands over), a second head above the columns.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    align: str = ""
    emphasised: Collection[int] = ()
    groups: Sequence[tuple[str, int]] = ()

    @property
    def alignment(self) -> str:
        """A letter for each column: unless given, the first is text and the others are numbers."""
        return self.align or "l" + "r" * (len(self.columns) - 1)


@dataclass(frozen=True)
class Figure:
    """A drawing that `experiments.frame.drawing.save` wrote. alt: what it shows, for those who cannot see it."""

    name: str
    svg: Path
    caption: str
    alt: str


@dataclass(frozen=True)
class Section:
    """A heading, what to say under it, and what to show there. short: its name in the navigation."""

    title: str
    text: str = ""
    parts: Sequence[Table | Figure | Text] = ()
    short: str = ""


@dataclass(frozen=True)
class Fact:
    """One of the few numbers at the top of a page."""

    value: str
    label: str


@dataclass(frozen=True)
class Page:
    """A report: title, what it says in two sentences, its three or four numbers, and its sections."""

    title: str
    lead: str
    facts: Sequence[Fact] = ()
    sections: Sequence[Section] = ()


def write_page(page: Page, out: Path) -> Path:
    """Write OUT/report.html, all or nothing, and return its path. The same page gives the same bytes."""
    environment = Environment(
        loader=PackageLoader("experiments.frame", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"prose": prose, "anchor": anchor, "drawing": drawing}
    environment.filters["kind"] = lambda part: type(part).__name__
    html = environment.get_template("page.html").render(page=_checked(page))
    path = out / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacement(os.path.realpath(path)) as file:
        write_all(file, html.encode())
    return path


def prose(text: str) -> Markup:
    """Return paragraphs of HTML, with `code` and **bold**; everything else is taken literally."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text.strip())))
    marked = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", marked)
    return Markup("".join(f"<p>{paragraph}</p>" for paragraph in re.split(r"\n\s*\n", marked) if paragraph))


def anchor(title: str) -> str:
    """Return what follows the # in a link to a section."""
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def drawing(figure: Figure) -> Markup:
    """Return the figure's drawing as a part of the page."""
    return Markup(inline_svg(figure.svg.read_text(encoding="utf-8"), figure.name, figure.alt))


def _checked(page: Page) -> Page:
    for table in (part for section in page.sections for part in section.parts if isinstance(part, Table)):
        columns, name = len(table.columns), f"table {table.caption!r:.60}"
        wrong = next((row for row in table.rows if len(row) != columns), None)
        if wrong is not None:
            raise InputError(f"{name} has {columns} columns but the row {wrong!r:.100}; give each column a cell")
        if len(table.alignment) != columns:
            raise InputError(f"{name} has {columns} columns but align={table.align!r}; give each a letter: l, c or r")
        if table.groups and sum(size for _, size in table.groups) != columns:
            raise InputError(f"{name} has {columns} columns but groups={table.groups!r:.100}; let them cover each once")
    return page
