"""The figures of the experiment: precision and analogies against CPU seconds and against words learned from."""

from pathlib import Path

from experiments.frame.drawing import Line, canvas, draw_lines, in_percent, save
from experiments.frame.page import Figure
from experiments.frame.records import Record
from experiments.skipgram.names import COLOURS, SHORT
from experiments.skipgram.page.tables import analogy

MEASURES = {"precision_10": "precision@10", "analogies": "analogies"}
AXES = {"cpu_seconds": ("CPU seconds", 1), "words": ("million words learned from", 1_000_000)}


def draw_curves(found: dict[str, Record], folder: Path) -> Figure:
    """Draw each measure against each axis; a peer, tested at its end only, is a dot."""
    figure, axes = canvas(2, rows=2, width=12.5, height=8.4)
    panels = [(measure, axis) for measure in MEASURES for axis in AXES]
    for axis, (measure, against) in zip(axes, panels, strict=True):
        lines = [line for name, record in found.items() if (line := curve_of(name, record, measure, against))]
        scale = "log" if lines else "linear"
        draw_lines(axis, lines, xlabel=AXES[against][0], ylabel=MEASURES[measure], ylim=(0, None), xscale=scale)
        in_percent(axis.yaxis)
    return Figure(
        "curves", save(figure, folder, "curves"),
        "Precision@10 over a part of the held-out pairs (above) and a part of Google's analogies (below) while "
        "learning: the tables have all of them. Single dots: peers, at their end.",
        "Precision and analogies against CPU seconds and against words",
    )  # fmt: skip


def curve_of(name: str, record: Record, measure: str, against: str) -> Line | None:
    """Return a line, if there is anything to draw."""
    own = name == "candidate"
    style = {"color": COLOURS[name], "linewidth": 3 if own else 1.8, "marker": "o", "markersize": 4,
             "zorder": 5 if own else 3, "clip_on": False}  # fmt: skip
    points = [(point[against], point[measure]) for point in record.get("curve", ()) if point.get(measure) is not None]
    if not record.get("curve") and measure == "analogies":  # a peer of older records, tested on all questions
        points = [] if (value := analogy(record)) is None else [(record[against], value)]
    points = [point for point in points if point[0] > 0]
    return (
        Line(SHORT[name], [x / AXES[against][1] for x, _ in points], [y for _, y in points], style) if points else None
    )
