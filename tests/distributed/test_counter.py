"""The judge of the counter workload can find fault: doubled, lost and misplaced pushes, and too few of them."""

from pathlib import Path

import numpy as np
import pytest

from experiments.distributed.chaos import ChaosPlan
from experiments.distributed.counter_ledger import (
    FEATURES,
    SHARED,
    Pushed,
    Restart,
    Verdict,
    judged,
    read_ledgers,
    read_restarts,
)

NEVER: list[list[Restart]] = [[]]


def rows_after(applied: list[tuple[Pushed, int]]) -> list[np.ndarray]:
    """Return the rows of one shard after pushes that were applied so many times."""
    rows = np.zeros((SHARED + 10, FEATURES), np.float32)
    for push, times in applied:
        rows[[*push.shared, push.row]] += times
    return [rows]


def pushed(row: int, acknowledged: float | None = 1.0) -> Pushed:
    return Pushed(0, SHARED + row, (row, row + 1), 0.0, acknowledged)


def test_all_is_well() -> None:
    pushes = [pushed(0), pushed(1), pushed(2, None), pushed(3, None)]
    verdict = judged(pushes, rows_after(list(zip(pushes, [1, 1, 1, 0], strict=True))), NEVER)
    assert verdict.holds("log")
    assert (verdict.attempted, verdict.acknowledged, verdict.applied, verdict.in_doubt_applied) == (4, 2, 3, 1)


def test_a_doubled_push_is_found() -> None:
    verdict = judged([pushed(0)], rows_after([(pushed(0), 2)]), NEVER)
    assert verdict.doubled == 1
    assert not verdict.holds("checkpoint")


@pytest.mark.parametrize(
    ("since", "started", "forgiven"),
    [
        (4.0, 6.0, True),  # acknowledged at 5.0, after the last whole checkpoint began
        (5.0, 6.0, False),  # in that checkpoint, and lost all the same
        (4.0, -1.0, False),  # pushed to a shard that never died since
    ],
)
def test_a_lost_push_is_found_and_forgiven_only_after_the_last_checkpoint(
    since: float, started: float, forgiven: bool
) -> None:
    lost = judged([pushed(0, 5.0)], rows_after([]), [[Restart(since, started)]])
    assert lost.lost == 1
    assert not lost.holds("log")
    assert lost.holds("checkpoint") == forgiven


def test_what_a_shard_may_lose_is_told_by_its_last_whole_checkpoint(tmp_path: Path) -> None:
    notes = ['"started": 1.0', '"began": 2.0, "whole": 3.0', '"began": 4.0, "whole": 6.0', '"started": 5.0',
             '"started": 7.0']  # fmt: skip
    (tmp_path / "0.jsonl").write_text("".join(f"{{{note}}}\n" for note in notes))
    assert read_restarts(tmp_path, 1) == [[Restart(0.0, 1.0), Restart(2.0, 5.0), Restart(4.0, 7.0)]]


def test_a_run_with_less_than_was_planned_has_failed() -> None:
    plan = ChaosPlan(pushes=10, faults=2)
    assert plan.holds(Verdict(acknowledged=10, faults={"kill shard": 1, "remove node": 1}))
    assert not plan.holds(Verdict(acknowledged=9, faults={"kill shard": 2}))
    assert not plan.holds(Verdict(acknowledged=10, faults={"kill shard": 1}))
    assert not plan.holds(Verdict(acknowledged=10, faults={"kill shard": 2}, doubled=1))


@pytest.mark.parametrize("row", [7, SHARED + 5])
def test_a_row_that_nobody_pushed_to_is_found(row: int) -> None:
    rows = rows_after([(pushed(0), 1)])
    rows[0][row] += 1
    assert judged([pushed(0)], rows, NEVER).wrong_cells == 1


def test_a_torn_last_line_was_never_sent(tmp_path: Path) -> None:
    whole = '{"row": 64, "shard": 0, "shared": [1, 2], "begun": 1.5}\n{"row": 64, "shard": 0, "acknowledged": 2.0}\n'
    (tmp_path / "0-1.jsonl").write_text(whole + '{"row": 65, "sh')
    assert read_ledgers(tmp_path) == [Pushed(0, 64, (1, 2), 1.5, 2.0)]
