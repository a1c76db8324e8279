"""What a log promises where a disk fails, a process outlives its shard, or a rule changes; and one run per folder."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from downpour_cases import head, plus_one

from manyclass import FileError
from manyclass.distributed.messages import Outcome, Sender
from manyclass.distributed.placement import Placement
from manyclass.distributed.row_rules import ServerRule
from manyclass.distributed.servers import file_owner
from manyclass.distributed.servers.checkpoints import JobFolder
from manyclass.distributed.servers.push_log import PushLog
from manyclass.distributed.workers.coordinator import Coordinator

COUNTER = ServerRule(lr=1.0)


def folder(path: Path, shards: int = 1, rule: ServerRule = COUNTER) -> JobFolder:
    settings = head(rule=rule)
    return JobFolder(path, settings, Placement(settings.classes, shards, seed=settings.seed))


def test_what_a_process_logs_after_it_lost_its_shard_is_left_out(tmp_path: Path) -> None:
    job = folder(tmp_path)
    zombie = job.open_shard(0, durability="log")
    for sequence in range(2):
        zombie.push(plus_one(Sender(0, 1, sequence), [1]))
    shard = job.open_shard(0, durability="log")  # in its place
    zombie.push(plus_one(Sender(0, 1, 2), [7]))
    for sequence in range(5):
        shard.push(plus_one(Sender(1, 1, sequence), [2]))
    with pytest.warns(RuntimeWarning, match="left out"):
        back = job.open_shard(0, durability="log")
    assert back.rows.version == 7
    np.testing.assert_array_equal(back.rows.weight, shard.rows.weight)


def test_a_checkpoint_is_not_removed_because_others_have_higher_numbers(tmp_path: Path) -> None:
    job = folder(tmp_path)
    zombie, shard = job.open_shard(0), job.open_shard(0)
    for sequence in range(3):
        zombie.push(plus_one(Sender(0, 1, sequence), [1]))
        job.save_shard(zombie)
    shard.push(plus_one(Sender(1, 1, 0), [2]))
    assert job.save_shard(shard).exists()


def test_after_the_disk_has_failed_nothing_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = folder(tmp_path)
    shard = job.open_shard(0, durability="log")
    shard.push(plus_one(Sender(0, 1, 0), [1]))

    def broken(file: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(OSError, match="Input/output error"):
            shard.push(plus_one(Sender(0, 1, 1), [1]))
    for sequence in (1, 2):  # one that comes again, and a new one: the disk says yes now, and may have lost the page
        with pytest.raises(FileError, match="could not be brought to the disk"):
            shard.push(plus_one(Sender(0, 1, sequence), [1]))
    back = job.open_shard(0, durability="log")
    assert back.push(plus_one(Sender(0, 1, 2), [1])).outcome == Outcome.APPLIED


def test_a_log_and_its_name_are_on_the_disk_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = set[str]()
    real = os.fsync

    def noted(file: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{file}"))
        real(file)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc here: which file is synced cannot be told")
    monkeypatch.setattr(os, "fsync", noted)
    PushLog(tmp_path / "a.log")
    assert synced == {str(tmp_path / "a.log"), str(tmp_path)}


def test_pushes_are_replayed_under_the_rule_that_they_were_applied_under(tmp_path: Path) -> None:
    job = folder(tmp_path)
    shard = job.open_shard(0, durability="log")
    shard.push(plus_one(Sender(0, 1, 0), [1]))
    slower = folder(tmp_path, rule=ServerRule(lr=0.25)).open_shard(0, durability="log")
    np.testing.assert_array_equal(slower.rows.weight, shard.rows.weight)
    slower.push(plus_one(Sender(0, 1, 1), [1]))
    back = folder(tmp_path, rule=ServerRule(lr=0.25)).open_shard(0, durability="log")
    np.testing.assert_array_equal(back.rows.weight, slower.rows.weight)


def test_a_folder_has_one_run_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fcntl")
    job = folder(tmp_path)
    with job.own_job():
        monkeypatch.setattr(file_owner.time, "sleep", lambda _: None)
        passed = iter(range(10**6))
        monkeypatch.setattr(file_owner.time, "monotonic", lambda: float(next(passed)))
        with pytest.raises(FileError, match=r"job.lock is held by another process, so this job may still be written"):
            job.own_job()
    job.own_job().close()


def test_shards_are_not_cut_anew_while_somebody_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fcntl")
    old = folder(tmp_path, 2)
    for number in range(2):
        old.save_shard(old.open_shard(number))
    old.write_manifest(Coordinator(1).saved())
    new = folder(tmp_path, 1)
    with old.own_shard(1):
        monkeypatch.setattr(file_owner.time, "sleep", lambda _: None)
        passed = iter(range(10**6))
        monkeypatch.setattr(file_owner.time, "monotonic", lambda: float(next(passed)))
        with pytest.raises(FileError, match="shard 1 of 2 may still be written to"):
            new.open_shard(0)
    assert len(new.open_shard(0).rows.weight) == 50
