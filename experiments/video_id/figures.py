"""The figures of the page, each from records."""

import statistics
from pathlib import Path

from experiments.demo.page import COLOURS
from experiments.frame.drawing import INK, Line, canvas, draw_lines, in_percent, in_plain_numbers, save, series_style
from experiments.frame.page import Figure
from experiments.frame.records import Record
from experiments.video_id.results import NAMES, PARTS, Motion

HOUR = 3600.0
ZOOM = 1.6  # times the middle one of the steps, where long bars are cut
OURS = "#d1361f"
OTHER = "#2c7fb8"


def draw_sheet(sheet: Record, folder: Path) -> Figure:
    """Draw the contact sheet: a video in each row, its training half left and its evaluation half right."""
    import numpy as np

    from experiments.video_id.videos import sheet_pixels

    pixels, side = sheet_pixels(sheet), int(sheet["side"])
    half = sheet["frames"] * side
    figure, axes = canvas(2, width=11, height=11 * sheet["videos"] / (2 * sheet["frames"]) + 0.35)
    for axis, part, title in ((axes[0], pixels[:, :half], "first half: training"),
                              (axes[1], pixels[:, half:], "second half: evaluation")):  # fmt: skip
        axis.imshow(np.repeat(np.repeat(part, 2, 0), 2, 1), interpolation="none", aspect="equal")
        axis.set(xticks=[], yticks=[], title=title)
        axis.grid(False)
        for spine in axis.spines.values():
            spine.set_visible(False)
    caption = "One video in each row: frames for training left, frames for evaluation right, in the order of time."
    return Figure("sheet", save(figure, folder, "sheet"), caption, "Contact sheet of sample videos, both halves")


def head_style(head: str) -> dict[str, object]:
    """Return line options of an output layer."""
    own = head == "candidate"
    colour = COLOURS["candidate" if head == "mined" else head]
    dashes = (0, (5, 1.5)) if head in ("wta", "mined") else "-"
    return {"color": colour, "linewidth": 2.8 if own else 1.8, "marker": "o", "markersize": 3.5,
            "zorder": 5 if own else 3, "linestyle": dashes, "clip_on": False}  # fmt: skip


def draw_curves(curves: dict[str, list[Record]], folder: Path, name: str, what: str) -> Figure:
    """Draw accuracy against steps and against hours, the paper's two figures."""
    figure, (steps, hours) = canvas(2, width=13, height=5, sharey=True)
    last = max(line[-1]["seconds"] for line in curves.values())
    unit, divisor = ("hours", HOUR) if last >= HOUR / 2 else ("seconds", 1.0)
    in_percent(steps.yaxis)
    for axis in (steps, hours):
        in_plain_numbers(axis.xaxis)

    def lines(field: str, by: float, named: bool) -> list[Line]:
        return [
            Line(NAMES[head] if named else "", [0, *(point[field] / by for point in line)],
                 [0, *(point["accuracy"] for point in line)], head_style(head))
            for head, line in curves.items()
        ]  # fmt: skip

    draw_lines(steps, lines("step", 1, False), xlabel="steps", ylabel="accuracy on second halves", xlim=(0, None),
               ylim=(0, None))  # fmt: skip
    draw_lines(hours, lines("seconds", divisor, True), xlabel=f"{unit} of training", xlim=(0, None))
    caption = f"{what}: accuracy on frames of second halves against steps and against time."
    return Figure(name, save(figure, folder, name), caption, f"{what}: accuracy against steps and time")


def draw_parts(found: dict[str, Record], folder: Path, name: str) -> Figure:
    """Draw what a step's time goes into, a bar for each output layer; once more, cut, so that short steps are seen."""
    figure, axes = canvas(2, width=13, height=0.55 * len(found) + 1.9, sharey=True)
    cut = ZOOM * statistics.median(float(record["step_ms"]) for record in found.values())
    for axis, most in zip(axes, (None, cut), strict=True):
        left = [0.0] * len(found)
        for part, (said, colour) in PARTS.items():
            widths = [float(record[part]) for record in found.values()]
            axis.barh(list(range(len(found))), widths, left=left, color=colour, label=said, height=0.62)
            left = [before + width for before, width in zip(left, widths, strict=True)]
        for place, total in enumerate(left):
            if most is None or total < most:
                axis.annotate(f"{total:,.0f} ms" if total >= 10 else f"{total:.1f} ms", (total, place), xytext=(5, 0),
                              textcoords="offset points", va="center", fontsize=9, color=INK)  # fmt: skip
        in_plain_numbers(axis.xaxis)
        axis.set(
            xlabel="milliseconds of a training step" + (", cut" if most else ""), xlim=(0, most or 1.2 * max(left))
        )
        axis.grid(False, axis="y")
    axes[0].set_yticks(list(range(len(found))), [NAMES[head] for head in found])
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=len(PARTS),
                  loc="outside upper center")  # fmt: skip
    caption = "A training step by its parts; right, the same with long bars cut."
    return Figure(name, save(figure, folder, name), caption, "Stacked bars of the parts of a step by output layer")


def draw_variance(videos: Record, pictures: Record | None, folder: Path) -> Figure:
    """Draw the in-class variance of this task and of the 21k-class task on one axis, the paper's third figure."""
    figure, (axis,) = canvas(1, width=9, height=4.2)
    for name, found, colour in (("videos", videos, OURS), ("21k-class task", pictures, OTHER)):
        if found is None:
            continue
        total, widths = sum(found["counts"]), [b - a for a, b in zip(found["edges"], found["edges"][1:], strict=False)]
        density = [count / total / width for count, width in zip(found["counts"], widths, strict=True)]
        label = f"{name}: mean {found['mean']:.3g}, between classes {found['between']:.3g}"
        axis.stairs(density, found["edges"], fill=True, color=colour, alpha=0.55, label=label)
        axis.axvline(found["mean"], color=colour, linewidth=1.2)
    in_plain_numbers(axis.xaxis)
    axis.set(xlabel="in-class variance, features at unit length", ylabel="density of classes", xlim=(0, None))
    axis.legend(frameon=False, fontsize=9)
    caption = "How far the examples of a class lie apart in the penultimate layer. Each area is one; lines are means."
    return Figure("variance", save(figure, folder, "variance"), caption, "In-class variance of two tasks on one axis")


def draw_motion(series: list[Motion], folder: Path) -> Figure:
    """Draw accuracies against motion, and what approximate updates keep of full softmax against the variance."""
    figure, (accuracy, shares) = canvas(2, width=12, height=4.6)
    heads = [head for head in NAMES if all(head in one.accuracy for one in series)]
    in_percent(accuracy.yaxis)
    in_plain_numbers(accuracy.xaxis)
    draw_lines(
        accuracy,
        [Line("", [one.motion for one in series], [one.accuracy[head] for one in series], head_style(head))
         for head in heads],
        xlabel="camera motion", ylabel="accuracy on second halves, after the same steps", ylim=(0, None),
    )  # fmt: skip
    in_percent(shares.yaxis)
    in_plain_numbers(shares.xaxis)
    kept = [head for head in heads if head != "full"]
    lines = [
        Line(NAMES[head], [one.variance for one in series], [one.shares[head] for one in series], head_style(head))
        for head in kept
    ]
    shares.axhline(1, color=COLOURS["full"], linewidth=1)
    draw_lines(shares, lines, xlabel="in-class variance", ylabel="share of full softmax's accuracy on the way",
               ylim=(0, None))  # fmt: skip
    caption = (
        "The same videos, network and steps; only the camera moves more. Left: what is reached, grey is full softmax. "
        "Right: what is kept of full softmax's accuracy, over all evaluations on the way."
    )
    return Figure("motion", save(figure, folder, "motion"), caption, "Accuracy against motion, and against variance")


def draw_million(points: list[Record], nearest: float | None, folder: Path) -> Figure:
    """Draw how the layer over all scenes learned, beside the nearest class mean."""
    figure, (axis,) = canvas(1, width=9, height=4.2)
    last = points[-1]["seconds"]
    unit, divisor = ("hours", HOUR) if last >= HOUR / 2 else ("seconds", 1.0)
    in_percent(axis.yaxis)
    in_plain_numbers(axis.xaxis)
    seconds = [0, *(point["seconds"] / divisor for point in points)]
    lines = [Line("candidate softmax", seconds, [0, *(point["accuracy"] for point in points)], head_style("candidate"))]
    if nearest is not None:
        style = {"color": INK, "linewidth": 1.4, "linestyle": (0, (3, 2))}
        lines.append(Line("nearest class mean, exact", [0, last / divisor], [nearest, nearest], style))
    draw_lines(axis, lines, xlabel=f"{unit} of training", ylabel="accuracy on second halves", xlim=(0, None),
               ylim=(0, None))  # fmt: skip
    caption = "The output layer over all scenes on kept features, beside the exact nearest class mean on the same."
    return Figure("million", save(figure, folder, "million"), caption, "Accuracy over all scenes against time")


def draw_latency(found: list[Record], folder: Path) -> Figure:
    """Draw the time of one query on one core against what it keeps of the exact accuracy."""
    figure, (axis,) = canvas(1, width=9, height=4.2)
    ordered = sorted(found, key=lambda one: one["candidates"])
    in_percent(axis.xaxis)
    kept = [one["accuracy"] / max(one["exact_accuracy"], 1e-9) for one in ordered]
    draw_lines(axis, [Line("", kept, [one["us"] for one in ordered], series_style(1))],
               xlabel="of the exact accuracy", ylabel="µs of one query on one core", ylim=(0, None),
               xlim=(min(0.98, *kept) - 0.01, max(1.0, *kept) + 0.01))  # fmt: skip
    in_plain_numbers(axis.yaxis)
    for one, share in zip(ordered, kept, strict=True):
        axis.annotate(f"{one['candidates']}", (share, one["us"]), xytext=(-6, 3), textcoords="offset points",
                      fontsize=8, ha="right")  # fmt: skip
    caption = "One query among all scenes on one core; beside each point the classes that get an exact logit."
    return Figure("latency", save(figure, folder, "latency"), caption, "Time of one query against accuracy kept")
