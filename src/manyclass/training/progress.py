"""Progress with the time left: a bar on a terminal, a line now and then in a log file; without rich, nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Show = Callable[[float, str], None]
Progress = Callable[[float, str], AbstractContextManager[Show]]  # of total and unit
SECONDS_BETWEEN_LINES = 30


@contextmanager
def progress_bar(total: float, unit: str, wanted: bool, console: Any = None) -> Iterator[Show]:
    """Yield show(completed, text). console: rich's, if not its own default."""
    columns = _columns(unit) if wanted else None
    if columns is None:
        yield lambda completed, text: None
        return
    import rich.progress

    with rich.progress.Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=total)
        yield lambda completed, text: bar.update(task, completed=min(completed, total), description=text)


@contextmanager
def progress_lines(total: float, unit: str, say: Callable[[str], None]) -> Iterator[Show]:
    """Yield show(completed, text) that says a line every half minute, for output that nobody watches as it comes."""
    started = last = time.monotonic()
    first: float | None = None  # a resumed piece of work does not start at nothing

    def show(completed: float, text: str) -> None:
        nonlocal last, first
        first = completed if first is None else first
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES or completed <= first:
            return
        last = now
        left = (now - started) / (completed - first) * max(0, total - completed)
        say(f"{completed:,.0f}/{total:,.0f} {unit}, {spoken_time(left)} left  {text}")

    yield show


def spoken_time(seconds: float) -> str:
    """Return a duration as one says it: 40 s, 12 min, 3 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def _columns(unit: str) -> list[Any] | None:
    try:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    counter = TextColumn("{task.completed:,.0f}/{task.total:,.0f} " + unit)
    return [BarColumn(), counter, TimeRemainingColumn(), TextColumn("{task.description}")]
