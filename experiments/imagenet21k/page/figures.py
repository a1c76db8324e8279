"""Figures of the layer and of its peers, drawn from records."""

from collections.abc import Iterable
from pathlib import Path

from experiments.frame.drawing import (
    INK,
    QUIET,
    canvas,
    in_percent,
    label_ends,
    line_style,
    one_two_five,
    save,
    stretch_to_all,
)
from experiments.frame.page import Figure
from experiments.frame.records import Record
from experiments.imagenet21k.page import paper, reading
from experiments.imagenet21k.page.reading import PIPELINES, Cells

NAMES = {"default": "manyclass default", "paper": "manyclass paper pipeline"}
THIN = {"linewidth": 1.2, "linestyle": ":", "markersize": 2.5}
FLOOR = 0.8  # share of the accuracy below which no setting is of interest


def draw_accuracy(cells: Cells, folder: Path) -> Figure:
    """Draw accuracy, and its share of the exact accuracy, against the number of candidates."""
    batch = reading.batches(cells)[0]  # the accuracy does not depend on it
    figure, (absolute, share) = canvas(2, width=11, height=4.6)
    lines = {name: reading.frontier(cells, name, batch) for name in PIPELINES}
    exact = next(record["exact_accuracy"] for line in lines.values() for record in line)
    for name, line in lines.items():
        candidates = [record["candidates"] for record in line]
        absolute.plot(candidates, [record["accuracy"] for record in line], **line_style(NAMES[name]))
        share.plot(candidates, [reading.kept(record) for record in line], **line_style(NAMES[name]))
    absolute.axhline(exact, color=INK, linewidth=1.2, linestyle=(0, (4, 2)))
    absolute.annotate("exact softmax", (0.01, exact), xycoords=("axes fraction", "data"), xytext=(0, 4),
                      textcoords="offset points", color=INK, fontsize=9)  # fmt: skip
    share.axhline(1, color=INK, linewidth=1.2, linestyle=(0, (4, 2)))
    printed = paper.ACCURACY_KEPT
    share.plot(list(printed), list(printed.values()), color=QUIET, marker="D", markersize=5, linestyle="none", zorder=4)
    absolute.set(ylabel="held-out accuracy", title="Accuracy")
    share.set(ylabel="share of the exact accuracy", title="Share kept, beside the paper's numbers")
    for axis in (absolute, share):
        axis.set(xscale="log", xlabel="candidates scored exactly (K)")
        one_two_five(axis.xaxis)
        in_percent(axis.yaxis)
    ends = [
        (NAMES[name], reading.kept(line[-1]), line_style(NAMES[name])["color"]) for name, line in lines.items() if line
    ]
    label_ends(share, [*ends, ("as printed in the paper", printed[3000], QUIET)])
    return Figure(
        "accuracy", save(figure, folder, "accuracy"),
        "Left: accuracy on held-out examples; the dashed line is the exact layer. Right: the same as a share of the "
        "exact accuracy, with the three numbers the paper prints for its own network (diamonds).",
        "Accuracy against the number of candidates for the default and the paper's pipeline",
    )  # fmt: skip


def draw_trade_off(cells: Cells, folder: Path, sizes: Iterable[int]) -> Figure:
    """Draw speed-up against the share of the exact accuracy, a panel for each batch size."""
    sizes = list(sizes)
    figure, axes = canvas(len(sizes), width=11, height=4.8, sharey=True)
    for axis, batch in zip(axes, sizes, strict=True):
        for name in PIPELINES:
            line = [record for record in reading.frontier(cells, name, batch) if reading.kept(record) >= FLOOR]
            if not line:
                continue
            shares, style = [reading.kept(record) for record in line], line_style(NAMES[name])
            axis.plot(shares, [record["speedup_torch"] for record in line], **style | THIN)
            label = NAMES[name] if batch == sizes[0] else None
            axis.plot(shares, [record["speedup"] for record in line], **style, label=label)
        axis.plot(*paper.TRADE_OFF, color=QUIET, marker="D", markersize=6, zorder=6)
        axis.annotate("the paper", paper.TRADE_OFF, xytext=(7, -3), textcoords="offset points", color=QUIET,
                      fontsize=9)  # fmt: skip
        if batch == 1:
            axis.plot(*paper.GOAL_TRADE_OFF, color=INK, marker="*", markersize=11, markerfacecolor="none", zorder=6)
            axis.annotate("goal", paper.GOAL_TRADE_OFF, xytext=(-8, 4), textcoords="offset points", color=INK,
                          fontsize=9, ha="right")  # fmt: skip
        axis.axhline(1, color=INK, linewidth=1, linestyle=(0, (4, 2)))
        axis.set(yscale="log", xlabel="share of the exact accuracy", title=f"batch {batch}")
        stretch_to_all(axis, FLOOR)
    one_two_five(axes[0].yaxis)
    axes[0].set_ylabel("times faster than exact")
    if axes[0].get_legend_handles_labels()[0]:
        figure.legend(frameon=False, fontsize=9, loc="outside upper left", ncols=2)
    return Figure(
        "trade_off", save(figure, folder, "trade_off"),
        "Thick: against the fastest exact product of the same batch on this machine. Thin dotted: against torch's "
        "softmax as one writes it. Each point is a number of candidates; those that keep less than 80% are left out, "
        "those that keep more than 99.99% stand at the right edge. The diamond is what the paper reports, for a "
        "batch size that it does not name.",
        "Speed-up against the share of the exact accuracy",
    )  # fmt: skip


def draw_batches(cells: Cells, folder: Path) -> Figure:
    """Draw the speed-up with the fewest candidates that keep 95% of the exact accuracy, against batch size."""
    figure, (axis,) = canvas(1, width=9, height=4.6)
    ends = []
    for name in PIPELINES:
        best = [reading.fewest(cells, name, batch, paper.BATCH_CURVE_SHARE) for batch in reading.batches(cells)]
        line = [record for record in best if record]
        if not line:
            continue
        sizes, style = [record["batch"] for record in line], line_style(NAMES[name])
        axis.plot(sizes, [record["speedup_torch"] for record in line], **style | THIN)
        axis.plot(sizes, [record["speedup"] for record in line], **style)
        ends.append((NAMES[name], line[-1]["speedup"], style["color"]))
    axis.set(xscale="log", yscale="log", xlabel="batch size", ylabel="times faster than exact")
    axis.axhline(1, color=INK, linewidth=1, linestyle=(0, (4, 2)))
    axis.set_xticks(reading.batches(cells), [str(batch) for batch in reading.batches(cells)])
    axis.minorticks_off()
    one_two_five(axis.yaxis)
    if ends:
        label_ends(axis, ends)
    return Figure(
        "batches", save(figure, folder, "batches"),
        "The fewest candidates that keep 95% of the exact accuracy. Thick: against the fastest exact "
        "product of the same batch. Thin dotted: against torch's softmax.",
        "Speed-up at 95% of the exact accuracy against batch size",
    )  # fmt: skip


def draw_peers(peers: dict[str, list[Record]], folder: Path) -> Figure:
    """Draw microseconds per query against the share of the exact accuracy, each peer's best settings, two batches."""
    figure, axes = canvas(2, width=13, height=5.6)
    for axis, (field, title) in zip(axes, (("us_batch1", "one at a time"), ("us_batch64", "batch 64")), strict=True):
        ends = []
        for peer, found in peers.items():
            line = _pareto(found, field)
            style = line_style(peer)
            axis.plot([reading.kept(record) for record in line], [record[field] for record in line], **style)
            ends.append((peer, line[-1][field], style["color"]))
        axis.set(yscale="log", xlabel="share of the exact accuracy", title=f"µs per query, {title}: lower is better")
        stretch_to_all(axis, FLOOR)
        one_two_five(axis.yaxis)
        label_ends(axis, ends, gap=0.05)
    return Figure(
        "peers", save(figure, folder, "peers"),
        "Every library over the same trained layer, bias included. A line joins the settings of a peer that no other "
        "of its settings beats in both time and accuracy; more than 99.99% stands at the right edge.",
        "Time per query against accuracy kept for manyclass and its peers",
    )  # fmt: skip


def _pareto(found: list[Record], field: str) -> list[Record]:
    """Return the settings that none beats in both, by accuracy; the interesting end if there are many bad ones."""
    best: list[Record] = []
    for record in sorted(found, key=lambda record: (-reading.kept(record), record[field])):
        if not best or record[field] < best[-1][field]:
            best.append(record)
    good = [record for record in best if reading.kept(record) >= FLOOR]
    return list(reversed(good or best[:1]))
