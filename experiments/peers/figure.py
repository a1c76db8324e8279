"""The figure of a comparison: time per query against what is kept, each peer's best settings."""

from collections.abc import Mapping
from pathlib import Path

from experiments.frame.drawing import MOST_SHARE, Line, canvas, draw_lines, line_style, save, stretch_to_all
from experiments.frame.page import Figure
from experiments.frame.records import Record
from experiments.peers.judging import ACCURACY, WINNER, quality
from manyclass.tuning import frontier

FLOOR = 0.8  # share below which no setting is of interest
# Of two pipelines of ours in one colour, the second is drawn thinner.
SECOND = {name: {"linewidth": 1.4, "markersize": 3.5} for name in ("manyclass scan", "manyclass cells, 512 bits")}
MEASURES = {ACCURACY: "share of the exact accuracy", WINNER: "share of the exact winners"}


def draw_peers(
    peers: Mapping[str, list[Record]], folder: Path, name: str, batches: Mapping[str, str], measure: str = ACCURACY
) -> Figure:
    """Draw µs per query against a measure of quality, a panel for each field of times with its title."""
    figure, axes = canvas(len(batches), width=13, height=5.6)
    for axis, (field, title) in zip(axes, batches.items(), strict=True):
        lines = []
        for peer, settings in peers.items():
            best = best_settings(settings, field, measure)
            shares, times = [quality(found, measure) for found in best], [found[field] for found in best]
            lines.append(Line(peer, shares, times, line_style(peer) | SECOND.get(peer, {})))
        settled = {"yscale": "log", "xlabel": MEASURES[measure], "title": f"µs per query, {title}: lower is better"}
        draw_lines(axis, [line for line in lines if line.x], gap=0.05, **settled)
        stretch_to_all(axis, FLOOR)
    return Figure(
        name, save(figure, folder, name),
        "A line joins the settings of a peer that no other of its settings beats in both time and quality; more than "
        "99.99% stands at the right edge, and who never reaches 80% is left out.",
        f"Time per query against the {MEASURES[measure]} for manyclass and its peers",
    )  # fmt: skip


def best_settings(settings: list[Record], field: str, measure: str) -> list[Record]:
    """Return the settings of interest that none beats in both time and quality, quickest first."""
    good = [found for found in settings if quality(found, measure) >= FLOOR]
    return frontier(good, lambda found: float(found[field]), lambda found: min(MOST_SHARE, quality(found, measure)))
