"""What an experiment needs on a machine: found or not, and how to install it."""

import shutil

from manyclass.doctor import Need
from manyclass.doctor import package as any_package

__all__ = ["EXTRA", "PEERS", "Need", "browser", "common_needs", "package"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
EXTRA = "pip install '.[experiments]'"
PEERS = "pip install '.[peers]'"


def package(name: str, purpose: str, install: str = EXTRA, optional: bool = False) -> Need:
    """Return the need of a Python package, by the name pip knows."""
    return any_package(name, purpose, install, optional)


def browser() -> str | None:
    """Return the path of a Chromium that can open a page without a display."""
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


def common_needs() -> list[Need]:
    """Return what the frame of all experiments uses."""
    return [
        package("torch", "heads, training and all experiments"),
        package("matplotlib", "figures"),
        package("rich", "progress and tables"),
        package("typer", "this command"),
        package("jinja2", "the page of an experiment"),
        package("pillow", "pictures, drawn or read"),
        package("fonttools", "which characters a font has"),
        package("threadpoolctl", "exact products on as many threads as the others"),
        package("faiss-cpu", "peers: HNSW, IVF-PQ and flat PQ scans", PEERS, optional=True),
        package("scann", "peers: ScaNN", PEERS, optional=True),
        package("hnswlib", "peers: hnswlib", PEERS, optional=True),
        package("playwright", "the test that opens the page", "pip install '.[test]'", optional=True),
        Need("chromium", browser(), "the test that opens the page", "apt-get install chromium", optional=True),
    ]
