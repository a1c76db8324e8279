"""The judge of the counter workload can find fault: doubled, lost and misplaced pushes."""

from pathlib import Path

import numpy as np

from experiments.distributed.counter_ledger import FEATURES, SHARED, Pushed, judged, read_ledgers


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
    verdict = judged(pushes, rows_after(list(zip(pushes, [1, 1, 1, 0], strict=True))), [], 1.0)
    assert verdict.holds("log")
    assert (verdict.attempted, verdict.acknowledged, verdict.applied, verdict.in_doubt_applied) == (4, 2, 3, 1)


def test_a_doubled_push_is_found() -> None:
    verdict = judged([pushed(0)], rows_after([(pushed(0), 2)]), [], 1.0)
    assert verdict.doubled == 1
    assert not verdict.holds("checkpoint")


def test_a_lost_push_is_found_and_forgiven_only_after_a_checkpoint() -> None:
    lost = judged([pushed(0, 5.0)], rows_after([]), [6.0], 1.0)
    assert lost.lost == 1
    assert not lost.holds("log")
    assert lost.holds("checkpoint")  # its shard was killed a second later
    assert not judged([pushed(0, 5.0)], rows_after([]), [60.0], 1.0).holds("checkpoint")


def test_a_row_that_nobody_pushed_to_is_found() -> None:
    rows = rows_after([(pushed(0), 1)])
    rows[0][7] += 1
    assert judged([pushed(0)], rows, [], 1.0).wrong_cells == 1


def test_a_torn_last_line_was_never_sent(tmp_path: Path) -> None:
    whole = '{"row": 64, "shard": 0, "shared": [1, 2], "begun": 1.5}\n{"row": 64, "shard": 0, "acknowledged": 2.0}\n'
    (tmp_path / "0-1.jsonl").write_text(whole + '{"row": 65, "sh')
    assert read_ledgers(tmp_path) == [Pushed(0, 64, (1, 2), 1.5, 2.0)]
