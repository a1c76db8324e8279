"""The figures of the page, drawn from records: the layer, training, the features."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from experiments.frame.drawing import (
    INK,
    MOST_SHARE,
    QUIET,
    Line,
    canvas,
    draw_lines,
    in_percent,
    in_plain_numbers,
    line_style,
    save,
    stretch_to_all,
)
from experiments.frame.page import Figure
from experiments.frame.records import Record
from experiments.imagenet21k import paper, results
from experiments.imagenet21k.results import PIPELINES, Cells, Series, kept, name_of

NAMES = {"default": "manyclass default", "paper": "manyclass paper pipeline"}
THIN = {"linewidth": 1.2, "linestyle": ":", "markersize": 2.5}
DASHED: dict[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": (0, (4, 2))}
FLOOR = 0.8  # share of the accuracy below which no setting is of interest
HEADS = {"full": "#5b6670", "hierarchical": "#2c7fb8", "sampled": "#2a9d4a"}
OURS = ("#ef8a75", "#d1361f", "#8c1c0f")
SHADES = {  # light: few candidates
    ("wta", None): ("#f0bd72", "#e89a2c", "#a8650a"),
    ("candidate", "own"): ("#d9a0c4", "#b0508c", "#6f1a52"),
    ("candidate", "looked up"): OURS,
    ("candidate", "default"): OURS,
}


# The layer alone


def draw_accuracy(cells: Cells, folder: Path) -> Figure:
    """Draw accuracy, and its share of the exact accuracy, against the number of candidates."""
    batch = results.batches(cells)[0]  # the accuracy does not depend on it
    figure, (absolute, share) = canvas(2, width=11, height=4.6)
    measured = {name: results.by_candidates(cells, name, batch) for name in PIPELINES}
    exact = next(record["exact_accuracy"] for line in measured.values() for record in line)
    absolute.axhline(exact, **DASHED)
    absolute.annotate("exact softmax", (0.01, exact), xycoords=("axes fraction", "data"), xytext=(0, 4),
                      textcoords="offset points", color=INK, fontsize=9)  # fmt: skip
    share.axhline(1, **DASHED)
    printed = {"color": QUIET, "marker": "D", "markersize": 5, "linestyle": "none", "zorder": 4}
    lines = [
        Line(NAMES[name], _column(line, "candidates"), [kept(record) for record in line], line_style(NAMES[name]))
        for name, line in measured.items()
    ]
    in_words = Line("as printed in the paper", list(paper.ACCURACY_KEPT), list(paper.ACCURACY_KEPT.values()), printed)
    for axis in (absolute, share):
        in_percent(axis.yaxis)
    log: dict[str, Any] = {"xscale": "log", "xlabel": "candidates scored exactly (K)"}
    draw_lines(
        absolute, [Line("", line.x, _column(measured[name], "accuracy"), line.style)
                   for name, line in zip(measured, lines, strict=True)],
        ylabel="held-out accuracy", title="Accuracy", **log,
    )  # fmt: skip
    draw_lines(share, [*lines, in_words], ylabel="share of the exact accuracy",
               title="Share kept, beside the paper's numbers", **log)  # fmt: skip
    return Figure(
        "accuracy", save(figure, folder, "accuracy"),
        "Left: accuracy on held-out examples; the dashed line is the exact layer. Right: the same as a share of the "
        "exact accuracy, with the three numbers the paper prints for its own network (diamonds).",
        "Accuracy against the number of candidates for the default and the paper's pipeline",
    )  # fmt: skip


def draw_trade_off(cells: Cells, folder: Path, sizes: Iterable[int]) -> Figure:
    """Draw speed-up against the share of the exact accuracy, a panel for each batch size."""
    sizes = list(sizes)
    figure, axes = canvas(len(sizes), width=12, height=4.8, sharey=True)
    for axis, batch in zip(axes, sizes, strict=True):
        axis.plot(*paper.TRADE_OFF, color=QUIET, marker="D", markersize=6, zorder=6)
        axis.annotate("the paper", paper.TRADE_OFF, xytext=(7, -3), textcoords="offset points", color=QUIET,
                      fontsize=9)  # fmt: skip
        if batch == 1:
            axis.plot(*paper.GOAL_TRADE_OFF, color=INK, marker="*", markersize=11, markerfacecolor="none", zorder=6)
            axis.annotate("goal", paper.GOAL_TRADE_OFF, xytext=(-8, 4), textcoords="offset points", color=INK,
                          fontsize=9, ha="right")  # fmt: skip
        axis.axhline(1, **DASHED)
        stretch_to_all(axis, FLOOR)
        good = {name: _worth_showing(results.by_candidates(cells, name, batch)) for name in PIPELINES}
        named = NAMES if batch == sizes[-1] else dict.fromkeys(NAMES, "")
        draw_lines(
            axis, _both_speedups(good, named, kept),
            yscale="log", xlabel="share of the exact accuracy", title=f"batch {batch}",
        )  # fmt: skip
    axes[0].set_ylabel("times faster than exact")
    return Figure(
        "trade_off", save(figure, folder, "trade_off"),
        "Thick: against the fastest exact product of the same batch on this machine. Thin dotted: against torch's "
        "softmax as one writes it. Each point is a number of candidates: those that keep less than 80% are left out, "
        "and those that are more than it takes to keep 99.99%, the right edge. The diamond is what the paper reports, "
        "for a batch size that it does not name.",
        "Speed-up against the share of the exact accuracy",
    )  # fmt: skip


def draw_batches(cells: Cells, folder: Path) -> Figure:
    """Draw the speed-up with the fewest candidates that keep 95% of the exact accuracy, against batch size."""
    figure, (axis,) = canvas(1, width=9, height=4.6)
    sizes = results.batches(cells)
    share = paper.BATCH_CURVE_SHARE
    found = {
        name: [best for batch in sizes if (best := results.fewest(cells, name, batch, share))] for name in PIPELINES
    }
    axis.axhline(1, **DASHED)
    draw_lines(
        axis, _both_speedups(found, NAMES, lambda record: record["batch"]), xscale="log", yscale="log",
        xlabel="batch size", ylabel="times faster than exact",
    )  # fmt: skip
    axis.set_xticks(sizes, [str(batch) for batch in sizes])
    return Figure(
        "batches", save(figure, folder, "batches"),
        "The fewest candidates that keep 95% of the exact accuracy. Thick: against the fastest exact "
        "product of the same batch. Thin dotted: against torch's softmax.",
        "Speed-up at 95% of the exact accuracy against batch size",
    )  # fmt: skip


def _both_speedups(
    found: dict[str, list[Record]], names: dict[str, str], place: Callable[[Record], float]
) -> list[Line]:
    """Return two lines for each pipeline: against the fastest exact product, and thin against torch's softmax."""
    lines = []
    for pipeline, line in found.items():
        x, style = [place(record) for record in line], line_style(NAMES[pipeline])
        lines.append(Line("", x, _column(line, "speedup_torch"), style | THIN))
        lines.append(Line(names[pipeline], x, _column(line, "speedup"), style))
    return lines


def _worth_showing(line: list[Record]) -> list[Record]:
    """Return the cells from an interesting accuracy on up to the first that loses nothing."""
    good = [record for record in line if kept(record) >= FLOOR]
    complete = next((number for number, record in enumerate(good) if kept(record) >= MOST_SHARE), len(good))
    return good[: complete + 1]


def _column(line: list[Record], field: str) -> list[float]:
    return [record[field] for record in line]


# Training


def draw_curves(curves: dict[Series, list[Record]], folder: Path, name: str, what: str) -> Figure:
    """Draw accuracy against steps and against seconds of training, a line for each head."""
    figure, (steps, seconds) = canvas(2, width=13, height=5.2, sharey=True)
    accuracy = {series: _column(line, "accuracy") for series, line in curves.items()}
    style = {series: style_of(series, list(curves)) for series in curves}
    in_percent(steps.yaxis)
    in_plain_numbers(seconds.xaxis)
    draw_lines(
        steps, [Line("", _column(line, "step"), accuracy[series], style[series]) for series, line in curves.items()],
        xlabel="steps", ylabel="held-out accuracy", xscale="log", ylim=(0, None),
    )  # fmt: skip
    draw_lines(
        seconds, [Line(name_of(series), _column(line, "seconds"), accuracy[series], style[series])
                  for series, line in curves.items()],
        xlabel="seconds of training", xlim=(0, None),
    )  # fmt: skip
    caption = f"{what}: accuracy on held-out examples against steps and against time."
    return Figure(name, save(figure, folder, name), caption, f"{what}: accuracy against steps and seconds")


def style_of(series: Series, among: list[Series]) -> dict[str, Any]:
    """Return line options of a head; those with candidates get darker with more of them."""
    head, candidates, rule = series
    style: dict[str, Any] = {"linewidth": 1.8, "marker": "o", "markersize": 3, "zorder": 3}
    if head in HEADS:
        return style | {"color": HEADS[head]}
    shades = SHADES[head, rule]
    sizes = sorted({other[1] or 0 for other in among if (other[0], other[2]) == (head, rule)})
    shade = shades[1] if len(sizes) == 1 else shades[min(2, sizes.index(candidates or 0))]
    dashes = (0, (5, 1.5)) if head == "wta" else "-"
    return style | {"color": shade, "linewidth": 2.4, "zorder": 5, "linestyle": dashes}


def draw_base(points: list[Record], folder: Path) -> Figure:
    """Draw how the base network learned."""
    figure, (axis,) = canvas(1, width=9, height=3.8)
    in_percent(axis.yaxis)
    in_plain_numbers(axis.xaxis)
    line = Line("", _column(points, "step"), _column(points, "accuracy"), {"color": INK, "linewidth": 2})
    draw_lines(axis, [line], xlabel="steps", ylabel="held-out accuracy", ylim=(0, None), xlim=(0, None))
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
