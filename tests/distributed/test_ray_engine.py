"""Jobs on Ray: a cluster on this machine, closed to others; metrics; and pushes that count once through faults."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from cases import ROOT

# Not loaded into this process: ray reads its environment then, and other tests start clusters of their own.
pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program as a user would, with nothing of this process in its environment but the path to the workload."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.run(
        [sys.executable, *command],
        env=environment | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_job_learns_on_a_cluster_that_is_closed_to_others(tmp_path: Path) -> None:
    ran = run(str(Path(__file__).with_name("ray_program.py")), str(tmp_path / "job"), folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["learned"], found
    assert found["steps"] == 120
    assert found["versions"] == [120, 120]
    assert found["torch in shards"] == [False, False]
    assert found["token"] == "token"
    assert set(found["listening"]) <= {"127.0.0.1", "[::ffff:127.0.0.1]", "[::1]"}
    assert {"ray_manyclass_pushes", "ray_manyclass_staleness", "ray_manyclass_examples"} <= set(found["metrics"])
    assert (tmp_path / "job" / "job.json").exists()


def test_what_is_slow_is_waited_for_and_what_cannot_work_is_one_sentence(tmp_path: Path) -> None:
    ran = run(str(Path(__file__).with_name("ray_refusals_program.py")), str(tmp_path), folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["slow"] == [8, 8]  # each batch once: steps beyond the lease, and a worker that waited in vain
    said = {
        "another trunk": "InputError: the saved trunk's '0.weight' is missing, the job's (8, 8); use the job's own",
        "missing import": "No module named 'no_such_module'; what the job imports has to be installed there",
        "too few CPUs": "ConfigError: shards=3 with shard_threads=2 and workers=20 take 26 CPUs, the cluster has 8",
        "left alone": "ManyclassError: worker 0 failed 4 times while no batch was finished, last with UnavailableError",
        "full disk": "FileError: a checkpoint cannot be written ([Errno 28] No space left on device)",
        "no coordinator": "UnavailableError: the coordinator has died; the same command goes on from the last",
        "deadline": "UnavailableError: shard 0 has not answered for 1 s",
        "fenced": "FencedError: worker 3 sends as incarnation 4, but 5 has taken its place; join again",
    }
    for name, sentence in said.items():
        assert sentence in f"{found[name]['kind']}: {found[name]['said']}"
        assert "\n" not in found[name]["said"]
        assert found[name]["seconds"] < 40  # none of them is tried until a deadline, which is 300 s
    assert found["repeated"] == 0  # a call that takes its time is not made again
    assert found["reports"] == 4  # of four batches, though they were told twice


@pytest.mark.parametrize("durability", ["log"])
def test_pushes_count_once_through_faults(durability: str, tmp_path: Path) -> None:
    """The short version of `make chaos`: killed and paused shards and workers, lost messages."""
    arguments = ["--pushes", "400", "--faults", "5", "--every", "1", "--durability", durability]
    ran = run("-m", "experiments.distributed.chaos", *arguments, folder=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    verdict = json.loads(ran.stdout[ran.stdout.index("{") :])
    assert verdict["acknowledged"] >= 400
    assert sum(verdict["faults"].values()) >= 1
    assert (verdict["doubled"], verdict["lost"], verdict["wrong_cells"]) == (0, 0, 0)
