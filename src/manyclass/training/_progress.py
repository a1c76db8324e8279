"""A progress bar with the time left; without rich, or when not wanted, nothing is shown."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[float, str], None]


@contextmanager
def progress_bar(total: float, unit: str, wanted: bool) -> Iterator[Show]:
    """Yield show(completed, text)."""
    try:
        if not wanted:
            raise ImportError
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda completed, text: None
        return
    counter = TextColumn("{task.completed:,.0f}/{task.total:,.0f} " + unit)
    with Progress(BarColumn(), counter, TimeRemainingColumn(), TextColumn("{task.description}")) as bar:
        task = bar.add_task("", total=total)
        yield lambda completed, text: bar.update(task, completed=min(completed, total), description=text)
