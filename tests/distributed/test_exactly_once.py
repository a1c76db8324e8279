"""Pushes count once: repeated, late, out of order, of a worker that was given up, and after a shard's restart."""

from pathlib import Path

import numpy as np
import pytest
from downpour_cases import calling, head, plus_one, shards_of, transport
from hypothesis import given
from hypothesis import strategies as st

from manyclass.distributed.messages import FencedError, Outcome, Sender
from manyclass.distributed.placement import Placement
from manyclass.distributed.positives import Targets
from manyclass.distributed.row_rules import ServerRule
from manyclass.distributed.servers.checkpoints import JobFolder
from manyclass.distributed.servers.push_ledger import WINDOW, PushLedger
from manyclass.distributed.steps.transport import carried_out

COUNTER = ServerRule(lr=1.0)


@given(st.lists(st.integers(0, 40), max_size=120))
def test_the_ledger_admits_each_push_once_in_any_order(sequences: list[int]) -> None:
    ledger, applied = PushLedger(), []
    for sequence in sequences:
        sender = Sender(7, 1, sequence)
        if not ledger.is_applied(sender):
            applied.append(sequence)
            ledger.note(sender)
        ledger = PushLedger.from_json(ledger.to_json())
    assert sorted(applied) == sorted(set(sequences))


def test_what_is_too_old_to_be_known_is_not_applied() -> None:
    ledger = PushLedger()
    ledger.note(Sender(0, 1, WINDOW + 10))
    assert ledger.is_applied(Sender(0, 1, 10))
    assert not ledger.is_applied(Sender(0, 1, 11))


def test_a_new_incarnation_starts_over_and_puts_the_old_one_out() -> None:
    ledger = PushLedger()
    ledger.note(Sender(0, 1, 5))
    assert not ledger.is_applied(Sender(0, 2, 0))
    ledger.note(Sender(0, 2, 0))
    with pytest.raises(FencedError, match="worker 0 sends as incarnation 1, but 2 has taken its place"):
        ledger.is_applied(Sender(0, 1, 6))
    ledger.fence(3, 2)
    with pytest.raises(FencedError):
        ledger.is_applied(Sender(3, 1, 0))


def test_a_push_that_comes_again_moves_nothing() -> None:
    (shard,) = shards_of(head(rule=COUNTER), 1)
    before = shard.rows.weight.copy()
    push = plus_one(Sender(0, 1, 0), [2, 5])
    assert [shard.push(push).outcome for _ in range(3)] == [Outcome.APPLIED, Outcome.REPEATED, Outcome.REPEATED]
    moved = np.zeros_like(before)
    moved[[2, 5]] = 1
    np.testing.assert_allclose(shard.rows.weight - before, moved, atol=1e-6)
    assert shard.rows.version == 1


def test_a_repeated_step_gets_the_same_gradient_again() -> None:
    shards = shards_of(head(), 2)
    seen = []

    def twice(call):  # type: ignore[no-untyped-def]
        answers = [calling(shards)(call) for _ in range(2)]
        if call.method == "apply_shared":
            seen.append([answer.outcome for answer in answers])
            np.testing.assert_array_equal(answers[0].input_gradients, answers[1].input_gradients)
        return answers[1]

    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    outcome = carried_out(transport("activations", shards).step(x, Targets([1, 2, 3, 4], 50)), twice)
    assert seen == [[Outcome.APPLIED, Outcome.REPEATED]] * 2
    assert outcome.repeated == 2
    assert outcome.input_gradients is not None


def test_a_shard_that_forgot_a_step_says_so_and_nothing_is_applied() -> None:
    shards, others = shards_of(head(), 2), shards_of(head(), 2)

    def restarted(call):  # type: ignore[no-untyped-def]
        return calling(others if call.method == "apply_shared" and call.server == 1 else shards)(call)

    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    outcome = carried_out(transport("activations", shards).step(x, Targets([1, 2, 3, 4], 50)), restarted)
    assert outcome.forgotten == 1
    assert outcome.input_gradients is None  # half a gradient is none
    assert (shards[0].rows.version, others[1].rows.version) == (1, 0)


def folder(path: Path, shards: int = 2, **changes: object) -> JobFolder:
    settings = head(rule=COUNTER, **changes)
    return JobFolder(path, settings, Placement(settings.classes, shards, seed=settings.seed))


def test_the_ledger_is_saved_with_the_rows(tmp_path: Path) -> None:
    job = folder(tmp_path)
    shard = job.open_shard(0)
    shard.push(plus_one(Sender(0, 1, 0), [1]))
    job.save_shard(shard)
    shard.push(plus_one(Sender(0, 1, 1), [1]))  # acknowledged after the checkpoint: lost, as stated
    back = job.open_shard(0)
    assert back.rows.version == 1
    assert back.push(plus_one(Sender(0, 1, 0), [1])).outcome == Outcome.REPEATED
    assert back.push(plus_one(Sender(0, 1, 1), [1])).outcome == Outcome.APPLIED
    np.testing.assert_array_equal(back.rows.weight, shard.rows.weight)


def test_a_log_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    job = folder(tmp_path)
    shard = job.open_shard(0, durability="log")
    for sequence in range(5):
        shard.push(plus_one(Sender(0, 1, sequence), [sequence, 9]))
        if sequence == 2:
            job.save_shard(shard)
    for _ in range(2):  # dies again before it has pushed anything
        back = job.open_shard(0, durability="log")
        np.testing.assert_array_equal(back.rows.weight, shard.rows.weight)
        np.testing.assert_array_equal(back.rows.bias, shard.rows.bias)
        assert back.rows.version == 5
        assert back.push(plus_one(Sender(0, 1, 4), [1])).outcome == Outcome.REPEATED
    back.push(plus_one(Sender(0, 1, 5), [1]))
    assert job.open_shard(0).rows.version == 6


def test_half_a_record_was_never_acknowledged(tmp_path: Path) -> None:
    job = folder(tmp_path)
    shard = job.open_shard(0, durability="log")
    for sequence in range(2):
        shard.push(plus_one(Sender(0, 1, sequence), [1]))
    (log,) = tmp_path.glob("*.log")
    log.write_bytes(log.read_bytes()[:-3])
    back = job.open_shard(0, durability="log")
    assert back.rows.version == 1
    back.push(plus_one(Sender(0, 1, 1), [1]))
    np.testing.assert_array_equal(job.open_shard(0).rows.weight, shard.rows.weight)


def test_a_log_loses_nothing_where_shards_are_cut_anew(tmp_path: Path) -> None:
    from manyclass.distributed.workers.coordinator import Coordinator

    old = folder(tmp_path, 2)
    for number in range(2):
        old.save_shard(old.open_shard(number))
    old.write_manifest(Coordinator(1).saved())
    shard = folder(tmp_path, 3).open_shard(1, durability="log")
    shard.push(plus_one(Sender(0, 1, 0), [4]))  # acknowledged; and then all of it dies, before there is a manifest
    back = folder(tmp_path, 3).open_shard(1, durability="log")
    np.testing.assert_array_equal(back.rows.weight, shard.rows.weight)
    assert back.rows.version == 1


def test_no_incarnation_is_given_out_twice(tmp_path: Path) -> None:
    from manyclass.distributed.workers.coordinator import Coordinator

    job, given = folder(tmp_path), []
    saved = Coordinator(1).saved()  # a manifest that is older than all that joined
    for _ in range(3):
        coordinator = Coordinator(1, epoch=job.new_epoch())
        coordinator.restore(saved)
        given += [coordinator.join(0, 0.0) for _ in range(2)]
    assert given == sorted(set(given))
