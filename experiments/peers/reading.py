"""What the records of a comparison say: each peer's settings, the quickest that is good enough, who was absent."""

from collections.abc import Iterable

from experiments.frame.page import Text
from experiments.frame.records import Record, Records

ACCURACY, WINNER = "accuracy_kept", "agreement"  # the two measures of quality: of the labels, of the exact winners


def peers_of(records: Records, stage: str) -> dict[str, list[Record]]:
    """Return the settings of every peer as they were measured last, peers in the order they were measured."""
    newest = {(found["peer"], str(found["setting"])): found for found in records.select(stage=stage, kind="result")}
    peers: dict[str, list[Record]] = {}
    for (peer, _), found in newest.items():
        peers.setdefault(peer, []).append(found)
    return peers


def updates_of(records: Records, stage: str) -> dict[str, float | None]:
    """Return µs to re-index a row, by peer; None where a peer cannot, no entry where it was not measured."""
    return {found["peer"]: found["us_update"] for found in records.select(stage=stage, kind="update")}


def quality(found: Record, measure: str = ACCURACY) -> float:
    """Return what a setting keeps; nothing where the exact layer is never right."""
    return float(found[measure] or 0.0)


def quickest(settings: Iterable[Record], field: str, share: float, measure: str = ACCURACY) -> Record | None:
    """Return the setting with the least time in a field that keeps at least this share, None where none does."""
    good = [found for found in settings if quality(found, measure) >= share]
    return min(good, key=lambda found: float(found[field]), default=None)


def absent_peers(records: Records, stage: str) -> list[Text]:
    """Return a remark for every peer that was missing and has not been measured since."""
    measured = peers_of(records, stage)
    absent = {found["peer"]: found for found in records.select(stage=stage, kind="missing") if "peer" in found}
    return [
        Text(f"{peer} was not there ({found['reason']}); `{found['install']}`.", quiet=True)
        for peer, found in absent.items()
        if peer not in measured
    ]
