"""How an experiment runs: a list of stages, each resumable, with a page that is redrawn after every one of them."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.frame.needs import Need
from experiments.frame.page import Page, write_page
from experiments.frame.records import Records
from manyclass._backend import default_threads
from manyclass.errors import ConfigError
from manyclass.training.progress import Show, progress_bar, progress_lines, spoken_time

RECORDS, FIGURES, CACHE = "records.jsonl", "figures", "cache"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may choose. heads: only these (empty: all); data: a folder of images; threads: to compute with."""

    quick: bool = False
    heads: tuple[str, ...] = ()
    data: Path | None = None
    seed: int = 0
    threads: int = field(default_factory=default_threads)

    def fixed(self) -> dict[str, Any]:
        """Return what must be the same in all sessions of a run, as JSON reads it back."""
        data = None if self.data is None else str(self.data)
        return {"quick": self.quick, "heads": list(self.heads), "data": data, "seed": self.seed}


@dataclass(frozen=True)
class Stage:
    """A part of an experiment. minutes: expected on 2 cores. run asks `records.done(...)` before each piece of work."""

    name: str
    title: str
    minutes: float
    run: Callable[["Run"], None]


@dataclass(frozen=True)
class Experiment:
    """What the command needs: stages in order, and the page made of records (figure files go to the folder given).

    needs: what must be installed for it, for `manyclass doctor`.
    """

    name: str
    title: str
    stages: Callable[[Options], list[Stage]]
    page: Callable[[Records, Path], Page]
    needs: Callable[[], list[Need]] = list


@dataclass(frozen=True)
class Run:
    """What a stage works with."""

    out: Path
    options: Options
    records: Records
    console: Console

    @property
    def cache(self) -> Path:
        """The folder for what is large and can be made again."""
        folder = self.out / CACHE
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def progress(self, total: float, unit: str) -> AbstractContextManager[Show]:
        """Return a context that gives show(completed, text): a bar on a terminal, else a line every half minute."""
        if self.console.is_terminal:
            return progress_bar(total, unit, True, self.console)
        return progress_lines(total, unit, lambda line: self.console.print(f"  {line}", highlight=False, markup=False))


def run_experiment(experiment: Experiment, out: Path, options: Options, resume: bool, console: Console) -> Path:
    """Run the stages that are not done, redraw the page after each, and return the page's path."""
    records = Records(out / RECORDS)
    _check(experiment, records, options, resume)
    stages = experiment.stages(options)
    announce(stages, records, options, console)
    if not all(records.done(kind="stage_end", stage=stage.name) for stage in stages):
        records.write_card(experiment.name, seed=options.seed, threads=options.threads, options=options.fixed())
    run = Run(out, options, records, console)
    for number, stage in enumerate(stages, start=1):
        if records.done(kind="stage_end", stage=stage.name):
            continue
        console.print(f"[bold]{number}/{len(stages)} {stage.name}[/]: {stage.title}", highlight=False)
        before = seconds_of_killed_sessions(records, stage.name)
        records.write(kind="stage_start", stage=stage.name)
        started = time.perf_counter()
        stage.run(run)
        seconds = time.perf_counter() - started
        records.write(kind="stage_end", stage=stage.name, seconds=before + seconds)
        console.print(f"  done in {spoken_time(seconds)}", highlight=False)
        _redraw_or_say_why_not(experiment, out, console)
    return redraw(experiment, out)


def redraw(experiment: Experiment, out: Path) -> Path:
    """Draw page and figures from the records alone, and return the page's path."""
    return write_page(experiment.page(Records(out / RECORDS), out / FIGURES), out)


def announce(stages: list[Stage], records: Records, options: Options, console: Console) -> None:
    """Print which stages there are, which of them are done, and how long the others will take."""
    scale = pace(stages, records, options.threads)
    table = Table(title_justify="left", box=None, pad_edge=False)
    for column, justify in (("stage", "left"), ("what", "left"), ("time", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    left = 0.0
    for stage in stages:
        end = records.last(kind="stage_end", stage=stage.name)
        expected = 60 * stage.minutes * scale
        left += 0 if end else expected
        spoken = (
            f"done in {spoken_time(records.seconds_spent(stage.name))}" if end else f"about {spoken_time(expected)}"
        )
        table.add_row(stage.name, stage.title, spoken, style="dim" if end else "")
    console.print(table)
    threads = "1 thread" if options.threads == 1 else f"{options.threads} threads"
    console.print(f"in all about {spoken_time(left)} to go, with {threads}", highlight=False)


def pace(stages: list[Stage], records: Records, threads: int) -> float:
    """Return by what to multiply the expected times: measured on the stages that are done, else from the threads."""
    ends = {end["stage"]: records.seconds_spent(end["stage"]) for end in records.select(kind="stage_end")}
    expected = sum(60 * stage.minutes for stage in stages if stage.name in ends)
    if expected >= 60:
        return float(sum(ends[stage.name] for stage in stages if stage.name in ends) / expected)
    return min(2.0, max(0.5, 2 / threads))  # a guess: not everything gains from more threads


def seconds_of_killed_sessions(records: Records, stage: str) -> float:
    """Return what earlier sessions spent on a stage, each from its start to its last record."""
    spent, begun, last = 0.0, None, None
    for record in records.select(stage=stage):
        moment = datetime.fromisoformat(record["time"])
        if record.get("kind") == "stage_start":
            spent += (last - begun).total_seconds() if begun and last else 0
            begun = moment
        last = moment
    return spent + ((last - begun).total_seconds() if begun and last else 0)


def _check(experiment: Experiment, records: Records, options: Options, resume: bool) -> None:
    card = records.last(kind="card")
    if card is None:
        return
    folder = records.path.parent
    if card["experiment"] != experiment.name:
        raise ConfigError(f"out={folder} holds a run of {card['experiment']!r}; choose another --out")
    if not resume:
        raise ConfigError(f"out={folder} already holds a run; go on with it by --resume or choose another --out")
    for name, value in options.fixed().items():
        before = card["options"].get(name)
        if before != value:
            raise ConfigError(f"{name}={value} but the run in out={folder} was started with {name}={before}; "
                              f"resume with the same options or choose another --out")  # fmt: skip


def _redraw_or_say_why_not(experiment: Experiment, out: Path, console: Console) -> None:
    """Keep hours of measurements going where a drawing fails: the records are there, and the end draws once more."""
    try:
        redraw(experiment, out)
    except Exception as error:  # whatever it is, it is said now and raised at the end
        console.print(f"[yellow]the page could not be drawn ({error!r}); the run goes on[/]", highlight=False)
