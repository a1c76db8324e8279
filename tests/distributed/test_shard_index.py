"""What is hashed anew and when: every row in turn, and those that moved farthest; and the exact search beside it."""

import tracemalloc

import numpy as np
import pytest
from downpour_cases import calling, exhaustive, head, shards_of, transport

from manyclass.distributed.messages import Push, Sender
from manyclass.distributed.positives import Targets
from manyclass.distributed.servers.shard import ParameterShard
from manyclass.distributed.steps.exact_search import best_rows
from manyclass.distributed.steps.transport import carried_out
from manyclass.index import ClassIndex

NEVER = 10**6  # a period in which the turn is a single row


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Rows that are hashed anew, a list for each time."""
    found: list[list[int]] = []
    refresh = ClassIndex.refresh

    def noted(self, ids, *others, **named):  # type: ignore[no-untyped-def]
        found.append(sorted(int(row) for row in ids))
        return refresh(self, ids, *others, **named)

    monkeypatch.setattr(ClassIndex, "refresh", noted)
    return found


def shard_of(classes: int, **changes: int) -> ParameterShard:
    (shard,) = shards_of(head(classes=classes, **changes), 1)
    shard.index.index()
    return shard


def push(shard: ParameterShard, sequence: int, rows: np.ndarray, far: float | np.ndarray = 1.0) -> None:
    gradients = np.ones((len(rows), 8), np.float32) * np.broadcast_to(far, len(rows))[:, None]
    shard.push(Push(Sender(0, 1, sequence), 0, rows.astype(np.uint32), gradients.astype(np.float32), None))


def test_rows_of_all_pushes_since_the_last_look_up_are_hashed(hashed: list[list[int]]) -> None:
    shard = shard_of(500, refresh_steps=NEVER, refresh_limit=20)
    push(shard, 0, np.array([300, 301]))
    push(shard, 1, np.array([100, 200, 301]))
    shard.index.refresh()
    assert hashed == [[0, 100, 200, 300, 301]]


def test_those_that_moved_farthest_come_first_and_the_others_wait(hashed: list[list[int]]) -> None:
    shard = shard_of(500, refresh_steps=NEVER, refresh_limit=11)
    push(shard, 0, np.arange(100, 120), np.arange(20) + 1.0)
    push(shard, 1, np.array([100]), 30.0)  # farther than all others, by both pushes together
    for _ in range(3):
        shard.index.refresh()
    assert hashed == [[0, 100, *range(111, 120)], [1, *range(101, 111)], [2]]


@pytest.mark.parametrize("limit", [20, 21])
def test_rows_that_moved_have_half_however_many_are_in_turn(hashed: list[list[int]], limit: int) -> None:
    shard = shard_of(500, refresh_steps=1, refresh_limit=limit)
    push(shard, 0, np.arange(400, 440))
    shard.index.refresh()
    (rows,) = hashed
    assert len(rows) == limit
    assert sum(row >= 400 for row in rows) == limit // 2


def test_every_row_has_its_turn_and_the_limit_holds(hashed: list[list[int]]) -> None:
    shard = shard_of(500, refresh_steps=1, refresh_limit=50)
    for look_up in range(2 * 500 // 50):
        push(shard, look_up, np.arange(0, 500, 5))
        shard.index.refresh()
    assert {row for rows in hashed for row in rows} == set(range(500))
    assert max(map(len, hashed)) <= 50
    assert shard.index.age().largest <= 2 * 500 // 50


def test_a_worker_keeps_all_rows_it_pulled_and_hashes_some_of_them_in_rotation(hashed: list[list[int]]) -> None:
    shards = shards_of(exhaustive(True, refresh_steps=NEVER, refresh_limit=6), 2)
    way = transport("rows", shards)
    carried_out(way.prepare(), calling(shards))
    generator = np.random.default_rng(0)
    for _ in range(12):
        before = np.concatenate([shard.rows.weight for shard in shards])
        x = generator.normal(size=(16, 8)).astype(np.float32)
        carried_out(way.step(x, Targets(generator.integers(50, size=16), 50)), calling(shards))
        np.testing.assert_array_equal(way.index.weight, before)  # type: ignore[attr-defined]  # as they were pulled
    assert max(map(len, hashed)) <= 6
    assert len({row for rows in hashed for row in rows}) > 40


@pytest.mark.parametrize(("examples", "rows", "count"), [(3, 5, 9), (2000, 300, 5), (7, 20_000, 1), (40, 20_000, 12)])
def test_the_exact_search_gives_ties_to_the_lowest_row(examples: int, rows: int, count: int) -> None:
    generator = np.random.default_rng(0)
    x, weight = (generator.integers(-2, 3, size=(n, 4)).astype(np.float32) for n in (examples, rows))
    bias = generator.integers(3, size=rows).astype(np.float32)
    found, logits = best_rows(weight, bias, x, count)
    expected = x @ weight.T + bias
    order = np.argsort(-expected, axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(found, order)
    np.testing.assert_array_equal(logits, np.take_along_axis(expected, order, 1))


def test_the_exact_search_takes_little_memory() -> None:
    generator = np.random.default_rng(0)
    x, weight = generator.random((256, 4), np.float32), generator.random((200_000, 4), np.float32)
    tracemalloc.start()
    best_rows(weight, None, x, 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6  # all logits at once are 205 MB
