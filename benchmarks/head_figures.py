"""Draw all figures and tables of the heads from the JSON lines. Nothing is measured here."""

from pathlib import Path

from rich.console import Console


def draw_all(source: Path, console: Console) -> None:
    """Draw what the folder of records holds."""
