"""The figures of the sweeps: time as classes grow, and accuracy and time against one knob."""

from collections.abc import Mapping
from pathlib import Path

from experiments.frame.drawing import Line, canvas, draw_lines, in_percent, save, series_style
from experiments.frame.page import Figure
from experiments.frame.records import Record
from experiments.index.growth import FEATURES
from experiments.index.tables import exponent

Lines = Mapping[str, list[Record]]


def draw_growth(lines: Lines, folder: Path, rows_of: str) -> Figure:
    """Draw µs per query, in batches and one at a time, against classes."""
    figure, axes = canvas(2, width=12, height=4.6, sharey=True)
    fields = {"us_batch": "in batches", "us_single": "one at a time"}
    for axis, (field, title) in zip(axes, fields.items(), strict=True):
        drawn = [
            Line(_named(peer, line, field), [found["classes"] for found in line], [found[field] for found in line],
                 series_style(place))
            for place, (peer, line) in enumerate(lines.items())
        ]  # fmt: skip
        draw_lines(axis, drawn, gap=0.13, xscale="log", yscale="log", xlabel="classes", title=title)
        sizes = sorted({found["classes"] for line in lines.values() for found in line})
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes[0].set_ylabel("µs per query")
    name = f"growth_{rows_of.replace(' ', '_')}"
    return Figure(
        name, save(figure, folder, name),
        f"{rows_of.capitalize()}, {FEATURES} features; as many candidates as it takes to find the winner of nine "
        "queries in ten. Beside each line, the power of the number of classes with which its time grows.",
        f"Time per query against the number of classes, {rows_of}",
    )  # fmt: skip


def _named(peer: str, line: list[Record], field: str) -> str:
    return f"{peer}\n∝ classes^{exponent(line, field):.2f}" if len(line) > 1 else peer


def draw_sweep(lines: Lines, folder: Path, knob: str) -> Figure:
    """Draw accuracy kept and µs per query against a knob."""
    figure, (accuracy, time) = canvas(2, width=12.5, height=4.6)
    values = sorted({found[knob] for line in lines.values() for found in line})
    for axis, field in ((accuracy, "accuracy_kept"), (time, "us_batch1")):
        drawn = [
            Line(peer, [found[knob] for found in line], [found[field] for found in line], series_style(place))
            for place, (peer, line) in enumerate(lines.items())
        ]
        draw_lines(axis, drawn, xscale="log", yscale="linear" if axis is accuracy else "log", xlabel=knob)
        axis.set_xticks(values, [f"{value:,}" for value in values], fontsize=8.5)
        axis.minorticks_off()
    in_percent(accuracy.yaxis)
    accuracy.set_title("share of the exact accuracy")
    time.set_title("µs per query, one at a time")
    return Figure(
        knob, save(figure, folder, knob),
        f"Left: what is kept of the exact accuracy. Right: the time it takes. Both against the number of {knob}.",
        f"Accuracy kept and time per query against the number of {knob}",
    )  # fmt: skip
