"""The tables of what the index does alone, from the records: the same for the page and for the documents."""

from collections.abc import Iterable
from math import log
from typing import Any

import numpy as np

from experiments.frame.page import Table
from experiments.frame.records import Record, Records
from experiments.frame.wording import ABSENT, number, percent, times, whole
from experiments.index import defaults, growth, outliers, paper_table
from experiments.index.layers import LAYERS
from experiments.peers.judging import ACCURACY, WINNER


def defaults_table(records: Records) -> Table:
    """Return what `build` gives by itself on each layer, by the sample it was given."""
    rows = []
    for layer in LAYERS:
        for sample, words in defaults.SAMPLES.items():
            one = records.last(stage=defaults.STAGE, kind="result", layer=layer, sample=sample)
            if one is not None:
                shares = [percent(one[name]) for name in ("expected", WINNER, ACCURACY)]
                spent = [number(one[name]) for name in ("us_single", "us_batch", "build_seconds")]
                what = [layer, words, one["pipeline"], whole(one["candidates"])]
                rows.append([*what, *shares, whole(one["queries"]), *spent])
    columns = ["layer", "given", "what it chose", "candidates", "agreement it expects", "agreement", "accuracy kept",
               "judged on", "µs, one at a time", "µs, in batches", "build, s"]  # fmt: skip
    real = {place for place, row in enumerate(rows) if row[1] == defaults.SAMPLES["real"]}
    return Table(columns, rows, "`build(rows, bias=b, queries=sample)` and nothing else.", "lllrrrrrrrr", real)


def missed_defaults(records: Records) -> list[str]:
    """Return a sentence for each layer on which the default misses its goal, with how far."""
    told = []
    for layer in LAYERS:
        for sample, goal in defaults.GOALS.items():
            one = records.last(stage=defaults.STAGE, kind="result", layer=layer, sample=sample)
            if one is not None and one[WINNER] < goal:
                told.append(f"On {layer}, given {defaults.SAMPLES[sample]}, it agrees on {percent(one[WINNER])} "
                            f"(goal: {goal:.0%}).")  # fmt: skip
    return told


def speedup_table(records: Records) -> Table:
    """Return the paper's table: speed-up by batch and candidates, each with its ceiling and its goal."""
    rows = []
    for batch, goals in paper_table.GOALS.items():
        cells = []
        for count, goal in zip(paper_table.CANDIDATES, goals, strict=True):
            one = records.last(stage=paper_table.STAGE, kind="result", batch=batch, candidates=count)
            cells += [times(one["speedup"]), times(one["ceiling"]), f"{goal:g}×"] if one else [ABSENT] * 3
        rows.append([whole(batch), *cells])
    groups = [("", 1), *((f"K = {count}", 3) for count in paper_table.CANDIDATES)]
    columns = ["batch", *["speed-up", "ceiling", "goal"] * len(paper_table.CANDIDATES)]
    return Table(columns, rows, "Over the fastest exact product of the same batch, measured in the same run.",
                 "r" * len(columns), groups=groups)  # fmt: skip


def speedup_quality(records: Records) -> Table:
    """Return accuracy kept and agreement by candidates, and the spread of the runs."""
    rows = []
    for one in records.select(stage=paper_table.STAGE, kind="result"):
        rows.append([whole(one["batch"]), whole(one["candidates"]), one["pipeline"], percent(one[ACCURACY]),
                     percent(one[WINNER]), number(one["us"]), percent(one["spread"]), number(one["exact_us"]),
                     one["product"], whole(one["distinct"])])  # fmt: skip
    columns = ["batch", "K", "pipeline", "accuracy kept", "agreement", "µs per query", "spread", "exact product, µs",
               "which", "distinct candidates of a batch"]  # fmt: skip
    return Table(columns, rows, "What stands behind each speed-up.", "rrlrrrrrlr")


def growth_table(records: Records, rows_of: str) -> Table:
    """Return µs per query of the pipelines by the number of classes, for one kind of rows."""
    lines = growth_lines(records, rows_of)
    sizes = sorted({found["classes"] for line in lines.values() for found in line})
    rows = [
        [whole(size), *(_growth_cell(line, size) for line in lines.values())]
        for size in sizes
    ]  # fmt: skip
    caption = f"{rows_of.capitalize()}: µs per query in batches / one at a time."
    return Table(["classes", *lines], rows, caption, "r" * (1 + len(lines)))


def growth_lines(records: Records, rows_of: str) -> dict[str, list[Record]]:
    """Return the newest records of a kind of rows by pipeline, each line from few classes to many."""
    return lines_of(records, growth.STAGE, "classes", rows=rows_of)


def _growth_cell(line: list[Record], size: int) -> str:
    here = next((found for found in line if found["classes"] == size), None)
    if here is None:
        return ABSENT
    short = "" if here[WINNER] >= growth.SHARE else f" ({percent(here[WINNER])} only)"
    return f"{number(here['us_batch'])} / {number(here['us_single'])}{short}"


def sweep_table(records: Records, stage: str) -> Table:
    """Return accuracy kept and µs per query against one knob, a pair of columns for each line."""
    lines = lines_of(records, stage, stage)
    values = sorted({found[stage] for line in lines.values() for found in line})
    rows: list[list[Any]] = []
    for value in values:
        row: list[Any] = [whole(value)]
        for line in lines.values():
            here = next((found for found in line if found[stage] == value), None)
            row += [percent(here[ACCURACY]), number(here["us_batch1"])] if here else [ABSENT, ABSENT]
        rows.append(row)
    groups = [("", 1), *((name, 2) for name in lines)]
    return Table([stage, *["kept", "µs"] * len(lines)], rows, "µs per query, one at a time.",
                 "r" * (1 + 2 * len(lines)), groups=groups)  # fmt: skip


def lines_of(records: Records, stage: str, across: str, **fields: object) -> dict[str, list[Record]]:
    """Return the newest records of a stage by `peer`, each line sorted along a field."""
    names = ("peer", across, "candidates") if across != "classes" else ("peer", across)
    found = records.select(stage=stage, kind="result", **fields)
    newest = {tuple(one[name] for name in names): one for one in found}
    lines: dict[str, list[Record]] = {}
    for one in sorted(newest.values(), key=lambda one: float(one[across])):
        lines.setdefault(one["peer"], []).append(one)
    return lines


def exponent(line: Iterable[Record], field: str) -> float:
    """Return how time grows with the classes: 1 is in proportion, 0 not at all."""
    sizes, spent = zip(*[(log(found["classes"]), log(found[field])) for found in line], strict=True)
    return float(np.polyfit(sizes, spent, 1)[0])


def outliers_table(records: Records) -> Table:
    """Return the share of exact winners that each peer finds beside an outlier, by what the outlier is."""
    rows = []
    for peer in dict.fromkeys(record["peer"] for record in records.select(stage=outliers.STAGE) if "peer" in record):
        cells = []
        for case in outliers.CASES:
            found = records.last(stage=outliers.STAGE, peer=peer, case=case)
            if found is None:
                cells.append(ABSENT)
            else:
                cells.append(percent(found[WINNER]) if found["kind"] == "result" else found["kind"])
        rows.append([peer, *cells])
    return Table(["", *("no outlier" if case == "none" else case for case in outliers.CASES)], rows)
