"""How far a build has come: a bar on a terminal, with rich if it is installed, for builds that take seconds."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from manyclass._index_state import Progress

PATIENCE = 1.5  # seconds that nobody minds waiting in silence


@contextmanager
def bar_if_slow() -> Iterator[Progress | None]:
    """Yield a callback for a build; None where nobody would see the bar: no terminal, no rich, another process's turn.

    The bar appears on the error stream once the build has taken a while, and vanishes when it is done.
    """
    if not _somebody_watches():
        yield None
        return
    started, bar, task = time.monotonic(), None, None

    def show(done: int, total: int) -> None:
        nonlocal bar, task
        if bar is None and done < total and time.monotonic() - started > PATIENCE:
            bar = _new_bar()
            bar.start()
            task = bar.add_task("", total=total)
        if bar is not None:
            bar.update(task, completed=done)

    try:
        yield show
    finally:
        if bar is not None:
            bar.stop()


def _somebody_watches() -> bool:
    if sys.stderr is None or not sys.stderr.isatty():
        return False
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if distributed and torch.distributed.get_rank():
        return False
    try:
        import rich
    except ImportError:
        return False
    console = rich.get_console()  # a training loop's own bar would be torn by a second one
    return not (getattr(console, "_live_stack", None) or getattr(console, "_live", None))


def _new_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = "hashing classes", BarColumn(), "{task.completed:,.0f}/{task.total:,.0f}", TimeRemainingColumn()
    shown = [TextColumn(column) if isinstance(column, str) else column for column in columns]
    return Progress(*shown, console=Console(stderr=True), transient=True)
