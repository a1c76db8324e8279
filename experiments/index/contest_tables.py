"""The tables of a contest over a layer, from the records: the same for the page and for the documents."""

from experiments.frame.page import Table
from experiments.frame.records import Record, Records
from experiments.frame.wording import ABSENT, number, percent, times, whole
from experiments.peers.entries import EXACT, OURS, TARGETS
from experiments.peers.peer import setting_in_words
from experiments.peers.verdicts import MODES, OWN, best_peer, judged_of, standings

CANNOT = "cannot"
UPDATE_GOAL, UPDATE_LAYERS = 50, ("wordnet", "million")  # times as cheap as hnswlib's change of a row, and where


def summary_table(records: Records, stage: str) -> Table:
    """Return, by agreement and way of asking, our time, that of the best peer, and the floor."""
    rows = []
    for target in TARGETS:
        for mode, words in MODES.items():
            found = standings(records, stage, target, mode)
            peer, ours = best_peer(found), found.get(OURS)
            beside = [peer or ABSENT, number(found[peer][f"us_{mode}"]) if peer else ABSENT]
            floor = number(ours.get(f"floor_{mode}")) if ours else ABSENT
            rows.append([f"≥ {target:g}", words, number(ours[f"us_{mode}"]) if ours else ABSENT, *beside,
                         times(ratio(records, stage, target, mode)), floor])  # fmt: skip
    columns = ["agreement", "queries", "manyclass, µs", "best peer", "its µs", "manyclass is quicker by", "floor, µs"]
    caption = (
        "µs per query. The floor is the time to read the rows of our candidates once, in order of memory, and to "
        "multiply them: nobody who scores as many exactly gets below it."
    )
    return Table(columns, rows, caption, "llrlrrr")


def ratio(records: Records, stage: str, target: float, mode: str) -> float | None:
    """Return by how much we are quicker than the best peer, None where either does not get there."""
    found = standings(records, stage, target, mode)
    peer = best_peer(found)
    if peer is None or OURS not in found:
        return None
    return float(found[peer][f"us_{mode}"] / found[OURS][f"us_{mode}"])


def won(records: Records, stage: str, target: float, mode: str) -> bool | None:
    """Return whether we get there and no other library is quicker; None where nobody does, or nothing was measured."""
    found = standings(records, stage, target, mode)
    peer = best_peer(found)
    if OURS not in found:
        return None if peer is None else False
    return peer is None or bool(found[OURS][f"us_{mode}"] <= found[peer][f"us_{mode}"])


def standings_table(records: Records, stage: str, target: float, mode: str) -> Table:
    """Return every entry at the setting it chose, quickest first, then the closest of those that never get there."""
    found = standings(records, stage, target, mode)
    never = {entry: max(judged, key=lambda one: float(one["agreement"])) for entry, judged in
             judged_of(records, stage).items() if entry not in found}  # fmt: skip
    rows = [_row(entry, one, mode) for entry, one in found.items()]
    rows += [_row(f"{entry} (never)", one, mode) for entry, one in never.items()]
    columns = ["", "µs", "spread", "agreement", "accuracy kept", "of the exact ten", "build, s", "bytes per class",
               "queries learned from", "chosen"]  # fmt: skip
    caption = (
        f"Agreement ≥ {target:g}, {MODES[mode]}: chosen on the calibration half, all figures from the judging half, "
        "µs as the median of three runs."
    )
    own = {place for place, row in enumerate(rows) if row[0].startswith(tuple(OWN))}
    return Table(columns, rows, caption, "l" + "r" * 8 + "l", own)


def _row(entry: str, one: Record, mode: str) -> list[str]:
    chosen = "; ".join(part for part in (one["build"], setting_in_words(one["setting"])) if part)
    return [
        entry,
        number(one[f"us_{mode}"]),
        percent(one[f"spread_{mode}"]),
        *(percent(one[name]) for name in ("agreement", "accuracy_kept", "recall_at_10")),
        number(one["build_seconds"]),
        whole(one["bytes_per_class"]),
        whole(one["sample"]) if one["sample"] else "none",
        chosen,
    ]


def short_table(records: Records, stage: str) -> Table:
    """Return µs per query of every entry, one at a time / in batches, by agreement; the quickest at .99 first."""
    by_target = [{mode: standings(records, stage, target, mode) for mode in MODES} for target in TARGETS]
    last = by_target[-1]["single"]
    entries = [*last, *(entry for entry in judged_of(records, stage) if entry not in last)]
    rows = [[f"**{entry}**" if entry == OURS else entry, *(_both(entry, found) for found in by_target)]
            for entry in entries if any(entry in found["single"] for found in by_target)]  # fmt: skip
    return Table(["", *(f"≥ {target:g}" for target in TARGETS)], rows)


def _both(entry: str, found: dict[str, dict[str, Record]]) -> str:
    if any(entry not in found[mode] for mode in MODES):
        return ABSENT
    return " / ".join(number(found[mode][entry][f"us_{mode}"]) for mode in MODES)


def updates_table(records: Records, stages: list[str]) -> Table:
    """Return the µs to re-index one changed row, by entry and layer."""
    spent = {stage: {found["entry"]: found["us_update"] for found in records.select(stage=stage, kind="update")}
             for stage in stages}  # fmt: skip
    entries = dict.fromkeys(entry for found in spent.values() for entry in found if entry != EXACT)
    rows = [[entry, *(_update(found, entry) for found in spent.values())] for entry in entries]
    return Table(["", *stages], rows, "µs to re-index one slightly changed row, the median of many.")


def _update(spent: dict[str, float | None], entry: str) -> str:
    if entry not in spent:
        return ABSENT
    found = spent[entry]
    return CANNOT if found is None else number(found)


def update_ratio(records: Records, stage: str) -> float | None:
    """Return how many of our changes of a row hnswlib's one takes."""
    ours, theirs = (records.last(stage=stage, kind="update", entry=entry) for entry in (OURS, "hnswlib"))
    return theirs["us_update"] / ours["us_update"] if ours and theirs else None
