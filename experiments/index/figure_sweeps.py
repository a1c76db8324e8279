"""Growth with the number of classes, and accuracy and time against one knob."""

from math import log10
from pathlib import Path

import numpy as np
from matplotlib.ticker import PercentFormatter

from experiments.frame.drawing import canvas, one_two_five, save, series_style, spread


def group_lines(records: list[dict], group: str, across: str) -> dict[str, list[dict]]:
    """Return one list of records per value of `group`, each sorted along `across`."""
    lines: dict[str, list[dict]] = {}
    for record in sorted(records, key=lambda record: record[across]):
        lines.setdefault(str(record[group]), []).append(record)
    return lines


def log_log_slope(line: list[dict], across: str, value: str) -> float:
    """Return the fitted exponent of growth: 1 is linear, 0 is constant."""
    return float(np.polyfit(np.log([r[across] for r in line]), np.log([r[value] for r in line]), 1)[0])


def draw_growth(records: list[dict], folder: Path, name: str = "growth") -> None:
    """Draw µs per query against classes, one line per `peer`, its slope and its recall on the label.

    Records: peer, classes, us_batch1, recall (of the planted row).
    """
    figure, (axis,) = canvas(1, width=9, height=5.4)
    lines = group_lines(records, "peer", "classes")
    axis.set(xscale="log", yscale="log", xlabel="classes", ylabel="µs per query, one at a time")
    for position, line in enumerate(lines.values()):
        axis.plot([r["classes"] for r in line], [r["us_batch1"] for r in line], **series_style(position))
    span = max(log10(r["us_batch1"]) for r in records) - min(log10(r["us_batch1"]) for r in records)
    heights = spread([log10(line[-1]["us_batch1"]) for line in lines.values()], gap=max(span, 0.5) / 9)
    for position, ((peer, line), height) in enumerate(zip(lines.items(), heights, strict=True)):
        slope = f", slope {log_log_slope(line, 'classes', 'us_batch1'):.2f}" if len(line) > 1 else ""
        text = f"{peer}\nrecall ≥ {min(r['recall'] for r in line):.2f}{slope}"
        end = line[-1]["classes"] * 1.12, 10**height
        axis.text(*end, text, color=series_style(position)["color"], fontsize=8.5, va="center", linespacing=1.15)
    one_two_five(axis.yaxis)
    classes = sorted({record["classes"] for record in records})
    axis.set_xticks(classes, [f"{count:,}" for count in classes])
    axis.set_title("Time per query as classes grow", weight="bold")
    save(figure, folder, name)


def draw_sweep(records: list[dict], folder: Path, name: str, knob: str) -> None:
    """Draw accuracy kept above, µs per query below, against `knob`; one line per `peer`.

    Records: peer, the knob, accuracy_kept, us_batch1.
    """
    figure, (accuracy, time) = canvas(1, rows=2, width=8.5, height=7, sharex=True)
    for position, (peer, line) in enumerate(group_lines(records, "peer", knob).items()):
        style = series_style(position)
        values = [r[knob] for r in line]
        accuracy.plot(values, [r["accuracy_kept"] for r in line], label=peer, **style)
        time.plot(values, [r["us_batch1"] for r in line], **style)
    accuracy.legend(loc="lower right", frameon=False)
    time.set(xscale="log", yscale="log", xlabel=knob, ylabel="µs per query, one at a time")
    accuracy.set_ylabel("label accuracy kept")
    accuracy.yaxis.set_major_formatter(PercentFormatter(1))
    one_two_five(time.yaxis)
    values = sorted({record[knob] for record in records})
    time.set_xticks(values, [f"{value:,}" for value in values])
    accuracy.set_title(f"Accuracy and time against {knob}", weight="bold")
    save(figure, folder, name)
