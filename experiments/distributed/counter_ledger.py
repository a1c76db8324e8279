"""The ledger of the counter workload: what was about to be pushed, what was acknowledged, and what the rows say.

Every push adds exactly 1 to a few rows that all share, and to one of its own. Each worker writes down, outside of the
cluster, what it is about to push and what was acknowledged. At the end a push's own row says whether it was applied:
once, or not; and the shared rows must hold as many as their pushes, exactly.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FEATURES = 4
SHARED = 64  # rows of each shard that many pushes add to
PER_PUSH = 3  # of them, for each push


class Pushed(NamedTuple):
    """A push as the ledger knows it."""

    shard: int
    row: int  # its own
    shared: tuple[int, ...]
    begun: float
    acknowledged: float | None


class Restart(NamedTuple):
    """A shard that was started, and what it may have lost: pushes that were acknowledged after `since`."""

    since: float  # when its last whole checkpoint began
    started: float

    def may_lose(self, push: Pushed) -> bool:
        """Return whether a push, acknowledged and not in the rows, is one of those."""
        assert push.acknowledged is not None
        return push.acknowledged > self.since and push.begun < self.started


@dataclass
class Verdict:
    """What the rows say of the ledger."""

    attempted: int = 0
    acknowledged: int = 0
    applied: int = 0
    in_doubt_applied: int = 0  # never acknowledged, but applied: the answer was lost
    doubled: int = 0
    lost: int = 0  # acknowledged, and not in the rows
    lost_early: int = 0  # of these, acknowledged before the last whole checkpoint began, or by a shard that never died
    wrong_cells: int = 0  # rows that differ from the sum of what was applied, and rows that nobody pushed to
    shard_starts: int = 0  # the first ones among them
    faults: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def holds(self, durability: str) -> bool:
        """Return whether nothing was doubled and nothing acknowledged was lost beyond what was stated."""
        return not (self.doubled or self.wrong_cells or (self.lost if durability == "log" else self.lost_early))


def read_ledgers(folder: Path) -> list[Pushed]:
    """Return all pushes that were attempted; a torn last line was never sent."""
    pushes: dict[tuple[int, int], Pushed] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for entry in _whole_lines(path):
            key = entry["shard"], entry["row"]
            if "acknowledged" in entry:
                pushes[key] = pushes[key]._replace(acknowledged=entry["acknowledged"])
            else:
                pushes[key] = Pushed(*key, tuple(entry["shared"]), entry["begun"], None)
    return list(pushes.values())


def read_restarts(folder: Path, shards: int) -> list[list[Restart]]:
    """Return the starts of each shard, from the notes that counter_shard.py takes; its first one loses nothing."""
    found: list[list[Restart]] = []
    for shard in range(shards):
        notes = _whole_lines(folder / f"{shard}.jsonl")
        saves = [(note["whole"], note["began"]) for note in notes if "whole" in note]
        starts = [note["started"] for note in notes if "started" in note]
        found.append([
            Restart(max((began for whole, began in saves if whole <= start), default=0.0), start) for start in starts
        ])  # fmt: skip
    return found


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def judged(pushes: list[Pushed], rows: list[Any], restarts: list[list[Restart]]) -> Verdict:
    """Compare the rows of each shard with the ledger."""
    verdict = Verdict(attempted=len(pushes), shard_starts=sum(len(starts) for starts in restarts))
    expected = [np.zeros_like(found) for found in rows]
    for push in pushes:
        own = rows[push.shard][push.row]
        times = int(own[0])
        expected[push.shard][[*push.shared, push.row]] += times
        verdict.applied += times > 0
        verdict.doubled += times > 1
        if push.acknowledged is None:
            verdict.in_doubt_applied += times > 0
        else:
            verdict.acknowledged += 1
            if times == 0:
                verdict.lost += 1
                verdict.lost_early += not any(restart.may_lose(push) for restart in restarts[push.shard])
    verdict.wrong_cells = sum(int((found != wanted).any(1).sum()) for found, wanted in zip(rows, expected, strict=True))
    return verdict
