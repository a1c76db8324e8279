"""The folder of a job: newest whole checkpoint, re-sharding, other jobs refused, nothing half-written."""

from pathlib import Path

import numpy as np
import pytest
from downpour_cases import all_rows, head, plus_one

from manyclass import FileError
from manyclass.distributed.messages import FencedError, Sender
from manyclass.distributed.placement import Placement
from manyclass.distributed.row_rules import ServerRule
from manyclass.distributed.servers.checkpoints import JobFolder
from manyclass.distributed.servers.shard import ParameterShard
from manyclass.distributed.servers.trunk_server import TrunkServer
from manyclass.distributed.settings import HeadSettings
from manyclass.distributed.workers.coordinator import Coordinator

LAZY = ServerRule(lr=0.5, momentum=0.5, lazy=True)


def folder(path: Path, shards: int = 3, **changes: object) -> JobFolder:
    settings = head(rule=LAZY, **changes)
    return JobFolder(path, settings, Placement(settings.classes, shards, seed=settings.seed))


def trained(job: JobFolder) -> list[ParameterShard]:
    """Return shards after a few pushes, saved."""
    shards = [job.open_shard(number) for number in range(job.placement.shards)]
    for shard in shards:
        for sequence in range(3):
            shard.push(plus_one(Sender(0, 1, sequence), [shard.number, 5 + sequence]))
        job.save_shard(shard)
    job.write_manifest(Coordinator(10).saved())
    return shards


def test_a_new_folder_gives_new_rows_and_the_same_ones_again(tmp_path: Path) -> None:
    job = folder(tmp_path)
    assert job.manifest() is None
    np.testing.assert_array_equal(job.open_shard(1).rows.weight, job.open_shard(1).rows.weight)


def test_first_rows_do_not_depend_on_the_number_of_shards(tmp_path: Path) -> None:
    of_three, of_eight = (
        [folder(tmp_path / str(count), count).open_shard(number) for number in range(count)] for count in (3, 8)
    )
    for one, other in zip(all_rows(of_three), all_rows(of_eight), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    job = folder(tmp_path)
    shard = job.open_shard(0)
    paths = []
    for sequence in range(3):
        shard.push(plus_one(Sender(0, 1, sequence), [1]))
        paths.append(job.save_shard(shard))
    assert [path.exists() for path in paths] == [False, True, True]  # two are kept
    content = bytearray(paths[-1].read_bytes())
    content[-5] ^= 1
    paths[-1].write_bytes(content)
    with pytest.warns(RuntimeWarning, match="an older checkpoint is used"):
        assert job.open_shard(0).rows.version == 2


@pytest.mark.parametrize("counts", [(3, 8), (3, 1), (4, 3, 8)])
def test_resharding_moves_rows_and_states_and_keeps_zombies_out(counts: tuple[int, ...], tmp_path: Path) -> None:
    expected = all_rows(trained(folder(tmp_path, counts[0])))
    for count in counts[1:]:
        job = folder(tmp_path, count)
        shards = [job.open_shard(number) for number in range(count)]
        for shard in shards:
            job.save_shard(shard)
        job.write_manifest(Coordinator(10).saved())
        assert {path.name.split("-")[3] for path in tmp_path.glob("shard-*")} == {str(count)}
        for one, other in zip(all_rows(shards), expected, strict=True):
            np.testing.assert_array_equal(one, other)
        states = np.concatenate([shard.rows.weight_state for shard in shards])
        assert (states != 0).any()
        with pytest.raises(FencedError):
            shards[0].push(plus_one(Sender(0, 1, 3), [0]))


def test_the_folder_of_another_job_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    trained(folder(tmp_path))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = JobFolder(tmp_path, HeadSettings(classes=60, features=8), Placement(60, 3, seed=3))
    with pytest.raises(FileError, match="is of a job with classes=50, this one has classes=60; use another folder"):
        other.manifest()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_rows_of_another_shape_are_refused(tmp_path: Path) -> None:
    trained(folder(tmp_path))
    (tmp_path / "job.json").unlink()
    wider = JobFolder(tmp_path, HeadSettings(classes=50, features=9), Placement(50, 3, seed=3))
    with pytest.raises(FileError, match=r"holds rows \(16, 8\), the job has \(16, 9\)"):
        wider.open_shard(0)


def test_another_rule_goes_on_with_the_rows(tmp_path: Path) -> None:
    shards = trained(folder(tmp_path))
    settings = head(rule=ServerRule(kind="adagrad", lr=0.1))
    job = JobFolder(tmp_path, settings, Placement(50, 3, seed=3))
    with pytest.warns(RuntimeWarning, match="shard 0 was trained under sgd, this job has adagrad"):
        back = job.open_shard(0)
    np.testing.assert_array_equal(back.rows.weight, shards[0].rows.weight)
    assert back.rows.weight_state is not None
    assert not back.rows.weight_state.any()


def test_the_trunk_comes_back_and_another_one_is_refused(tmp_path: Path) -> None:
    job = folder(tmp_path)
    server = TrunkServer({"w": np.ones((2, 3), np.float32)}, {"mean": np.zeros(2, np.float32)}, rule=LAZY)
    server.values["w"] += 1
    server.version = 4
    assert not job.load_trunk(TrunkServer({"w": np.ones((2, 3), np.float32)}))
    job.save_trunk(server)
    back = TrunkServer({"w": np.zeros((2, 3), np.float32)}, {"mean": np.ones(2, np.float32)}, rule=LAZY)
    assert job.load_trunk(back)
    assert (back.values["w"] == 2).all()
    assert back.version == 4
    with pytest.raises(ValueError, match=r"the saved trunk's 'w' is of shape \(2, 3\), the job's \(3, 3\)"):
        job.load_trunk(TrunkServer({"w": np.zeros((3, 3), np.float32)}))
