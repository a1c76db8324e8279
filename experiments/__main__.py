"""The command `python -m experiments`: translates options, calls what does the work, says where the results are."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import experiments
from experiments.frame.needs import EXTRA
from experiments.frame.waiting_threads import settle_waiting_threads
from manyclass._backend import default_threads
from manyclass.errors import ConfigError, FileError, ManyclassError

settle_waiting_threads()  # before torch is loaded

EXTRAS = {"typer", "rich", "jinja2", "matplotlib", "torch", "PIL", "fontTools", "threadpoolctl"}

try:
    import typer
    from rich.console import Console
except ModuleNotFoundError as missing:
    raise SystemExit(f"experiments: the command needs {missing.name}, which is not installed; {EXTRA}") from None

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(
    help=f"""Run an experiment, stage by stage, ending in OUT/report.html; or look at what there is.

    NAME is one of: {", ".join(experiments.EXPERIMENTS)}; without it they are listed. `report OUT` draws page and
    figures again from the records in OUT; `doctor` says what is installed and what is missing for which experiment;
    `documents` writes the figures in README and docs again from the committed records."""
)
def command(
    name: Annotated[str, typer.Argument(metavar="NAME|report|doctor|documents", show_default=False)] = "",
    folder: Annotated[Path | None, typer.Argument(metavar="OUT", show_default=False, help="of `report`")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="small, from data it makes itself: minutes")] = False,
    stage: Annotated[list[str] | None, typer.Option(help="only this stage; may be given more than once")] = None,
    head: Annotated[list[str] | None, typer.Option(help="only this output layer; may be given more than once")] = None,
    data: Annotated[Path | None, typer.Option(help="a folder of your own data, instead of the usual")] = None,
    corpus: Annotated[list[Path] | None, typer.Option(help="a text file or folder, for skipgram; may repeat")] = None,
    phrases: Annotated[int | None, typer.Option(min=0, help="join frequent pairs of words so often")] = None,
    min_count: Annotated[int | None, typer.Option(min=1, help="leave out words of a text that are rarer")] = None,
    out: Annotated[Path | None, typer.Option(help="folder of results [default: NAME-out]")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    threads: Annotated[int, typer.Option(min=1, help="to compute with")] = default_threads(),
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    again: Annotated[bool, typer.Option("--again", help="run the named stages anew, with --resume")] = False,
) -> None:
    with clear_errors():
        if folder is not None and name != "report":
            raise ConfigError(f"{folder} says nothing after {name}; give the folder of results as --out {folder}")
        if not name:
            list_experiments()
        elif name == "doctor":
            doctor()
        elif name == "documents":
            documents()
        elif name == "report":
            report(folder)
        else:
            experiment = experiments.find(name)
            from experiments.frame.stages import Options, run_experiment

            heads, stages = tuple(head or ()), tuple(stage or ())
            options = Options(
                quick=quick, heads=heads, data=data, corpus=tuple(corpus or ()), phrases=phrases, min_count=min_count,
                seed=seed, threads=threads, stages=stages, again=again,
            )  # fmt: skip
            console = make_console()
            page = run_experiment(experiment, out or Path(f"{name}-out"), options, resume, console)
            console.print(f"[bold]{page}[/]", highlight=False, soft_wrap=True)


def list_experiments() -> None:
    """Say what there is to run."""
    width = max(map(len, experiments.EXPERIMENTS))
    for name in experiments.EXPERIMENTS:
        typer.echo(f"{name.ljust(width)}  {experiments.find(name).title}")
    typer.echo("\nrun one by its name, e.g. `python -m experiments demo`; --help lists the options")


def report(folder: Path | None) -> None:
    """Draw a page and its figures again, from the records alone."""
    from experiments.frame.records import Records
    from experiments.frame.stages import RECORDS, redraw

    if folder is None:
        raise ConfigError("report needs the folder of results of an experiment; give it: report OUT")
    card = Records(folder / RECORDS).last(kind="card")
    if card is None:
        raise FileError(f"{folder / RECORDS} has no records of an experiment; pass the --out of one")
    page = redraw(experiments.find(card["experiment"]), folder)
    make_console().print(f"[bold]{page}[/]", highlight=False, soft_wrap=True)


def documents() -> None:
    """Write the figures in README and docs again, from the committed records."""
    from experiments.frame.documents import ROOT, write_documents

    changed = write_documents(map(experiments.find, experiments.EXPERIMENTS))
    for path in changed:
        typer.echo(f"written: {path.relative_to(ROOT)}")
    typer.echo("" if changed else "README and docs already say what the records give", nl=not changed)


def doctor() -> None:
    """Say what computes here, and what is missing for which experiment; exit code 1 if the core does not run."""
    from experiments.frame.needs import common_needs
    from manyclass.doctor import examine, table_of

    code = examine(typer.echo)
    needs = {"all experiments": common_needs()}
    for name in experiments.EXPERIMENTS:
        try:
            needs[f"the experiment {name}"] = experiments.find(name).needs()
        except ModuleNotFoundError as missing:  # said above, with its install line
            typer.echo(f"{name}: cannot be looked at while {missing.name} is missing")
    for what, needed in needs.items():
        if needed:
            typer.echo("\n".join(["", f"For {what}", *table_of(needed)]))
    raise typer.Exit(code)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn what the library refuses, a missing extra and Ctrl-C into one sentence and an exit code."""
    try:
        yield
    except ManyclassError as error:
        typer.echo(f"experiments: {error}", err=True)
        raise typer.Exit(2) from None
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in EXTRAS:
            raise
        typer.echo(f"experiments: this needs {missing.name}, which is not installed; {EXTRA}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("\nstopped; the same command with --resume goes on from here", err=True)
        raise typer.Exit(130) from None


def make_console() -> Console:
    """Return a console; into a file or a pipe, lines are not broken at 80 characters."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def main() -> None:
    """Run the command."""
    app(prog_name="python -m experiments")


if __name__ == "__main__":
    main()
