"""The figures of the experiment, drawn from records."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.frame.drawing import (
    QUIET,
    Line,
    canvas,
    draw_lines,
    in_percent,
    one_two_five,
    save,
    series_style,
)
from experiments.frame.page import Figure
from experiments.frame.records import Records
from experiments.heads.sizes import TOUCHED_FIRST
from experiments.heads.tables import learning_groups, mean_curve, newest

LOOKS = {  # colour and width of a head in every figure, and its name beside its line
    "candidate": ("#d1361f", 3.0, "candidate (ours)"),
    "own candidates": ("#8a2be2", 1.8, "own candidates"),
    "wta": ("#e89a2c", 1.8, "the paper's rule"),
    "hierarchical": ("#2c7fb8", 1.8, "hierarchical"),
    "sampled": ("#2a9d4a", 1.8, "sampled, 512"),
    "sampled 2048": ("#14602b", 1.8, "sampled, 2,048"),
    "sampled by frequency": ("#1bb5b5", 1.8, "by frequency, 512"),
    "sampled 2048 by frequency": ("#0b6a78", 1.8, "by frequency, 2,048"),
    "in-batch": ("#b58bd6", 1.8, "in-batch"),
    "full": ("#5b6670", 1.8, "full softmax"),
}


def look(head: str) -> dict[str, Any]:
    """Return line options of a head."""
    colour, width, _ = LOOKS[head]
    return {"color": colour, "linewidth": width, "marker": "o", "markersize": 4, "zorder": 5 if width > 2 else 3}


def line_of(head: str, x: Sequence[float], y: Sequence[float]) -> Line:
    """Return a head's line, named as in every figure."""
    return Line(LOOKS[head][2], x, y, look(head))


def draw_steps(records: Records, folder: Path) -> Figure:
    """Draw milliseconds of a training step against classes."""
    found = list(newest(records, "steps", "head", "classes").values())
    figure, (axis,) = canvas(1, width=9, height=5.2)
    lines = []
    for head in LOOKS:
        points = sorted((record["classes"], record["step_ms"]) for record in found if record["head"] == head)
        if points:
            lines.append(line_of(head, *zip(*points, strict=True)))
    draw_lines(axis, lines, xscale="log", yscale="log", xlabel="classes", ylabel="ms per training step of the head")
    sizes = sorted({record["classes"] for record in found})
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    some = found[0]
    return Figure(
        "steps", save(figure, folder, "steps"),
        f"Forward, backward, update and refresh: {some['features']} features, batch {some['batch']}, "
        f"{some['candidates']} candidates, momentum kept per row.",
        "Time of a training step against the number of classes",
    )  # fmt: skip


def draw_learning(records: Records, folder: Path) -> Figure:
    """Draw accuracy against steps, a panel for each task and trunk: mean of the seeds, band from least to most."""
    groups = learning_groups(records)
    rows = -(-len(groups) // 2)
    figure, axes = canvas(2, rows=rows, width=11.5, height=3.7 * rows + 0.3, sharex=True)
    for axis, ((task, trunk), heads) in zip(axes, groups.items(), strict=False):
        lines = []
        for head, curves in heads.items():
            steps, shares = zip(*mean_curve(curves), strict=True)
            lines.append(line_of(head, steps, shares))
            at_each = [[share for _, share in points] for points in zip(*curves, strict=True)]
            low, high = [min(values) for values in at_each], [max(values) for values in at_each]
            axis.fill_between(steps, low, high, color=LOOKS[head][0], alpha=0.15)
        draw_lines(axis, lines, ylim=(0, None), xlim=(0, None), title=f"{task}, {trunk} trunk")
        in_percent(axis.yaxis)
    for axis in axes[-2:]:
        axis.set_xlabel("steps")
    for axis in axes[::2]:
        axis.set_ylabel("accuracy on new examples")
    return Figure(
        "learning", save(figure, folder, "learning"),
        "Lines are means of the seeds, bands run from least to most.",
        "Accuracy against steps for each task and trunk",
    )  # fmt: skip


def draw_refresh(records: Records, folder: Path) -> Figure:
    """Draw recall and accuracy against the period of a round-robin, with the default beside it."""
    found = {record["head"]: record for record in newest(records, "refresh", "head").values()}
    rounds = sorted((int(head.rpartition(" ")[2]), run) for head, run in found.items() if head != TOUCHED_FIRST)
    default = found.get(TOUCHED_FIRST)
    figure, axes = canvas(2, width=11.5, height=4.2)
    for axis, title in zip(axes, ("mean recall@10 while training", "accuracy at the end"), strict=True):
        read = (lambda run: run["mean_recall"]) if axis is axes[0] else (lambda run: run["curve"][-1][1])
        periods = [period for period, _ in rounds]
        lines = [Line("round robin", periods, [read(run) for _, run in rounds], series_style(0))] if rounds else []
        if default and rounds:
            style = {"color": series_style(1)["color"], "linestyle": (0, (4, 2))}
            lines.append(Line("touched first", [periods[0], periods[-1]], [read(default)] * 2, style))
        draw_lines(
            axis, lines, xscale="log", ylim=(0, 1.02), xlabel="steps until every class is re-hashed", title=title
        )
        axis.set_xticks(periods, [f"{period:,}" for period in periods])
        in_percent(axis.yaxis)
    return Figure(
        "refresh", save(figure, folder, "refresh"),
        "Left: share of the exact best ten that were computed. Right: what is learned. Dashed: the default, which "
        "re-hashes the rows that moved first.",
        "Recall and accuracy against the period of a round",
    )  # fmt: skip


def draw_tail(records: Records, folder: Path) -> Figure:
    """Draw the biases against samples, with a line of slope -1, and the mean of the estimated normaliser."""
    found = sorted(newest(records, "tail", "samples").values(), key=lambda record: int(record["samples"]))
    samples = [record["samples"] for record in found]
    loss = [-record["loss_bias"] for record in found]
    figure, (bias, normalizer) = canvas(2, width=11.5, height=4.2)
    lines = [
        Line("loss: too low by", samples, loss, series_style(0)),
        Line("gradient: relative", samples, [record["gradient_bias"] for record in found], series_style(1)),
        Line("∝ 1 / samples", samples, [2 * loss[-1] * samples[-1] / count for count in samples],
             {"color": QUIET, "linestyle": ":"}),
    ]  # fmt: skip
    draw_lines(bias, lines, xscale="log", yscale="log", xlabel="samples of the tail", title="bias")
    marker = {name: value for name, value in series_style(2).items() if name != "linewidth"}
    ratios, errors = ([record[f"normalizer_{what}"] for record in found] for what in ("ratio", "error"))
    normalizer.axhline(1, color=QUIET, linewidth=1)
    normalizer.errorbar(samples, ratios, [2 * error for error in errors], capsize=3, linestyle="none", **marker)
    normalizer.set(xscale="log", xlabel="samples of the tail", title="estimated normaliser / exact one")
    one_two_five(normalizer.xaxis)
    for axis in (bias, normalizer):
        axis.set_xticks(samples, [f"{count:,}" for count in samples])
    return Figure(
        "tail", save(figure, folder, "tail"),
        "Left: bias of loss and gradient. Right: mean of the draws, ± 2 standard errors.",
        "Bias against the number of samples of the tail",
    )  # fmt: skip
