"""Figures in README and docs: what stands between two markers is written from the committed records, never by hand.

A text called NAME stands between `<!-- figures:NAME -->` and `<!-- /figures:NAME -->`. Markers on lines of their own
hold a block; inside a sentence they hold a part of it. An experiment's `documents` says which texts its records give.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from experiments.frame.page import Table
from experiments.frame.records import Records
from experiments.frame.stages import RECORDS, Experiment
from manyclass.errors import ConfigError

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
MARKED = re.compile(r"<!-- figures:(?P<name>\w+) -->(?P<text>.*?)<!-- /figures:(?P=name) -->", re.DOTALL)
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s]+)(?=\))")


def documents() -> list[Path]:
    """Return the documents that may hold figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def texts_of(experiments: Iterable[Experiment], results: Path = RESULTS) -> dict[str, str]:
    """Return name → Markdown from the committed results of all experiments; links are relative to the repository."""
    texts: dict[str, str] = {}
    for experiment in experiments:
        if not (results / experiment.name).is_dir():
            continue
        for name, text in experiment.documents(Records(results / experiment.name / RECORDS)).items():
            if name in texts:
                raise ConfigError(
                    f"the text {name!r} of experiment {experiment.name} has the name of another; rename it"
                )
            texts[name] = text.strip()
    return texts


def filled_in(document: str, texts: dict[str, str], folder: Path = Path()) -> str:
    """Return a document with what is known between its markers. folder: where it lies, seen from the repository."""

    def fill(match: re.Match[str]) -> str:
        name, before = match["name"], match["text"]
        if name not in texts:
            return match[0]
        text = LINK.sub(lambda link: os.path.relpath(link[1], folder), texts[name])
        block = before.startswith("\n") or "\n" in text
        return f"<!-- figures:{name} -->" + (f"\n{text}\n" if block else text) + f"<!-- /figures:{name} -->"

    return MARKED.sub(fill, document)


def as_markdown(table: Table) -> str:
    """Return a table of a page as Markdown, without its caption; the rows that matter are bold."""
    marks = {"l": "---", "c": ":-:", "r": "---:"}
    rows = [
        [f"**{cell}**" if number in table.emphasised and str(cell) else str(cell) for cell in row]
        for number, row in enumerate(table.rows)
    ]
    lines = [list(table.columns), [marks[letter] for letter in table.alignment], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def unknown_names(document: str, texts: dict[str, str]) -> list[str]:
    """Return the names of markers that no experiment has a text for."""
    return [match["name"] for match in MARKED.finditer(document) if match["name"] not in texts]


def write_documents(experiments: Iterable[Experiment]) -> list[Path]:
    """Fill in all documents, and return those that changed."""
    texts, changed = texts_of(experiments), []
    for path in documents():
        before = path.read_text(encoding="utf-8")
        after = filled_in(before, texts, path.parent.relative_to(ROOT))
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed
