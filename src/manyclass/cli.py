"""The command `manyclass`: translates options, calls what does the work, says where the results are."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from manyclass._backend import default_threads
from manyclass.errors import FileError, ManyclassError
from manyclass.experiments import EXPERIMENTS, find
from manyclass.experiments.needs import EXTRA

# libgomp reads this when torch loads it: threads that spin after each operation take cores from the native pool, on two
# of them a training step took 148 ms instead of 56 (benchmarks/heads.py).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

EXTRAS = {"typer", "rich", "jinja2", "matplotlib", "torch", "PIL", "fontTools", "threadpoolctl"}

try:
    import typer
    from rich.console import Console
except ModuleNotFoundError as missing:
    raise SystemExit(f"manyclass: the command needs {missing.name}, which is not installed; {EXTRA}") from None

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def experiment(
    name: Annotated[str, typer.Argument(help=f"one of: {', '.join(EXPERIMENTS)}")],
    quick: Annotated[bool, typer.Option("--quick", help="small, from data it makes itself: three minutes")] = False,
    head: Annotated[list[str] | None, typer.Option(help="only this output layer; may be given more than once")] = None,
    data: Annotated[Path | None, typer.Option(help="a folder of images by class, instead of the usual data")] = None,
    out: Annotated[Path | None, typer.Option(help="folder of results [default: experiments-out/NAME]")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    threads: Annotated[int, typer.Option(min=1, help="to compute with")] = default_threads(),
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
) -> None:
    """Run an experiment of the paper, stage by stage, ending in OUT/report.html."""
    with clear_errors():
        from manyclass.experiments.running import Options, run_experiment

        options = Options(quick=quick, heads=tuple(head or ()), data=data, seed=seed, threads=threads)
        folder = out or Path("experiments-out") / name
        console = make_console()
        page = run_experiment(find(name), folder, options, resume, console)
        console.print(f"[bold]{page}[/]", highlight=False, soft_wrap=True)


@app.command()
def report(out: Annotated[Path, typer.Argument(help="the folder of results of an experiment")]) -> None:
    """Draw OUT/report.html and its figures again, from the records alone."""
    with clear_errors():
        from manyclass.experiments.recording import Records
        from manyclass.experiments.running import RECORDS, redraw

        card = Records(out / RECORDS).last(kind="card")
        if card is None:
            raise FileError(f"{out / RECORDS} has no records of an experiment; pass the --out of one")
        make_console().print(f"[bold]{redraw(find(card['experiment']), out)}[/]", highlight=False, soft_wrap=True)


@app.command()
def doctor() -> None:
    """Say what is installed, what computes here, and what is missing for which experiment."""
    with clear_errors():
        from manyclass.doctor import examine

        raise typer.Exit(examine(make_console()))


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn what the library refuses, a missing extra and Ctrl-C into one sentence and an exit code."""
    try:
        yield
    except ManyclassError as error:
        typer.echo(f"manyclass: {error}", err=True)
        raise typer.Exit(2) from None
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in EXTRAS:
            raise
        typer.echo(f"manyclass: this needs {missing.name}, which is not installed; {EXTRA}", err=True)
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
    app(prog_name="manyclass")
