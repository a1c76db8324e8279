"""What is installed, what computes here, and what is missing for which experiment (`manyclass doctor`)."""

import os
from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from manyclass import backend_info
from manyclass.errors import ManyclassError
from manyclass.experiments import EXPERIMENTS, find
from manyclass.experiments.needs import PEERS, Need, browser, package


def examine(console: Console) -> int:
    """Print the findings and return an exit code: 0 if the core of the library runs."""
    runs = _core(console)
    _print(common_needs(), "Installed", console)
    for name in EXPERIMENTS:
        try:
            needs = find(name).needs()
        except ModuleNotFoundError as missing:  # said above, with its install line
            if (missing.name or "").startswith("manyclass"):
                raise
            console.print(f"{name}: cannot be looked at while {missing.name} is missing", style="yellow")
            continue
        _print(needs, f"For the experiment {name}", console)
    return 0 if runs else 1


def common_needs() -> list[Need]:
    """Return what the library and the frame of all experiments use."""
    return [
        package("numpy", "everything", "pip install numpy"),
        package("torch", "heads, training and all experiments", "pip install 'manyclass[torch]'"),
        package("matplotlib", "figures", "pip install 'manyclass[figures]'"),
        package("rich", "progress and tables", "pip install 'manyclass[figures]'"),
        package("typer", "this command"),
        package("jinja2", "the page of an experiment"),
        package("pillow", "pictures, drawn or read"),
        package("fonttools", "which characters a font has"),
        package("threadpoolctl", "exact products on as many threads as the others"),
        package("faiss-cpu", "peers: HNSW, IVF-PQ and flat PQ scans", PEERS, optional=True),
        package("scann", "peers: ScaNN", PEERS, optional=True),
        package("hnswlib", "peers: hnswlib", PEERS, optional=True),
        package("playwright", "the test that opens the page", "pip install 'manyclass[test]'", optional=True),
        Need("chromium", browser(), "the test that opens the page", "apt-get install chromium", optional=True),
    ]


def _core(console: Console) -> bool:
    try:
        info = backend_info()
    except (ManyclassError, ImportError) as error:
        console.print(f"[red]the core does not run:[/] {escape(str(error))}", highlight=False)
        return False
    others = ", ".join(name for name in info.available_simd if name != info.simd) or "nothing else"
    waiting = os.environ.get("OMP_WAIT_POLICY", "not set")
    console.print(f"[bold]manyclass {package('manyclass', '').found or 'from its sources'}[/]", highlight=False)
    console.print(f"  backend {info.backend}, instruction set {info.simd} (also possible: {others}), "
                  f"{info.threads} threads, OMP_WAIT_POLICY {waiting}", highlight=False)  # fmt: skip
    return True


def _print(needs: Iterable[Need], title: str, console: Console) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in ("", "", "found", "used for", "to install"):
        table.add_column(column)
    for need in needs:
        mark, style = ("✓", "green") if need.found else ("–", "yellow") if need.optional else ("✗", "red")
        install = "" if need.found else escape(need.install)
        table.add_row(f"[{style}]{mark}[/]", need.name, need.found or "missing", need.purpose, install)
    console.print()
    console.print(table)
