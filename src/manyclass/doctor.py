"""What is installed, what computes here, and what is missing for what (`manyclass doctor`)."""

import importlib.metadata
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from manyclass._backend import backend_info
from manyclass._machine import cache_kb, caches_in_words, cpu_model
from manyclass.errors import ManyclassError


@dataclass(frozen=True)
class Need:
    """One thing that is needed. found: its version or path, None where it is missing; purpose: what lacks without it.

    optional: things work without it, only less of them.
    """

    name: str
    found: str | None
    purpose: str
    install: str
    optional: bool = False


def package(name: str, purpose: str, install: str, optional: bool = False) -> Need:
    """Return the need of a Python package, by the name pip knows."""
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found = None
    return Need(name, found, purpose, install, optional)


def library_needs() -> list[Need]:
    """Return what the library itself uses."""
    return [
        package("numpy", "everything", "pip install numpy"),
        package("torch", "heads and training", "pip install 'manyclass[torch]'", optional=True),
        package("ray", "training on a cluster", "pip install 'manyclass[ray]'", optional=True),
        package("rich", "progress of a training run", "pip install 'manyclass[figures]'", optional=True),
        package("matplotlib", "the figure of `tune`", "pip install 'manyclass[figures]'", optional=True),
        package("pillow", "pictures for `identify`", "pip install 'manyclass[identify]'", optional=True),
        package("ml_dtypes", "NumPy arrays of bfloat16", "pip install ml_dtypes", optional=True),
    ]


def examine(say: Callable[[str], None]) -> int:
    """Say the findings line by line and return an exit code: 0 if the core of the library runs."""
    runs = _examine_core(say)
    say("")
    for line in table_of(library_needs()):
        say(line)
    return 0 if runs else 1


def table_of(needs: Iterable[Need]) -> list[str]:
    """Return the lines of a table: found or not, what for, and how to install what is missing."""
    rows = [("", "", "found", "used for", "to install")]
    for need in needs:
        mark = "✓" if need.found else "–" if need.optional else "✗"
        rows.append((mark, need.name, need.found or "missing", need.purpose, "" if need.found else need.install))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _examine_core(say: Callable[[str], None]) -> bool:
    try:
        info = backend_info()
    except (ManyclassError, ImportError) as error:
        say(f"the core does not run: {error}")
        return False
    others = ", ".join(name for name in info.available_simd if name != info.simd) or "nothing else"
    say(f"manyclass {package('manyclass', '', '').found or 'from its sources'}")
    say(f"  backend {info.backend}, instruction set {info.simd} (also possible: {others}), {info.threads} threads")
    say(f"  CPU {cpu_model()}, caches: {caches_in_words(cache_kb()) or 'the system does not tell'}")
    waiting = (f"{name} {os.environ.get(name, 'not set')}" for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"))
    say(f"  {', '.join(waiting)}")
    return True
