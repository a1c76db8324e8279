"""Draw figures of the heads from the JSON lines, and put them and the tables into docs/training.md.

`python -m experiments.heads.figures`. Nothing is measured here.
"""

import re
from math import log10
from pathlib import Path
from statistics import mean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, PercentFormatter
from rich.console import Console

from experiments.frame.drawing import QUIET, canvas, one_two_five, save, series_style, spread
from experiments.heads import tables
from experiments.index.records import RESULTS, Log

DOCS = RESULTS.parents[1] / "docs"
LOOKS = {  # colour and width of a head in every figure
    "default": ("#d1361f", 3.0),
    "shared": ("#d1361f", 3.0),
    "own candidates": ("#8a2be2", 1.8),
    "own": ("#8a2be2", 1.8),
    "paper's literal rule": ("#e89a2c", 1.8),
    "hierarchical": ("#2c7fb8", 1.8),
    "sampled": ("#2a9d4a", 1.8),
    "full softmax": ("#5b6670", 1.8),
}


NAMES = {"shared": "manyclass, shared\ncandidates", "own": "manyclass, own\ncandidates"}


def look(head: str) -> dict:
    """Return line options of a head."""
    colour, width = LOOKS[head]
    return {"color": colour, "linewidth": width, "marker": "o", "markersize": 4, "zorder": 5 if width > 2 else 3}


def finish(figure: Figure, name: str, target: Path) -> None:
    """Write the PNG for the documents, and the SVG beside the records."""
    save(figure, target, name)
    (target / f"{name}.png").replace(DOCS / "figures" / f"{name}.png")


def label_ends(axis: Axes, ends: dict[str, float], logarithmic: bool = False) -> None:
    """Write the names of lines at the right of an axis, at the height of their ends, kept apart."""
    low, high = axis.get_ylim()
    place = (lambda y: log10(y / low) / log10(high / low)) if logarithmic else (lambda y: (y - low) / (high - low))
    heights = spread([place(end) for end in ends.values()], gap=0.065)
    lift = max(0.0, 0.02 - min(heights))
    for head, height in zip(ends, heights, strict=True):
        name = NAMES.get(head, head)
        axis.text(1.02, height + lift, name, color=LOOKS[head][0], va="center", fontsize=9, transform=axis.transAxes)


def draw_steps(records: list[dict], target: Path) -> None:
    """Draw milliseconds of a training step against classes."""
    found = tables.newest(records, "head", "classes")
    figure, (axis,) = canvas(1, width=9, height=5.2)
    axis.set(xscale="log", yscale="log", xlabel="classes", ylabel="ms per training step of the head")
    ends = {}
    for head in ("shared", "own", "sampled", "hierarchical", "full softmax"):
        line = sorted((size, record["step_ms"]) for (name, size), record in found.items() if name == head)
        if line:
            axis.plot(*zip(*line, strict=True), **look(head))
            ends[head] = line[-1][1]
    sizes = sorted({size for _, size in found})
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    one_two_five(axis.yaxis)
    label_ends(axis, ends, logarithmic=True)
    some = next(iter(found.values()))
    setting = f"{some['features']} features, batch {some['batch']}, K = {some['candidates']}, momentum"
    axis.set_title(f"Forward, backward, update, refresh: {setting}", fontsize=10.5)
    finish(figure, "head_steps", target)


def draw_learning(records: list[dict], target: Path) -> None:
    """Draw accuracy against steps, a panel for each task and trunk: mean of the seeds, band from least to most."""
    groups = tables.learning_groups(records)
    figure, axes = canvas(2, rows=-(-len(groups) // 2), width=11, height=7.4 if len(groups) > 2 else 4, sharex=True)
    for axis, ((task, trunk), heads) in zip(axes, groups.items(), strict=False):
        ends = {}
        for head, curves in heads.items():
            line = tables.mean_curve(curves)
            steps, accuracy = zip(*line, strict=True)
            values = [[value for _, value in points] for points in zip(*curves, strict=False)]
            style = look(head) | {"markersize": 3}
            axis.plot(steps, accuracy, **style)
            axis.fill_between(
                steps, [min(v) for v in values], [max(v) for v in values], color=style["color"], alpha=0.15
            )
            ends[head] = accuracy[-1]
        axis.set(ylim=(0, None), xlim=(0, None))
        axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axis.set_title(f"{task}, {trunk} trunk", fontsize=10.5)
        label_ends(axis, ends)
    for axis in axes[-2:]:
        axis.set_xlabel("steps")
    for axis in axes[::2]:
        axis.set_ylabel("accuracy on new examples")
    finish(figure, "head_learning", target)


def draw_refresh(records: list[dict], target: Path) -> None:
    """Draw recall and accuracy against the period of a round-robin, with the default beside it."""
    found = tables.newest(records, "head", "trunk")
    figure, (recall, accuracy) = canvas(2, width=11, height=4.2)
    for position, kind in enumerate(dict.fromkeys(trunk for _, trunk in found)):
        style = series_style(position)
        rounds = sorted(
            (int(head.split()[-1]), record["mean_recall"], record["curve"][-1][1])
            for (head, trunk), record in found.items()
            if trunk == kind and head.startswith("round robin")
        )
        default = found.get(("touched first (default)", kind))
        for axis, column in ((recall, 1), (accuracy, 2)):
            if rounds:
                axis.plot(
                    [line[0] for line in rounds], [line[column] for line in rounds], label=f"{kind} trunk", **style
                )
            if default:
                height = default["mean_recall"] if column == 1 else default["curve"][-1][1]
                axis.axhline(height, color=style["color"], linestyle=(0, (4, 2)), label=f"{kind}, touched first")
    recall.set(xscale="log", xlabel="steps until every class is re-hashed", ylabel="mean recall@10 while training")
    accuracy.set(xscale="log", xlabel="steps until every class is re-hashed", ylabel="accuracy at the end")
    for axis in (recall, accuracy):
        axis.set_ylim(0, 1.02)
        one_two_five(axis.xaxis)
        axis.set_xticks([10, 100, 1000, 10_000])
    recall.legend(frameon=False, fontsize=9)
    finish(figure, "head_refresh", target)


def draw_tail(records: list[dict], target: Path) -> None:
    """Draw the biases against samples, with a line of slope -1, and the mean of the estimated normaliser."""
    lines = [record for _, record in sorted(tables.newest(records, "samples").items())]
    samples = [record["samples"] for record in lines]
    figure, (bias, normalizer) = canvas(2, width=11, height=4.2)
    loss = [-record["loss_bias"] for record in lines]
    bias.plot(samples, loss, label="loss: too low by", **series_style(0))
    gradient = [record["gradient_bias"] for record in lines]
    bias.plot(samples, gradient, label="gradient: relative bias", **series_style(1))
    guide = [2 * loss[-1] * samples[-1] / count for count in samples]
    bias.plot(samples, guide, color=QUIET, linestyle=":", label="∝ 1 / samples")
    bias.set(xscale="log", yscale="log", xlabel="samples of the tail", ylabel="bias")
    bias.legend(frameon=False, fontsize=9)
    ratios, errors = [r["normalizer_ratio"] for r in lines], [2 * r["normalizer_error"] for r in lines]
    normalizer.axhline(1, color=QUIET, linewidth=1)
    normalizer.errorbar(samples, ratios, errors, capsize=3, linestyle="none", **_marker(series_style(2)))
    normalizer.set(xscale="log", xlabel="samples of the tail", ylabel="estimated normaliser / exact one")
    normalizer.set_title("mean of the draws, ± 2 standard errors", fontsize=10)
    for axis in (bias, normalizer):
        axis.set_xticks(samples, [f"{count:,}" for count in samples])
        axis.minorticks_off()
    one_two_five(bias.yaxis)
    finish(figure, "head_tail", target)


def _marker(style: dict) -> dict:
    return {key: style[key] for key in ("color", "marker", "markersize")}


def draw_demo(records: list[dict], target: Path) -> None:
    """Draw accuracy against seconds and against steps, mean of the seeds, band from least to most."""
    heads: dict[str, list[list]] = {}
    for (head, _), record in tables.newest(records, "head", "seed").items():
        heads.setdefault(head, []).append(record["curve"])
    figure, (seconds, steps) = canvas(2, width=12, height=4.8, sharey=True)
    ends = {}
    for head, curves in heads.items():
        points = list(zip(*curves, strict=False))  # an evaluation of each seed
        accuracy = [mean(point[2] for point in group) for group in points]
        low, high = ([f(point[2] for point in group) for group in points] for f in (min, max))
        for axis, column in ((seconds, 1), (steps, 0)):
            places = [mean(point[column] for point in group) for group in points]
            axis.plot(places, accuracy, **look(head))
            axis.fill_between(places, low, high, color=look(head)["color"], alpha=0.15)
        ends[head] = accuracy[-1]
    seconds.set(xlabel="seconds of training", ylabel="accuracy on new examples", xlim=(0, None), ylim=(0, None))
    steps.set(xscale="log", xlabel="steps")
    steps.xaxis.set_major_locator(LogLocator())
    steps.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    steps.minorticks_off()
    seconds.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    label_ends(steps, ends)
    finish(figure, "head_demo", target)


def fill(name: str, text: str, page: Path = DOCS / "training.md") -> None:
    """Replace what stands between the marks `figures:<name>` of a page."""
    mark = f"<!-- figures:{name} -->", f"<!-- /figures:{name} -->"
    before = page.read_text(encoding="utf-8")
    if mark[0] not in before:
        raise SystemExit(f"{page.name} has no mark {mark[0]}; put it where the figure belongs")
    pattern = re.compile(re.escape(mark[0]) + ".*?" + re.escape(mark[1]), re.DOTALL)
    page.write_text(pattern.sub(lambda _: f"{mark[0]}\n{text.strip()}\n{mark[1]}", before), encoding="utf-8")


def measured(records: list[dict]) -> str:
    """Return one line on where the numbers come from."""
    machine = records[-1]["machine"]
    file = f"../benchmarks/results/heads/{records[-1]['stage']}.jsonl"
    threads = "one thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
    return f"{machine['cores']} cores of an {machine['cpu']}, {threads} per run, [records]({file})"


def draw_all(source: Path, console: Console) -> None:
    """Draw what the folder of records holds, fill the page, and say which records are not there yet."""
    for stage, draw, text in SECTIONS:
        records = Log(source / f"{stage}.jsonl").all()
        if not records:
            console.print(f"[yellow]no {stage}.jsonl yet: nothing drawn for it[/]")
            continue
        if draw:
            draw(records, source)
        fill(f"heads_{stage}", text(records))
        console.print(f"{stage}: docs/training.md is up to date")


def _steps_text(records: list[dict]) -> str:
    middle = 1_000_000 if any(record["classes"] == 1_000_000 for record in records) else records[-1]["classes"]
    return "\n".join([
        "![Time of a training step against classes](figures/head_steps.png)", "",
        f"d = 128, batch 256, K = 300, momentum kept per row unless it says otherwise; {measured(records)}.", "",
        tables.steps_table(records), tables.ratios_table(records, middle),
    ])  # fmt: skip


SECTIONS = (
    ("steps", draw_steps, _steps_text),
    ("paper_setting", None, lambda records: "\n".join([
        f"d = 512, batch 32, K = 3000; {measured(records)}.", "",
        tables.ratios_table(records, records[-1]["classes"]),
    ])),
    ("learning", draw_learning, lambda records: "\n".join([
        "![Accuracy against steps](figures/head_learning.png)", "",
        f"10,000 classes, hidden 128, batch 64, {records[-1]['steps']:,} steps, momentum 0.9, rate 0.1 falling "
        f"exponentially to a tenth of it; {records[-1]['tests']:,} test examples, judged "
        "by the exact best class; lines are means of the seeds, bands run from least to most; "
        f"{measured(records)}.", "",
        tables.learning_table(records),
    ])),
    ("refresh", draw_refresh, lambda records: "\n".join([
        "![Recall and accuracy against the refresh period](figures/head_refresh.png)", "",
        f"The WordNet task as above, one seed; {measured(records)}.", "", tables.refresh_table(records),
    ])),
    ("tail", draw_tail, lambda records: "\n".join([
        "![Bias against samples of the tail](figures/head_tail.png)", "",
        f"10,000 classes of which the shared candidates miss {records[-1]['missed_mass']:.0%} of the probability, "
        f"{records[-1]['draws']:,} draws, against all classes; {measured(records)}.", "", tables.tail_table(records),
    ])),
    ("demo", draw_demo, lambda records: "\n".join([
        "![Accuracy against seconds and against steps](figures/head_demo.png)", "",
        f"{records[-1]['classes']:,} classes, {records[-1]['budget']:.0f} seconds of training each, "
        f"{records[-1]['tests']:,} test examples; {measured(records)}.", "", tables.demo_table(records),
    ])),
)  # fmt: skip


if __name__ == "__main__":
    draw_all(RESULTS / "heads", Console())
