"""What an experiment needs on a machine: found or not, and how to install it."""

import importlib.metadata
import shutil
from dataclasses import dataclass

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
EXTRA = "pip install 'manyclass[experiments]'"
PEERS = "pip install 'manyclass[peers]'"


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


def package(name: str, purpose: str, install: str = EXTRA, optional: bool = False) -> Need:
    """Return the need of a Python package, by the name pip knows."""
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found = None
    return Need(name, found, purpose, install, optional)


def browser() -> str | None:
    """Return the path of a Chromium that can open a page without a display."""
    return next((path for path in map(shutil.which, BROWSERS) if path), None)
