"""Who works on what: all batches once, dead workers' batches to others, nobody waits for the dead, bounds are kept."""

import numpy as np
import pytest

from manyclass import ConfigError
from manyclass.distributed.messages import FencedError
from manyclass.distributed.staleness import Staleness
from manyclass.distributed.workers.coordinator import Coordinator


def work_off(coordinator: Coordinator, workers: dict[int, int], now: float = 0.0) -> list[int]:
    """Let workers take turns until all is done; return the batches in the order they were finished."""
    order: list[int] = []
    finished: dict[int, list[int]] = {worker: [] for worker in workers}
    while workers:
        for worker, incarnation in list(workers.items()):
            dealt = coordinator.next(worker, incarnation, finished[worker], now)
            order += dealt.numbers
            finished[worker] = dealt.numbers
            if dealt.stop:
                del workers[worker]
    return order


def test_every_batch_is_dealt_out_once() -> None:
    coordinator = Coordinator(23, block=4)
    assert sorted(work_off(coordinator, {worker: coordinator.join(worker, 0) for worker in range(3)})) == list(
        range(23)
    )
    assert coordinator.over


def test_batches_of_a_worker_that_died_go_to_others_and_nobody_waits() -> None:
    coordinator = Coordinator(10, staleness=Staleness(lead=0), lease=5)
    dead, alive = coordinator.join(0, 0), coordinator.join(1, 0)
    (lost,) = coordinator.next(0, dead, [], 0).numbers
    (first,) = coordinator.next(1, alive, [], 0).numbers
    assert coordinator.next(1, alive, [first], 4).wait > 0  # the other one is slower, but may still come
    (fence,) = coordinator.expire(6)
    assert (fence.worker, fence.incarnation) == (0, dead + 1)
    assert coordinator.next(1, alive, [], 7).numbers == [lost]
    with pytest.raises(FencedError, match="worker 0, incarnation 1, was given up; join again"):
        coordinator.next(0, dead, [lost], 8)
    assert coordinator.join(0, 8) == dead + 1


def test_a_fast_worker_waits_for_the_slowest() -> None:
    coordinator = Coordinator(100, staleness=Staleness(lead=2))
    fast, slow = coordinator.join(0, 0), coordinator.join(1, 0)
    taken = coordinator.next(0, fast, [], 0).numbers
    steps = 0
    while taken:
        steps += 1
        taken = coordinator.next(0, fast, taken, 0).numbers
    assert steps == 3  # two ahead, and the one that it had
    coordinator.next(1, slow, coordinator.next(1, slow, [], 0).numbers, 0)
    assert coordinator.next(0, fast, [], 0).numbers


def test_a_worker_that_joins_late_does_not_hold_the_others() -> None:
    coordinator = Coordinator(100, staleness=Staleness(lead=1))
    early = coordinator.join(0, 0)
    taken: list[int] = []
    for _ in range(20):
        taken = coordinator.next(0, early, taken, 0).numbers
    coordinator.join(1, 0)
    assert coordinator.next(0, early, taken, 0).numbers


def test_a_resumed_job_does_what_is_left() -> None:
    coordinator = Coordinator(12, block=2)
    incarnations = [coordinator.join(worker, 0) for worker in range(2)]
    first, second = (coordinator.next(worker, incarnations[worker], [], 0).numbers for worker in range(2))
    coordinator.next(1, incarnations[1], second, 0)
    again = Coordinator(12, block=2)
    again.restore(coordinator.saved())
    assert again.join(0, 0) == incarnations[0] + 1  # pushes of before are refused
    left = work_off(again, {0: incarnations[0] + 1})
    assert sorted(left) == [number for number in range(12) if number not in second]
    assert first[0] in left


def test_batches_of_a_lost_answer_are_dealt_out_again() -> None:
    coordinator = Coordinator(4, block=2)
    incarnation = coordinator.join(0, 0)
    coordinator.next(0, incarnation, [], 0, [])  # nobody hears that
    first = coordinator.next(0, incarnation, [], 0, []).numbers
    dealt = coordinator.next(0, incarnation, first, 0, [])
    assert (dealt.numbers, first, dealt.accepted) == ([2, 3], [0, 1], (0, 1))
    again = coordinator.next(0, incarnation, first, 0, [])
    assert (again.numbers, again.accepted) == ([2, 3], ())  # the same report again counts once
    assert coordinator.finished == 2


def test_a_slow_worker_is_not_a_dead_one() -> None:
    coordinator = Coordinator(8, lease=0.25)
    slow, dead = coordinator.join(0, 0), coordinator.join(1, 0)
    numbers = coordinator.next(0, slow, [], 0).numbers
    for beat in range(1, 100):  # steps that take far longer than the lease
        coordinator.alive(0, slow, beat * 0.08)
        given_up = coordinator.expire(beat * 0.08)
        assert all(fence.worker == 1 for fence in given_up)
    assert coordinator.next(0, slow, numbers, 8).accepted == (0, 1, 2, 3)
    with pytest.raises(FencedError, match="worker 1, incarnation 1, was given up"):
        coordinator.alive(1, dead, 8)


@pytest.mark.parametrize(
    ("text", "policy"),
    [("unbounded", Staleness()), ("bounded:4", Staleness(lead=4)), ("scaled", Staleness(free=0)),
     ("scaled:8", Staleness(free=8))],
)  # fmt: skip
def test_policies_are_read_and_said(text: str, policy: Staleness) -> None:
    assert Staleness.parse(text) == policy
    assert Staleness.parse(str(policy)) == policy


@pytest.mark.parametrize("text", ["", "bounded", "bounded:x", "late", "unbounded:3"])
def test_other_policies_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="give 'unbounded', 'bounded:STEPS' or 'scaled:FREE'"):
        Staleness.parse(text)


def test_stale_steps_are_smaller() -> None:
    assert [Staleness(free=2).scale(staleness) for staleness in (0, 2, 3, 5)] == [1, 1, 1 / 2, 1 / 4]
    assert Staleness().scale(100) == 1
    assert np.isclose(Staleness(free=0).scale(9), 0.1)
