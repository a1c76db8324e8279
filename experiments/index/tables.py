"""The tables of the experiment, from the records: the same for its page and for the documents."""

from collections.abc import Iterable
from math import log
from typing import Any

import numpy as np

from experiments.frame.page import Table
from experiments.frame.records import Record, Records
from experiments.frame.wording import ABSENT, number, percent, whole
from experiments.index.outliers import CASES, STAGE
from experiments.peers.comparing import setting_in_words
from experiments.peers.reading import ACCURACY, WINNER, peers_of, quality, quickest, updates_of

SHARE = 0.99  # at which peers are compared
BATCHES = {"us_batch1": "one at a time", "us_batch1000": "batches of 1000"}
CANNOT = "cannot"
KINDS = {  # name of a kind in the short tables → how the names of its peers begin; the quickest of a kind counts
    "manyclass (scan with cells)": "manyclass cells",
    "manyclass (scan)": "manyclass scan",
    "manyclass (the default)": "manyclass default",
    "manyclass (the paper's pipeline)": "manyclass paper",
    "faiss IVF-PQ fast-scan": "faiss IVF",
    "faiss flat PQ fast-scan": "faiss PQ",
    "faiss RaBitQ fast-scan": "faiss RaBitQ",
    "faiss HNSW": "faiss HNSW",
    "hnswlib": "hnswlib",
    "ScaNN": "ScaNN",
    "fastest exact product": "fastest exact",
    "exact softmax in torch": "torch softmax",
}
SHOWN_CANDIDATES = (10, 20, 30, 50, 100, 300)  # of the table of cells


def kinds_of(peers: dict[str, list[Record]]) -> dict[str, list[Record]]:
    """Return the settings of each kind, of all its peers."""
    return {
        kind: [found for peer, settings in peers.items() if peer.startswith(begin) for found in settings]
        for kind, begin in KINDS.items()
    }


def short_table(records: Records, stage: str, measure: str) -> Table:
    """Return each kind of peer that keeps 99%: µs per query, build time, time to change a row; the quickest first."""
    updates, rows = updates_of(records, stage), []
    for kind, settings in kinds_of(peers_of(records, stage)).items():
        best = [quickest(settings, field, SHARE, measure) for field in BATCHES]
        if best[0] is None or best[1] is None:
            continue
        exact = "exact" in kind  # nothing is built, and nothing depends on a row
        told = ["", ""] if exact else [number(best[0]["build_seconds"]), update_in_words(updates, best[0]["peer"])]
        times = [found[field] for found, field in zip(best, BATCHES, strict=True) if found]
        rows.append((times[0], [kind, *map(number, times), *told]))
    rows.sort(key=lambda row: float(row[0]))
    columns = ["", *BATCHES.values(), "build, s", "re-index a row, µs"]
    return Table(columns, [row for _, row in rows])


def update_in_words(updates: dict[str, float | None], peer: str) -> str:
    """Return the µs to re-index a row; that it cannot be done; or a dash where nobody tried."""
    if peer not in updates:
        return ABSENT
    spent = updates[peer]
    return CANNOT if spent is None else number(spent)


def all_peers_table(records: Records, stage: str, field: str, measure: str) -> Table:
    """Return each peer at its quickest setting that keeps 99%, quickest first, then the best of those that never do."""
    reached, short = [], []
    for settings in peers_of(records, stage).values():
        found = quickest(settings, field, SHARE, measure)
        if found:
            reached.append(found)
        else:
            short.append(max(settings, key=lambda found: quality(found, measure)))
    reached.sort(key=lambda found: float(found[field]))
    rows = [
        [
            found["peer"] + ("" if found in reached else " (never)"),
            setting_in_words(found["setting"]) or ABSENT,
            *(percent(found[name]) for name in (ACCURACY, WINNER, "recall_at_10")),
            *(number(found[name]) for name in BATCHES),
        ]
        for found in [*reached, *short]
    ]
    columns = ["", "setting", "accuracy kept", "same winner", "of the exact ten", "µs, one at a time",
               "µs, batches of 1000"]  # fmt: skip
    what = {ACCURACY: "the accuracy", WINNER: "the exact winners"}[measure]
    caption = (
        f"The setting of each that is quickest {BATCHES[field].replace('batches', 'in batches')} among those that keep "
        f"{SHARE:.0%} of {what}" + ("; who never keeps it stands below with its best." if short else ".")
    )
    return Table(columns, rows, caption, "ll" + "r" * 5, _own(rows))


def costs_table(records: Records, stage: str) -> Table:
    """Return what does not depend on the setting: build time, memory, time to change a row."""
    updates = updates_of(records, stage)
    rows = [
        [
            peer,
            number(settings[-1]["build_seconds"]),
            whole(settings[-1]["bytes_per_class"]),
            whole(settings[-1]["row_bytes"]),
            update_in_words(updates, peer),
        ]
        for peer, settings in peers_of(records, stage).items()
    ]
    columns = ["", "build, s", "bytes per class", "of which the row", "re-index a row, µs"]
    return Table(columns, rows, "What each costs, whatever its setting.", emphasised=_own(rows))


def _own(rows: list[list[str]]) -> set[int]:
    return {place for place, row in enumerate(rows) if row[0].startswith("manyclass")}


def cells_table(records: Records) -> Table:
    """Return the scan with and without cells, by candidates."""
    peers = peers_of(records, "wordnet")
    by_count = [
        {found["setting"]["candidates"]: found for found in peers.get(name, [])}
        for name in ("manyclass scan", "manyclass cells")
    ]
    rows = []
    for count in SHOWN_CANDIDATES:
        both = [found[count] for found in by_count if count in found]
        if len(both) == 2:
            told = [[f"{number(found['us_batch1000'])} / {number(found['us_batch1'])}", percent(found[ACCURACY]),
                     percent(found[WINNER])] for found in both]  # fmt: skip
            rows.append([whole(count), *told[0], *told[1]])
    columns = ["candidates", "scan, µs", "accuracy kept", "same winner", "with cells, µs", "accuracy kept",
               "same winner"]  # fmt: skip
    return Table(columns, rows, "µs per query in batches of 1000 / one at a time.", "r" * 7)


def growth_table(records: Records) -> Table:
    """Return µs per query of both pipelines by the number of classes."""
    lines = lines_of(records, "growth", "classes")
    sizes = sorted({found["classes"] for line in lines.values() for found in line})
    rows = [
        [whole(size), *(_both_times(found) for line in lines.values() for found in line if found["classes"] == size)]
        for size in sizes
    ]
    complete = [row for row in rows if len(row) == 1 + len(lines)]
    return Table(["classes", *lines], complete, "µs per query in batches / one at a time.", "r" * (1 + len(lines)))


def _both_times(found: Record) -> str:
    return f"{number(found['us_batch'])} / {number(found['us_batch1'])}"


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


def lines_of(records: Records, stage: str, across: str) -> dict[str, list[Record]]:
    """Return the newest records of a stage by `peer`, each line sorted along a field."""
    fields = ("peer", across, "candidates") if across != "classes" else ("peer", across)
    newest = {tuple(found[field] for field in fields): found for found in records.select(stage=stage, kind="result")}
    lines: dict[str, list[Record]] = {}
    for found in sorted(newest.values(), key=lambda found: float(found[across])):
        lines.setdefault(found["peer"], []).append(found)
    return lines


def exponent(line: Iterable[Record], field: str) -> float:
    """Return how time grows with the classes: 1 is in proportion, 0 not at all."""
    sizes, spent = zip(*[(log(found["classes"]), log(found[field])) for found in line], strict=True)
    return float(np.polyfit(sizes, spent, 1)[0])


def outliers_table(records: Records) -> Table:
    """Return the share of exact winners that each peer finds beside an outlier, by what the outlier is."""
    rows = []
    for peer in dict.fromkeys(record["peer"] for record in records.select(stage=STAGE) if "peer" in record):
        cells = []
        for case in CASES:
            found = records.last(stage=STAGE, peer=peer, case=case)
            if found is None:
                cells.append("–")
            else:
                cells.append(percent(found[WINNER]) if found["kind"] == "result" else found["kind"])
        rows.append([peer, *cells])
    return Table(["", *("no outlier" if case == "none" else case for case in CASES)], rows)
