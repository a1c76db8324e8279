"""What the records of a contest say: who is how quick at which agreement, by settings chosen on other queries."""

from collections.abc import Iterable

from experiments.frame.page import Text
from experiments.frame.records import Record, Records
from experiments.peers.entries import ENTRIES, EXACT, OURS

MODES = {"single": "one at a time", "batch": "in batches of 1000"}
OWN = [entry.name for entry in ENTRIES if entry.name.startswith(OURS)]


def judged_of(records: Records, stage: str) -> dict[str, list[Record]]:
    """Return what was judged of every entry, the newest of each setting, entries in the order of the contest."""
    found = records.select(stage=stage, kind="judged")
    newest = {(one["entry"], one["build"], str(one["setting"])): one for one in found}
    entries: dict[str, list[Record]] = {}
    for (entry, _, _), one in newest.items():
        entries.setdefault(entry, []).append(one)
    return entries


def chosen_for(judged: Iterable[Record], target: float, mode: str) -> Record | None:
    """Return the setting an entry chose: of those that reached a target on the calibration half, the quickest there."""
    good = [one for one in judged if one["calibration"]["agreement"] >= target]
    return min(good, key=lambda one: float(one["calibration"][mode]), default=None)


def standings(records: Records, stage: str, target: float, mode: str) -> dict[str, Record]:
    """Return each entry's chosen setting for a target, the quickest first; who never reaches it is not among them."""
    picks = {entry: chosen_for(judged, target, mode) for entry, judged in judged_of(records, stage).items()}
    reached = [(entry, one) for entry, one in picks.items() if one is not None]
    return dict(sorted(reached, key=lambda pair: float(pair[1][f"us_{mode}"])))


def best_peer(found: dict[str, Record]) -> str | None:
    """Return the quickest entry that is neither ours nor the exact product."""
    return next((entry for entry in found if entry not in OWN and entry != EXACT), None)


def remarks(records: Records, stage: str) -> list[Text]:
    """Return who was absent, and whose time was up before all builds were tried."""
    absent = {found["entry"]: found for found in records.select(stage=stage, kind="missing") if "entry" in found}
    told = [
        Text(f"{entry} was not there ({found['reason']}); `{found['install']}`.", quiet=True)
        for entry, found in absent.items()
        if not records.done(stage=stage, kind="judged", entry=entry)
    ]
    closed = {found["entry"]: found for found in records.select(stage=stage, kind="entry")}
    cut = [f"{entry} ({found['builds']} of {found['offered']})" for entry, found in closed.items()
           if found["builds"] < found["offered"] and entry not in absent]  # fmt: skip
    if cut:
        told.append(Text(f"Time was up before all builds were tried: {', '.join(cut)}.", quiet=True))
    left_out = [entry.name for entry in ENTRIES if closed and entry.name not in closed]
    if left_out:
        told.append(Text(f"Left out here: {', '.join(left_out)}.", quiet=True))
    return told
