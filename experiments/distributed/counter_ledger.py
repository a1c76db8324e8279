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
SLACK = 5.0  # seconds that a busy machine may take longer
PER_PUSH = 3  # of them, for each push


class Pushed(NamedTuple):
    """A push as the ledger knows it."""

    shard: int
    row: int  # its own
    shared: tuple[int, ...]
    begun: float
    acknowledged: float | None


@dataclass
class Verdict:
    """What the rows say of the ledger."""

    attempted: int = 0
    acknowledged: int = 0
    applied: int = 0
    in_doubt_applied: int = 0  # never acknowledged, but applied: the answer was lost
    doubled: int = 0
    lost: int = 0  # acknowledged, and not in the rows
    lost_late: int = 0  # of these, more than a checkpoint interval before a shard was killed
    wrong_cells: int = 0  # shared rows that differ from the sum of what was applied
    faults: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def holds(self, durability: str) -> bool:
        """Return whether nothing was doubled and nothing acknowledged was lost beyond what was stated."""
        return not (self.doubled or self.wrong_cells or (self.lost if durability == "log" else self.lost_late))


def read_ledgers(folder: Path) -> list[Pushed]:
    """Return all pushes that were attempted; a torn last line was never sent."""
    pushes: dict[tuple[int, int], Pushed] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().split("\n")[:-1]:
            entry = json.loads(line)
            key = entry["shard"], entry["row"]
            if "acknowledged" in entry:
                pushes[key] = pushes[key]._replace(acknowledged=entry["acknowledged"])
            else:
                pushes[key] = Pushed(*key, tuple(entry["shared"]), entry["begun"], None)
    return list(pushes.values())


def judged(pushes: list[Pushed], rows: list[Any], kills: list[float], interval: float) -> Verdict:
    """Compare rows with the ledger."""
    verdict = Verdict(attempted=len(pushes))
    expected = [np.zeros((SHARED, FEATURES), np.float32) for _ in rows]
    for push in pushes:
        own = rows[push.shard][push.row]
        times = int(own[0])
        verdict.wrong_cells += int((own != own[0]).any())
        expected[push.shard][list(push.shared)] += times
        verdict.applied += times > 0
        verdict.doubled += times > 1
        if push.acknowledged is None:
            verdict.in_doubt_applied += times > 0
        else:
            verdict.acknowledged += 1
            verdict.lost += times == 0
            last = push.acknowledged + 3 * interval + SLACK  # the next checkpoint had to wait, and to be written
            verdict.lost_late += times == 0 and not any(push.acknowledged <= kill <= last for kill in kills)
    verdict.wrong_cells += sum(
        int((found[:SHARED] != wanted).any(1).sum()) for found, wanted in zip(rows, expected, strict=True)
    )
    return verdict
