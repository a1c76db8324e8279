"""The command: what it prints, which exit code it gives, and what it leaves behind."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_demo
from typer.testing import CliRunner

import experiments
from experiments.__main__ import app
from experiments.demo import stages as demo_stages
from experiments.frame.needs import Need

runner = CliRunner()
CHOSEN = ["demo", *(argument for head in tiny_demo.HEADS for argument in ("--head", head)), "--threads", "1"]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the demo small, and the only experiment there is."""
    monkeypatch.setattr(experiments, "EXPERIMENTS", {"demo": "experiments.demo"})
    monkeypatch.setattr(demo_stages, "FULL", tiny_demo.PLAN)


def test_report_draws_the_same_page_from_the_records_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = runner.invoke(app, [*CHOSEN, "--out", str(out), "--seed", "5"])
    assert ran.exit_code == 0, ran.output
    assert str(out / "report.html") in ran.output
    drawn = {path: path.read_bytes() for path in [out / "report.html", *(out / "figures").iterdir()]}
    for path in drawn:
        path.unlink()
    again = runner.invoke(app, ["report", str(out)])
    assert again.exit_code == 0, again.output
    assert {path: path.read_bytes() for path in drawn} == drawn


def test_what_is_refused_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    for arguments, said in (
        (["nonsense"], "experiment 'nonsense' is unknown; choose from: demo"),
        (["demo", "--stage", "x"], "--stage x: there is no such stage; give one of candidate, wta, hierarchical"),
        (["demo", str(tmp_path)], "says nothing after demo; give the folder of results as --out"),
        (["report", str(tmp_path)], "has no records of an experiment; pass the --out of one"),
    ):
        ran = runner.invoke(app, arguments)
        assert ran.exit_code == 2
        assert said in ran.stderr
        assert ran.stderr.startswith("experiments: ")
        assert ran.stderr.count("\n") == 1
    assert runner.invoke(app, ["demo", "--threads", "0"]).exit_code == 2


def test_without_a_name_the_experiments_are_listed() -> None:
    ran = runner.invoke(app, [])
    assert ran.exit_code == 0
    assert ran.output.startswith("demo  Train a network over 100,000 classes")


def test_documents_says_what_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.frame import documents

    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("In <!-- figures:demo_seconds -->a day<!-- /figures:demo_seconds -->.")
    monkeypatch.setattr(documents, "ROOT", tmp_path)
    assert runner.invoke(app, ["documents"]).output == "written: README.md\n"
    assert "a day" not in (tmp_path / "README.md").read_text()
    assert runner.invoke(app, ["documents"]).output == "README and docs already say what the records give\n"


def test_a_second_run_into_the_same_folder_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.demo.EXPERIMENT", replace(tiny_demo.EXPERIMENT, replaces=False))
    assert runner.invoke(app, [*CHOSEN, "--out", str(tmp_path)]).exit_code == 0
    ran = runner.invoke(app, [*CHOSEN, "--out", str(tmp_path)])
    assert ran.exit_code == 2
    assert "--resume" in ran.stderr
    assert runner.invoke(app, [*CHOSEN, "--out", str(tmp_path), "--resume"]).exit_code == 0


def test_without_an_extra_there_is_a_sentence_with_the_install_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    ran = runner.invoke(app, [*CHOSEN, "--out", str(tmp_path)])
    assert ran.exit_code == 2
    assert "needs matplotlib, which is not installed; pip install '.[experiments]'" in ran.stderr


def test_without_typer_the_command_says_how_to_install_it() -> None:
    program = "import sys; sys.modules['typer'] = None; import experiments.__main__"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.strip() == (
        "experiments: the command needs typer, which is not installed; pip install '.[experiments]'"
    )


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    process = tiny_demo.start(tmp_path, stderr=subprocess.PIPE)
    try:
        records, deadline = tmp_path / "records.jsonl", time.monotonic() + 300
        while not records.exists() or "stage_start" not in records.read_text():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert said.strip() == "stopped; the same command with --resume goes on from here"


def test_neither_the_command_nor_the_frame_loads_torch() -> None:
    program = """
import os, sys
import experiments.__main__, experiments.frame.stages
print("torch" in sys.modules, "matplotlib" in sys.modules, os.environ["OMP_WAIT_POLICY"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False", "PASSIVE"]


# doctor


def test_doctor_says_what_runs_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = [Need("fonts-of-nowhere", None, "nothing", "apt-get install fonts-of-nowhere")]
    monkeypatch.setattr("experiments.demo.EXPERIMENT", replace(tiny_demo.EXPERIMENT, needs=lambda: needs))
    ran = runner.invoke(app, ["doctor"])
    assert ran.exit_code == 0, ran.output
    for said in (
        "backend native",
        "instruction set",
        "threads",
        "numpy",
        "For the experiment demo",
        "fonts-of-nowhere",
    ):
        assert said in ran.output
    missing = next(line for line in ran.output.splitlines() if "fonts-of-nowhere" in line)
    assert "missing" in missing
    assert "apt-get install fonts-of-nowhere" in missing


def test_doctor_fails_where_the_core_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCLASS_SIMD", "nonsense")
    ran = runner.invoke(app, ["doctor"])
    assert ran.exit_code == 1
    assert "the core does not run: MANYCLASS_SIMD='nonsense'" in ran.output
