"""Figures of training and of the features, drawn from records."""

from pathlib import Path
from typing import Any

from experiments.frame.drawing import INK, QUIET, canvas, in_percent, label_ends, one_two_five, save
from experiments.frame.page import Figure
from experiments.frame.records import Record
from experiments.imagenet21k.head_names import Series, name_of

HEADS = {"full": "#5b6670", "hierarchical": "#2c7fb8", "sampled": "#2a9d4a"}
WTA = {
    "paper": ("#f0bd72", "#e89a2c", "#a8650a"),
    "own": ("#d9a0c4", "#b0508c", "#6f1a52"),
    "shared": ("#ef8a75", "#d1361f", "#8c1c0f"),
}  # light: few candidates


def draw_curves(curves: dict[Series, list[Record]], folder: Path, name: str, what: str) -> Figure:
    """Draw accuracy against steps and against seconds of training, a line for each head."""
    figure, (steps, seconds) = canvas(2, width=13, height=5.2, sharey=True)
    ends = []
    for series, line in curves.items():
        style = look(series, list(curves))
        accuracy = [record["accuracy"] for record in line]
        steps.plot([record["step"] for record in line], accuracy, **style)
        seconds.plot([record["seconds"] for record in line], accuracy, **style)
        ends.append((name_of(series), accuracy[-1], style["color"]))
    steps.set(xlabel="steps", ylabel="held-out accuracy", xscale="log", ylim=(0, None))
    in_percent(steps.yaxis)
    one_two_five(steps.xaxis)
    seconds.set(xlabel="seconds of training", xlim=(0, None))
    seconds.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    label_ends(seconds, ends)
    caption = f"{what}: accuracy on held-out examples against steps and against time."
    return Figure(name, save(figure, folder, name), caption, f"{what}: accuracy against steps and seconds")


def look(series: Series, among: list[Series]) -> dict[str, Any]:
    """Return line options of a head; ours get darker with more candidates."""
    head, candidates, rule = series
    style: dict[str, Any] = {"linewidth": 1.8, "marker": "o", "markersize": 3, "zorder": 3}
    if head != "wta":
        return style | {"color": HEADS.get(head, QUIET)}
    shades = WTA[rule or "shared"]
    sizes = sorted({other[1] or 0 for other in among if other[0] == head and other[2] == rule})
    shade = shades[1] if len(sizes) == 1 else shades[min(2, sizes.index(candidates or 0))]
    return style | {
        "color": shade,
        "linewidth": 2.4,
        "zorder": 5,
        "linestyle": (0, (5, 1.5)) if rule == "paper" else "-",
    }


def draw_base(points: list[Record], folder: Path) -> Figure:
    """Draw how the base network learned."""
    figure, (axis,) = canvas(1, width=9, height=3.8)
    axis.plot([point["step"] for point in points], [point["accuracy"] for point in points], color=INK, linewidth=2)
    axis.set(xlabel="steps", ylabel="held-out accuracy", ylim=(0, None), xlim=(0, None))
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    in_percent(axis.yaxis)
    caption = "The base network while it is trained, before the exact softmax layer is fitted on its features."
    return Figure("base", save(figure, folder, "base"), caption, "Accuracy of the base network against steps")


def draw_variance(result: Record, folder: Path) -> Figure:
    """Draw the histograms of in-class variance, of unit-length features and of features as they are."""
    figure, (unit, raw) = canvas(2, width=11, height=4)
    for axis, edges, counts in (
        (unit, result["edges"], result["counts"]),
        (raw, result["raw_edges"], result["raw_counts"]),
    ):
        axis.stairs(counts, edges, fill=True, color="#d1361f", alpha=0.75)
        axis.set(ylabel="classes", xlim=(0, None))
    unit.axvline(result["mean"], color=INK, linewidth=1.2)
    unit.annotate("mean", (result["mean"], 0.97), xycoords=("data", "axes fraction"), xytext=(4, 0), color=INK,
                  textcoords="offset points", fontsize=9, va="top")  # fmt: skip
    unit.set(xlabel="in-class variance, features at unit length", title="Unit-length features")
    raw.set(xlabel="in-class variance ÷ variance of all features", title="Features as they are")
    caption = "How many classes have which variance among their own examples."
    return Figure("variance", save(figure, folder, "variance"), caption, "Histograms of the in-class variance")
