"""What workers reach: accuracy and speed beside the plain loop, and what is seen of a run while it goes on."""

from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.distributed.task import RULES
from experiments.frame.drawing import Line, canvas, draw_lines, in_percent, in_plain_numbers, save, series_style
from experiments.frame.page import Figure, Section, Table
from experiments.frame.records import Record, Records
from experiments.frame.wording import ABSENT, number, percent, times, whole

ENGINES = {"plain loop": "plain loop, no engine", "threads": "threads", "ray": "Ray"}
MAIN = next(iter(RULES))  # of the figures; the other one is told of in the table
MOST_STALENESS = 16  # drawn; what is beyond is hardly ever met


def learned(records: Records) -> list[list[Record]]:
    """Return the results of learning, those that differ only in the seed together, in order."""
    groups: dict[tuple[int, int, str, int], list[Record]] = {}
    for record in records.select(kind="result"):
        key = (list(RULES).index(record["rule"]), list(ENGINES).index(record["engine"]), record.get("transport") or "",
               record["workers"])  # fmt: skip
        groups.setdefault(key, []).append(record)
    return [groups[key] for key in sorted(groups)]


def mean_of(records: Records, engine: str, field: str, rule: str = MAIN, **fields: Any) -> float | None:
    """Return the mean over seeds of what some runs came to; None where there are none."""
    found = [record[field] for record in records.select(kind="result", engine=engine, rule=rule, **fields)]
    return fmean(found) if found else None


def learning_table(records: Records) -> Table:
    """Return accuracy and speed of each engine and number of workers, means over seeds."""
    rows = []
    for group in learned(records):
        rule = group[0]["rule"]
        plain, speed = (mean_of(records, "plain loop", field, rule) for field in ("accuracy", "examples_per_second"))
        accuracies = [record["accuracy"] for record in group]
        accuracy, spread = fmean(accuracies), (max(accuracies) - min(accuracies)) / 2
        rate = fmean(record["examples_per_second"] for record in group)
        rows.append([
            rule, ENGINES[group[0]["engine"]], group[0].get("transport") or ABSENT, whole(group[0]["workers"]),
            f"{percent(accuracy)} ± {percent(spread)}", percent(accuracy / plain) if plain else ABSENT, whole(rate),
            times(rate / speed) if speed else ABSENT, whole(len(group)),
        ])  # fmt: skip
    columns = ["rule", "engine", "transport", "workers", "accuracy", "of the plain loop", "examples/s", "speed",
               "seeds"]  # fmt: skip
    caption = "The same task, after as many examples: means over seeds, ± half of what is between the least and most."
    return Table(columns, rows, caption, "lllrrrrrr")


def learning_section(records: Records, folder: Path) -> Section:
    """Return accuracy and speed, by engine and number of workers."""
    groups = learned(records)
    text = "The demo's task by one process, and by workers that push to two shards without waiting for each other."
    if not groups:
        return Section("The same learning", text)
    first = groups[0][0]
    text += (f" {whole(first['classes'])} classes, {whole(first['examples'])} examples. Every worker, and the plain "
             "loop, computes with one thread. Servers move parameters by Adagrad, and beside it by SGD with momentum "
             "0.9, which many workers make overshoot: what they compute at the same point adds up.")  # fmt: skip
    parts: list[Table | Figure] = [learning_table(records)]
    if any(group[0]["engine"] != "plain loop" and group[0]["rule"] == MAIN for group in groups):
        parts.append(draw_speed_and_accuracy(records, folder))
    return Section("The same learning", text, parts)


def draw_speed_and_accuracy(records: Records, folder: Path) -> Figure:
    """Draw what each engine reaches against the number of workers; the plain loop is a level of its own."""
    figure, (left, right) = canvas(2, width=12, height=4.4)
    for axis, field, label in ((left, "examples_per_second", "examples per second"), (right, "accuracy", "accuracy")):
        lines = []
        for position, engine in enumerate(("threads", "ray")):
            points = [(group[0]["workers"], fmean(record[field] for record in group)) for group in learned(records)
                      if (group[0]["rule"], group[0]["engine"], group[0].get("transport"))
                      == (MAIN, engine, "activations")]  # fmt: skip
            if points:
                counts, values = [point[0] for point in points], [point[1] for point in points]
                lines.append(Line(ENGINES[engine], counts, values, series_style(position)))
        plain = mean_of(records, "plain loop", field)
        if plain is not None:
            most = max((max(line.x) for line in lines), default=1)
            level = {**series_style(2), "marker": "", "linestyle": "--"}
            lines.append(Line("plain loop", [1, most], [plain, plain], level))
        in_plain_numbers(axis.yaxis) if field != "accuracy" else in_percent(axis.yaxis)
        counts = sorted({count for line in lines for count in line.x})
        top = 1.1 * max(max(line.y) for line in lines)
        draw_lines(axis, lines, xlabel="workers", ylabel=label, xlim=(0.8, None), ylim=(0, top), xticks=counts)
    caption = ("Speed and accuracy after as many examples, with two shards. All workers and shards share the cores of "
               "this one machine: more of them bring no more cores.")  # fmt: skip
    return Figure("workers", save(figure, folder, "workers"), caption,
                  "Examples per second and accuracy against workers")  # fmt: skip


def watching_section(records: Records, folder: Path) -> Section:
    """Return staleness, bytes, load of shards and age of tables, as a run shows them."""
    groups = [group for group in learned(records) if group[0]["engine"] != "plain loop" and group[0]["rule"] == MAIN]
    text = ("The staleness of a push is how many others its shard applied between read and write; the age of a table "
            "entry is counted in look-ups.")  # fmt: skip
    if not groups:
        return Section("Staleness, bytes, load", text)
    rows = []
    for group in groups:
        counts = staleness_of(group)
        shards = [shard for record in group for shard in record["shards"]]
        each = [rate for record in group for rate in record["worker_rates"].values()]
        mean = sum(value * count for value, count in counts.items()) / max(1, sum(counts.values()))
        rows.append([
            ENGINES[group[0]["engine"]], group[0]["transport"], whole(group[0]["workers"]), whole(fmean(each)),
            number(mean), whole(max(counts, default=0)), number(fmean(r["bytes_per_step"] for r in group) / 1e6),
            percent(fmean(shard["load"] for shard in shards)), number(fmean(shard["table_age"] for shard in shards)),
        ])  # fmt: skip
    columns = ["engine", "transport", "workers", "examples/s each", "mean staleness", "largest", "MB per step",
               "shard load", "table age"]  # fmt: skip
    return Section("Staleness, bytes, load", text, [draw_staleness(groups, folder), Table(columns, rows, "",
                                                                                          "llrrrrrrr")])  # fmt: skip


def staleness_of(group: list[Record]) -> Counter[int]:
    """Return how many pushes had which staleness, over all seeds."""
    counts = Counter[int]()
    for record in group:
        counts.update({int(value): count for value, count in record["staleness"].items()})
    return counts


def draw_staleness(groups: list[list[Record]], folder: Path) -> Figure:
    """Draw the histograms of staleness, an axis for each engine."""
    engines = [engine for engine in ENGINES if any(group[0]["engine"] == engine for group in groups)]
    figure, axes = canvas(len(engines), width=12 if len(engines) > 1 else 9, height=4.2)
    for axis, engine in zip(axes, engines, strict=True):
        shown = [group for group in groups
                 if group[0]["engine"] == engine and group[0]["transport"] == "activations"]  # fmt: skip
        for position, group in enumerate(shown):
            counts = staleness_of(group)
            total, width = max(1, sum(counts.values())), 0.8 / len(shown)
            places = range(MOST_STALENESS + 1)
            axis.bar([place + width * (position - (len(shown) - 1) / 2) for place in places],
                     [counts[place] / total for place in places], width, color=series_style(position)["color"],
                     label=f"{group[0]['workers']} worker{'s' * (group[0]['workers'] > 1)}")  # fmt: skip
        axis.set(title=ENGINES[engine], xlabel="staleness of a push", ylabel="share of the pushes",
                 xlim=(-0.6, MOST_STALENESS + 0.6))  # fmt: skip
        in_percent(axis.yaxis)
        axis.legend(frameon=False)
    return Figure("staleness", save(figure, folder, "staleness"), "How stale pushes are, by the number of workers.",
                  "Histogram of the staleness of pushes")  # fmt: skip
