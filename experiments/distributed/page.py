"""The page: what workers reach, what an engine costs, what goes over the wire, and what faults do."""

from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.distributed.simulation_figures import simulation_section
from experiments.frame.documents import as_markdown
from experiments.frame.drawing import Line, canvas, draw_lines, in_percent, in_plain_numbers, save, series_style
from experiments.frame.page import Fact, Figure, Page, Section, Table, Text
from experiments.frame.records import Record, Records
from experiments.frame.run_section import run_section
from experiments.frame.wording import ABSENT, number, percent, times, whole

ENGINES = {"plain loop": "plain loop, no engine", "threads": "threads", "ray": "Ray"}


def learned(records: Records) -> list[list[Record]]:
    """Return the results of learning, those that differ only in the seed together, in order."""
    groups: dict[tuple[int, str, int], list[Record]] = {}
    for record in records.select(kind="result"):
        key = list(ENGINES).index(record["engine"]), record.get("transport") or "", record["workers"]
        groups.setdefault(key, []).append(record)
    return [groups[key] for key in sorted(groups)]


def make_page(records: Records, folder: Path) -> Page:
    """Return the page; what was not measured yet is not on it."""
    sections = [
        _learning(records, folder),
        _staleness(records),
        _traffic(records, folder),
        _faults(records, folder),
        _counter(records),
        simulation_section(records, folder),
        run_section(records),
    ]
    lead = "Many workers, parameter shards, nobody waits: does it learn the same, what does it cost, what survives?"
    return Page("Training with many workers", lead, _facts(records), sections)


def _facts(records: Records) -> list[Fact]:
    facts, plain = [], _mean(records, "plain loop", "accuracy")
    for workers in (2, 4):
        found = _mean(records, "threads", "accuracy", workers=workers, transport="activations")
        if found is not None and plain:
            facts.append(Fact(percent(found / plain), f"of the plain loop's accuracy with {workers} workers"))
    verdict = records.last(kind="chaos", durability="log")
    if verdict:
        total = sum(verdict["faults"].values())
        facts.append(Fact(whole(verdict["lost"] + verdict["doubled"]), f"of {whole(verdict['acknowledged'])} "
                          f"acknowledged pushes lost or doubled through {total} faults"))  # fmt: skip
    return facts


def _mean(records: Records, engine: str, field: str, **fields: Any) -> float | None:
    found = [record[field] for record in records.select(kind="result", engine=engine, **fields)]
    return fmean(found) if found else None


def learning_table(records: Records) -> Table:
    """Return accuracy and speed of each engine and number of workers, means over seeds."""
    plain = _mean(records, "plain loop", "accuracy")
    speed = _mean(records, "plain loop", "examples_per_second")
    rows = []
    for group in learned(records):
        accuracy = fmean(record["accuracy"] for record in group)
        rate = fmean(record["examples_per_second"] for record in group)
        rows.append([
            ENGINES[group[0]["engine"]], group[0].get("transport") or ABSENT, whole(group[0]["workers"]),
            percent(accuracy), percent(accuracy / plain) if plain else ABSENT, whole(rate),
            times(rate / speed) if speed else ABSENT, whole(len(group)),
        ])  # fmt: skip
    columns = ["engine", "transport", "workers", "accuracy", "of the plain loop", "examples/s", "speed", "seeds"]
    return Table(columns, rows, "The same task, after as many examples.", "llrrrrrr")


def _learning(records: Records, folder: Path) -> Section:
    groups = learned(records)
    first = groups[0][0] if groups else None
    text = ("The demo's task by one process, and by workers that push to two shards without waiting for each other." +
            (f" {whole(first['classes'])} classes, {whole(first['examples'])} examples. Every worker, and the plain "
             "loop, computes with one thread." if first else ""))  # fmt: skip
    return Section("The same learning", text, [learning_table(records)] if groups else [])


def _staleness(records: Records) -> Section:
    rows = []
    for group in learned(records):
        if group[0]["engine"] == "plain loop":
            continue
        counts = Counter[int]()
        for record in group:
            counts.update({int(value): count for value, count in record["staleness"].items()})
        total = max(1, sum(counts.values()))
        mean = sum(value * count for value, count in counts.items()) / total
        shards = [shard for record in group for shard in record["shards"]]
        rows.append([
            ENGINES[group[0]["engine"]], group[0]["transport"], whole(group[0]["workers"]), number(mean),
            whole(max(counts)), number(fmean(record["bytes_per_step"] for record in group) / 1e6),
            percent(fmean(shard["load"] for shard in shards)), number(fmean(shard["table_age"] for shard in shards)),
        ])  # fmt: skip
    columns = ["engine", "transport", "workers", "mean staleness", "largest", "MB per step", "shard load", "table age"]
    text = ("The staleness of a push is how many others its shard applied between read and write; the age of a table "
            "entry is counted in look-ups.")  # fmt: skip
    return Section("Staleness, bytes, load", text, [Table(columns, rows, "", "llrrrrrr")] if rows else [])


def traffic_table(records: Records) -> Table:
    """Return the bytes of each transport beside the formula."""
    found = records.select(kind="bytes")
    rows = []
    for key in sorted({(record["batch"], record["shards"]) for record in found}):
        by = {record["transport"]: record for record in found if (record["batch"], record["shards"]) == key}
        if len(by) < 3:
            continue
        cells = [f"{number(by[kind]['bytes'] / 1e6)} ({number(by[kind]['predicted'] / 1e6)})"
                 for kind in ("rows", "activations", "shared sets")]  # fmt: skip
        ratio = times(by["rows"]["bytes"] / by["activations"]["bytes"])
        rows.append([*map(whole, key), whole(by["rows"]["computed_classes"]), *cells, ratio])
    columns = ["batch", "shards", "rows touched", "rows", "activations", "shared sets", "fewer"]
    sizes = found[0] if found else None
    caption = (f"MB per step and worker, counted, and by formula in brackets; {whole(sizes['classes'])} × "
               f"{sizes['features']}, {sizes['candidates']} candidates per example." if sizes else "")  # fmt: skip
    return Table(columns, rows, caption, "rrrrrrr")


def _traffic(records: Records, folder: Path) -> Section:
    found = records.select(kind="bytes")
    if not found:
        return Section("Over the wire", "", [])
    batches = sorted({record["batch"] for record in found})
    figure, axes = canvas(len(batches), width=9, height=4.2)
    for axis, batch in zip(axes, batches, strict=True):
        lines = []
        for position, kind in enumerate(("rows", "activations", "shared sets")):
            points = sorted((record["shards"], record["bytes"] / 1e6) for record in found
                            if record["batch"] == batch and record["transport"] == kind)  # fmt: skip
            if points:
                counts, sizes = [point[0] for point in points], [point[1] for point in points]
                lines.append(Line(kind, counts, sizes, series_style(position) | {"marker": "o"}))
        axis.set_yscale("log")
        in_plain_numbers(axis.yaxis)
        draw_lines(axis, lines, xlabel="shards", ylabel="MB per step", title=f"batch of {batch}", xlim=(0, None))
    drawing = Figure("bytes", save(figure, folder, "bytes"), "Bytes that a worker sends and receives in a step.",
                     "MB per step against shards for three ways of sharing the work")  # fmt: skip
    text = ("The paper's way pulls rows and pushes their gradients; activations sent to the shards bring back logits "
            "of candidates; with shared sets, sums alone.")  # fmt: skip
    return Section("Over the wire", text, [drawing, traffic_table(records)])


def _faults(records: Records, folder: Path) -> Section:
    parts: list[Table | Figure | Text] = []
    curves = records.select(kind="curve")
    if curves:
        figure, (axis,) = canvas(1, width=9, height=4.2)
        in_percent(axis.yaxis)
        in_plain_numbers(axis.xaxis)
        lines = []
        for position, record in enumerate(curves):
            name = {"calm": "undisturbed", "faults": "with faults"}[record["run"]]
            examples, accuracies = (
                [0, *(at for at, _ in record["curve"])],
                [0.0, *(found for _, found in record["curve"])],
            )
            lines.append(Line(name, examples, accuracies, series_style(position) | {"marker": "o"}))
        draw_lines(axis, lines, xlabel="examples", ylabel="accuracy", xlim=(0, None), ylim=(0, None))
        faults = sum(count for record in curves for count in record["done"].values())
        caption = f"Accuracy against examples on Ray with 2 workers, undisturbed and with {faults} faults."
        parts.append(Figure("faults", save(figure, folder, "faults"), caption, "Accuracy with and without faults"))
    kills = records.select(kind="recovery")
    if kills:
        pauses = sorted(record["pause_seconds"] for record in kills)
        rows = [[number(kills[0]["gigabytes"]), whole(len(pauses)), number(pauses[len(pauses) // 2]),
                 number(pauses[-1])]]  # fmt: skip
        parts.append(Table(["GB of rows", "kills", "median seconds", "longest"], rows,
                           "From SIGKILL of a shard to the end of the next applied push.", "rrrr"))  # fmt: skip
    return Section("Through faults", "Shards come back from their newest checkpoint, workers are replaced.", parts)


def _counter(records: Records) -> Section:
    rows = []
    for durability in ("log", "checkpoint"):
        record = records.last(kind="chaos", durability=durability)
        if record:
            faults = ", ".join(f"{count} × {kind}" for kind, count in record["faults"].items())
            found = [whole(record[name]) for name in ("doubled", "lost", "in_doubt_applied", "wrong_cells")]
            rows.append([durability, whole(record["acknowledged"]), faults, *found])
    columns = ["durability", "acknowledged", "faults", "doubled", "lost", "in doubt, applied", "wrong cells"]
    text = (
        "Every push adds exactly 1 to a few rows; a ledger outside of the cluster knows which. Messages are lost at "
        "random all the while. With durability “checkpoint”, what was acknowledged after the last checkpoint of a "
        "killed shard may be lost; with “log”, nothing."
    )
    return Section("Exactly once", text, [Table(columns, rows, "", "lrlrrrr")] if rows else [])


def documents(records: Records) -> dict[str, str]:
    """Return the tables for docs/distributed.md."""
    missing = "Not measured yet: stage `{}` of the experiment `distributed`."
    learning = as_markdown(learning_table(records)) if learned(records) else missing.format("threads")
    counted = as_markdown(traffic_table(records)) if records.select(kind="bytes") else missing.format("bytes")
    return {"distributed_learning": learning, "distributed_bytes": counted}
