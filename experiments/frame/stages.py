"""What an experiment is, and how it runs: stage by stage, each resumable, with a page redrawn after every one."""

import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.frame.needs import Need
from experiments.frame.page import Page, Table, write_page
from experiments.frame.records import Records
from experiments.frame.terminal import announce, print_table
from manyclass._backend import default_threads
from manyclass.errors import ConfigError
from manyclass.training.progress import Show, progress_bar, progress_lines, spoken_time

RECORDS, FIGURES, CACHE = "records.jsonl", "figures", "cache"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may choose."""

    quick: bool = False  # small, from data that the experiment makes itself
    heads: tuple[str, ...] = ()  # only these output layers; empty: all
    data: Path | None = None  # a folder of the user's own
    corpus: tuple[Path, ...] = ()  # texts of the user's own
    phrases: int | None = None  # times that frequent pairs of words are joined in a text
    min_count: int | None = None  # words of a text that occur less often are left out
    seed: int = 0
    threads: int = field(default_factory=default_threads)  # to compute with
    stages: tuple[str, ...] = ()  # only these stages; empty: all
    again: bool = False  # what these stages recorded before counts no more

    def fixed(self) -> dict[str, Any]:
        """Return what must be the same in all sessions of a run, as JSON reads it back."""
        data = None if self.data is None else str(self.data)
        told = {"quick": self.quick, "heads": list(self.heads), "data": data, "seed": self.seed}
        # None: as in runs from before there were such options
        return told | {
            "corpus": [str(path) for path in self.corpus] or None, "phrases": self.phrases, "min_count": self.min_count,
        }  # fmt: skip

    def heads_among(self, known: Iterable[str]) -> list[str]:
        """Return which of an experiment's output layers are wanted, in the experiment's order."""
        known = list(known)
        for head in self.heads:
            if head not in known:
                raise ConfigError(f"--head {head}: there is no such output layer; give one of {', '.join(known)}")
        return [head for head in known if not self.heads or head in self.heads]

    def stage(
        self, name: str, title: str, full: float, quick: float, run: Callable[["Run"], None], *after: str
    ) -> "Stage":
        """Return a stage that takes so many minutes on 2 cores, in a full and in a quick run.

        What the title has in brackets is true of the full run only. after: the stages whose results it uses.
        """
        if self.quick:
            return Stage(name, title.partition(" (")[0], quick, run, after)
        return Stage(name, title, full, run, after)


@dataclass(frozen=True)
class Stage:
    """A part of an experiment. minutes: expected on 2 cores; after: the stages whose results it uses.

    `run` asks `records.done(...)` before each piece of work, so that a killed stage goes on where it was.
    """

    name: str
    title: str
    minutes: float
    run: Callable[["Run"], None]
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """All that the commands need to know of an experiment.

    stages: in order. page: made of records alone; figure files go to the folder given.
    needs: what must be installed for it, beside what all experiments use.
    documents: name → Markdown that stands between the markers of that name in README and docs.
    table: printed at the end of a run.
    replaces: a new run takes the place of the one that is in its folder, because it takes minutes and not hours.
    """

    name: str
    title: str
    stages: Callable[[Options], list[Stage]]
    page: Callable[[Records, Path], Page]
    needs: Callable[[], list[Need]] = list
    documents: Callable[[Records], dict[str, str]] = lambda records: {}
    table: Callable[[Records], Table] | None = None
    replaces: bool = False


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
    stages = experiment.stages(options)
    wanted = wanted_stages(stages, records, options.stages)
    prepare_folder(experiment, records, options, resume)
    if options.again:
        if not options.stages:
            raise ConfigError("--again runs stages anew that are named; add --stage NAME")
        for stage in wanted:
            records.take_back(stage.name)
        if stale := [name for name in that_use(wanted, stages) if records.done(kind="stage_end", stage=name)]:
            console.print(f"[yellow]what these recorded used what is run anew: {', '.join(stale)}; run them --again, "
                          "too[/]", highlight=False)  # fmt: skip
    announce(stages, records, options.threads, console)
    if not all(records.done(kind="stage_end", stage=stage.name) for stage in wanted):
        records.write_card(experiment.name, seed=options.seed, threads=options.threads, options=options.fixed())
    run = Run(out, options, records, console)
    for number, stage in enumerate(stages, start=1):
        if stage not in wanted or records.done(kind="stage_end", stage=stage.name):
            continue
        console.print(f"[bold]{number}/{len(stages)} {stage.name}[/]: {stage.title}", highlight=False)
        before = records.seconds_of_killed_sessions(stage.name)
        records.write(kind="stage_start", stage=stage.name)
        started = time.perf_counter()
        stage.run(run)
        seconds = time.perf_counter() - started
        records.write(kind="stage_end", stage=stage.name, seconds=before + seconds)
        console.print(f"  done in {spoken_time(seconds)}", highlight=False)
        redraw_unless_it_fails(experiment, out, console)
    page = redraw(experiment, out)
    if experiment.table is not None:
        print_table(experiment.table(records), console)
    return page


def redraw(experiment: Experiment, out: Path) -> Path:
    """Draw page and figures from the records alone, and return the page's path."""
    return write_page(experiment.page(Records(out / RECORDS), out / FIGURES), out)


def redraw_unless_it_fails(experiment: Experiment, out: Path, console: Console) -> None:
    """Redraw between two stages. A failure is only told: hours of measurements go on, and the end draws once more."""
    try:
        redraw(experiment, out)
    except Exception as error:
        console.print(f"[yellow]the page could not be drawn ({error!r}); the run goes on[/]", highlight=False)


def wanted_stages(stages: list[Stage], records: Records, names: tuple[str, ...]) -> list[Stage]:
    """Return the stages of these names, all if there are none; what they use must be done or be among them."""
    known = [stage.name for stage in stages]
    for name in names:
        if name not in known:
            raise ConfigError(f"--stage {name}: there is no such stage; give one of {', '.join(known)}")
    wanted = [stage for stage in stages if not names or stage.name in names]
    for stage in wanted:
        for earlier in stage.after:
            if names and earlier not in names and not records.done(kind="stage_end", stage=earlier):
                raise ConfigError(f"--stage {stage.name} uses what stage {earlier} leaves, which is not done; "
                                  f"add --stage {earlier}")  # fmt: skip
    return wanted


def that_use(some: list[Stage], stages: list[Stage]) -> list[str]:
    """Return the other stages that use what some leave, or what those leave; in order."""
    changed = {stage.name for stage in some}
    for stage in stages:  # what a stage uses comes before it
        if changed & set(stage.after):
            changed.add(stage.name)
    return [stage.name for stage in stages if stage.name in changed and stage not in some]


def prepare_folder(experiment: Experiment, records: Records, options: Options, resume: bool) -> None:
    """Refuse a folder with a run that this one would spoil; where the experiment replaces its runs, empty it."""
    card = records.last(kind="card")
    if card is None:
        return
    folder = records.path.parent
    if card["experiment"] != experiment.name:
        raise ConfigError(f"out={folder} holds a run of {card['experiment']!r}; choose another --out")
    if not resume and experiment.replaces:
        records.path.unlink()
        for name in (FIGURES, CACHE):
            shutil.rmtree(folder / name, ignore_errors=True)
        return
    if not resume:
        raise ConfigError(f"out={folder} already holds a run; go on with it by --resume or choose another --out")
    for name, value in options.fixed().items():
        before = card["options"].get(name)
        if before != value:
            raise ConfigError(f"{name}={value} but the run in out={folder} was started with {name}={before}; "
                              f"resume with the same options or choose another --out")  # fmt: skip
