"""The examples run as a user would run them, on less."""

import subprocess
import sys
from pathlib import Path

import pytest
from cases import ROOT

SMALL = {"recommender.py": ["--items", "3000", "--examples", "4000", "--epochs", "2"]}
JOBS = {"downpour_demo.py", "downpour_skipgram.py"}


def test_every_example_is_run_here() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(SMALL) | JOBS


@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / name), *SMALL[name]]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "is kept to" in ran.stdout.splitlines()[-1]
    assert {path.name for path in tmp_path.rglob("*.*") if path.is_file()} == {"recommender.safetensors", "items.mc"}


@pytest.mark.parametrize("name", sorted(JOBS))
def test_a_job_learns(name: str, tmp_path: Path) -> None:
    """Exit code 0 says that it is as accurate as the job asks for."""
    command = [sys.executable, "-m", "manyclass", "train", str(ROOT / "examples" / name), "--quick", "--workers", "2"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "accuracy" in ran.stdout
    assert not list(tmp_path.iterdir())  # without --folder nothing is kept
