"""A run as it is seen: a table that renews itself on a terminal, lines elsewhere, and records in the run's log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from manyclass.distributed.engines.monitor import Summary
from manyclass.training.progress import spoken_time
from manyclass.training.run_log import RunLog

LINES_EVERY, RECORDS_EVERY = 10.0, 5.0  # seconds
MOST_WORKERS = 8  # that the table names one by one

Watch = Callable[[Summary], None]


@contextmanager
def watching(steps: int, log: Path | None, **card: Any) -> Iterator[Watch]:
    """Yield what shows and logs summaries of a run of so many batches. card: what the log's card says of the run."""
    written = None if log is None else RunLog(log)
    if written is not None:
        written.write_card(steps=steps, **card)
    with _shown(steps) as show:
        due = 0.0

        def watch(summary: Summary) -> None:
            nonlocal due
            show(summary)
            if written is not None and (time.monotonic() >= due or summary.steps >= steps):
                due = time.monotonic() + RECORDS_EVERY
                written.write(kind="downpour", step=summary.steps, **_without_steps(summary))

        yield watch


def _without_steps(summary: Summary) -> dict[str, Any]:
    return {name: value for name, value in asdict(summary).items() if name != "steps"}


@contextmanager
def _shown(steps: int) -> Iterator[Watch]:
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        yield _lines(steps)
        return
    console = Console()
    if not console.is_terminal:
        yield _lines(steps)
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield lambda summary: live.update(table(summary, steps))


def _lines(steps: int) -> Watch:
    due = 0.0

    def say(summary: Summary) -> None:
        nonlocal due
        if time.monotonic() >= due or summary.steps >= steps:
            due = time.monotonic() + LINES_EVERY
            print(line(summary, steps), file=sys.stderr, flush=True)

    return say


def line(summary: Summary, steps: int) -> str:
    """Return a summary in one line."""
    loss = "–" if summary.loss is None else f"{summary.loss:.3f}"
    left = summary.seconds / max(1, summary.steps) * max(0, steps - summary.steps)
    return (
        f"{summary.steps:,}/{steps:,} batches, loss {loss}, {summary.examples_per_second:,.0f} examples/s, "
        f"staleness {mean_staleness(summary.staleness):.1f}, {summary.bytes_per_step / 1e6:.2f} MB per step"
        + (f", {summary.forgotten:,} pushes that their shard had forgotten" if summary.forgotten else "")
        + (f", {spoken_time(left)} left" if 0 < summary.steps < steps else "")
    )


def table(summary: Summary, steps: int) -> Any:
    """Return a summary as a table of rich."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, show_header=False)
    shown.add_row("run", line(summary, steps))
    rates = [f"{worker}: {rate:,.0f}" for worker, rate in summary.workers.items()]
    more = f", and {len(rates) - MOST_WORKERS} more" if len(rates) > MOST_WORKERS else ""
    shown.add_row("workers", "examples/s  " + "   ".join(rates[:MOST_WORKERS]) + more)
    shown.add_row("staleness", bars(summary.staleness))
    for shard in summary.shards:
        shown.add_row(
            f"shard {shard['shard']}",
            f"{shard['version']:,} pushes, load {shard['load']:.0%}, {shard['bytes_received'] / 1e6:,.0f} MB in, "
            f"{shard['bytes_sent'] / 1e6:,.0f} MB out, tables {shard['table_age']:.0f} look-ups old",
        )
    return shown


def mean_staleness(counts: dict[str, int]) -> float:
    """Return the mean of a histogram."""
    return sum(int(value) * count for value, count in counts.items()) / max(1, sum(counts.values()))


def bars(counts: dict[str, int], most: int = 8) -> str:
    """Return a histogram in one line; what is rarer than the first few values is summed up."""
    total = max(1, sum(counts.values()))
    heads = [(value, count) for value, count in counts.items() if int(value) < most]
    rest = total - sum(count for _, count in heads) if counts else 0
    parts = [f"{value} {'▁▂▃▄▅▆▇█'[min(7, int(8 * count / total))]}{count / total:.0%}" for value, count in heads]
    return "  ".join(parts + ([f"more {rest / total:.0%}"] if rest else []))
