"""What a run says in the terminal: its stages and their times beforehand, a table of results at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import rich.box
import rich.table
from rich.console import Console

from experiments.frame.page import Table
from experiments.frame.records import Records
from manyclass.training.progress import spoken_time

if TYPE_CHECKING:
    from experiments.frame.stages import Stage

JUSTIFY: dict[str, Literal["left", "center", "right"]] = {"l": "left", "c": "center", "r": "right"}


def announce(stages: list[Stage], records: Records, threads: int, console: Console) -> None:
    """Print which stages there are, which of them are done, and how long the others will take."""
    scale = pace(stages, records, threads)
    table = rich.table.Table(box=None, pad_edge=False)
    for column, letter in (("stage", "l"), ("what", "l"), ("time", "r")):
        table.add_column(column, justify=JUSTIFY[letter])
    left = 0.0
    for stage in stages:
        done = records.done(kind="stage_end", stage=stage.name)
        expected = 60 * stage.minutes * scale
        left += 0 if done else expected
        said = f"done in {spoken_time(records.seconds_spent(stage.name))}" if done else f"about {spoken_time(expected)}"
        table.add_row(stage.name, stage.title, said, style="dim" if done else "")
    console.print(table)
    said = "1 thread" if threads == 1 else f"{threads} threads"
    console.print(f"in all about {spoken_time(left)} to go, with {said}", highlight=False)


def pace(stages: list[Stage], records: Records, threads: int) -> float:
    """Return by what to multiply the expected times: measured on the stages that are done, else from the threads."""
    done = [stage for stage in stages if records.done(kind="stage_end", stage=stage.name)]
    expected = sum(60 * stage.minutes for stage in done)
    if expected >= 60:
        return sum(records.seconds_spent(stage.name) for stage in done) / expected
    return min(2.0, max(0.5, 2 / threads))  # a guess: not everything gains from more threads


def print_table(table: Table, console: Console) -> None:
    """Print a table of the page."""
    shown = rich.table.Table(title=table.caption, title_justify="left", box=rich.box.SIMPLE_HEAD)
    for column, letter in zip(table.columns, table.alignment, strict=True):
        shown.add_column(column, justify=JUSTIFY[letter])
    for number, row in enumerate(table.rows):
        shown.add_row(*map(str, row), style="bold" if number in table.emphasised else "")
    console.print(shown, highlight=False)
