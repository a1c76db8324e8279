"""A progress bar with the time left; without rich, or when not wanted, nothing is shown."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Show = Callable[[float, str], None]


@contextmanager
def progress_bar(total: float, unit: str, wanted: bool) -> Iterator[Show]:
    """Yield show(completed, text)."""
    columns = _columns(unit) if wanted else None
    if columns is None:
        yield lambda completed, text: None
        return
    from rich.progress import Progress

    with Progress(*columns) as bar:
        task = bar.add_task("", total=total)
        yield lambda completed, text: bar.update(task, completed=min(completed, total), description=text)


def _columns(unit: str) -> list[Any] | None:
    try:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    counter = TextColumn("{task.completed:,.0f}/{task.total:,.0f} " + unit)
    return [BarColumn(), counter, TimeRemainingColumn(), TextColumn("{task.description}")]
