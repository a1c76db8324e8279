"""The examples run as a user would run them, on less."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cases import ROOT

SMALL = {
    "recommender.py": ["--items", "3000", "--examples", "4000", "--epochs", "2"],
    "sharded_head.py": ["--classes", "3000", "--steps", "150"],
}
JOBS = {"downpour_demo.py", "downpour_skipgram.py"}
ELSEWHERE = {"ray_train_head.py"}  # torch/test_ray_train.py
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def run(name: str, folder: Path, *launcher: str) -> list[str]:
    """Return the lines that an example prints."""
    command = [sys.executable, *launcher, str(ROOT / "examples" / name), *SMALL[name]]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*.*") if path.is_file()}


def test_every_example_is_run_here() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(SMALL) | JOBS | ELSEWHERE


def test_the_recommender_runs(tmp_path: Path) -> None:
    assert "is kept to" in run("recommender.py", tmp_path)[-1]
    assert files(tmp_path) == {"recommender.safetensors", "items.mc"}


def test_the_sharded_head_runs(tmp_path: Path) -> None:
    printed = run("sharded_head.py", tmp_path, *TORCHRUN)
    found = re.search(r"1500 rows on this rank; (\d+)% of the examples", "\n".join(printed))
    assert found
    assert int(found[1]) > 50
    assert "3,000 classes × 64 features in 2 parts" in printed[-1]
    assert {"manifest.json", "shard-00000-of-00002.mc", "shard-00001-of-00002.mc"} <= files(tmp_path)


@pytest.mark.parametrize("name", sorted(JOBS))
def test_a_job_learns(name: str, tmp_path: Path) -> None:
    """Exit code 0 says that it is as accurate as the job asks for."""
    command = [sys.executable, "-m", "manyclass", "train", str(ROOT / "examples" / name), "--quick", "--workers", "2"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "accuracy" in ran.stdout
    assert not list(tmp_path.iterdir())  # without --folder nothing is kept
