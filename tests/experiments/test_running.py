"""Laws of running: stages run once, a kill costs nothing that was recorded, other options are refused."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tiny_experiment
from rich.console import Console

from experiments.frame.page import Page
from experiments.frame.records import Records
from experiments.frame.stages import Experiment, Options, Run, Stage, run_experiment, seconds_of_killed_sessions
from manyclass.errors import ConfigError

TINY = tiny_experiment.EXPERIMENT


def run(out: Path, experiment: Experiment = TINY, resume: bool = False, **options: Any) -> str:
    """Run and return what was said."""
    said = io.StringIO()
    run_experiment(experiment, out, Options(**options), resume, Console(file=said, width=120))
    return said.getvalue()


def measured(out: Path) -> list[dict[str, Any]]:
    """Return what the stages recorded, without what differs from session to session."""
    records = Records(out / "records.jsonl").all()
    kept = [record for record in records if record.get("kind") not in ("card", "stage_start", "stage_end")]
    return [{name: value for name, value in record.items() if name != "time"} for record in kept]


def test_a_run_says_beforehand_what_it_does_and_ends_in_a_page(tmp_path: Path) -> None:
    said = run(tmp_path / "out", threads=2)
    before = said.split("1/2")[0]
    assert "Estimate pi" in before
    assert before.count("about 6 s") == 2
    assert "in all about 12 s to go, with 2 threads" in before
    assert "Worst error" in (tmp_path / "out" / "report.html").read_text()
    assert (tmp_path / "out" / "figures" / "estimates.png").stat().st_size > 1000
    assert (tmp_path / "out" / "cache" / "large.txt").exists()


def test_the_card_says_how_to_repeat_the_run(tmp_path: Path) -> None:
    run(tmp_path, seed=3, threads=1)
    card = Records(tmp_path / "records.jsonl").all()[0]
    assert (card["kind"], card["experiment"], card["seed"], card["threads"]) == ("card", "tiny", 3, 1)
    assert card["options"] == {"quick": False, "heads": [], "data": None, "seed": 3}
    assert {"cpu", "cores", "versions"} <= card["machine"].keys()
    assert {"commit", "dirty", "time"} <= card.keys()


def test_every_stage_ends_with_its_seconds(tmp_path: Path) -> None:
    run(tmp_path)
    ends = Records(tmp_path / "records.jsonl").select(kind="stage_end")
    assert [end["stage"] for end in ends] == ["estimate", "judge"]
    assert all(end["seconds"] > 0 for end in ends)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill")
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(whole)
    command = [sys.executable, tiny_experiment.__file__, "experiment", "tiny", "--out", str(killed)]
    process = subprocess.Popen(command, env=os.environ | {"TINY_PAUSE": "0.2"}, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 300
        while not (killed / "records.jsonl").exists() or len(measured(killed)) < 4:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    before = measured(killed)
    assert 4 <= len(before) < tiny_experiment.ESTIMATES
    run(killed, resume=True)
    assert measured(killed) == measured(whole)
    assert measured(killed)[: len(before)] == before
    assert (killed / "report.html").read_bytes() == (whole / "report.html").read_bytes()


def test_resuming_a_finished_run_does_nothing_but_draw(tmp_path: Path) -> None:
    run(tmp_path)
    before = (tmp_path / "records.jsonl").read_bytes()
    said = run(tmp_path, resume=True)
    assert "done in" in said
    assert "1/2" not in said
    assert (tmp_path / "records.jsonl").read_bytes() == before


def test_a_page_is_there_after_every_stage(tmp_path: Path) -> None:
    seen = []

    def look(run: Run) -> None:
        seen.append((run.out / "report.html").read_text())
        raise KeyboardInterrupt

    def stages(options: Options) -> list[Stage]:
        return [tiny_experiment.stages(options)[0], Stage("look", "Look at the page", 0.1, look)]

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Experiment("tiny", "", stages, tiny_experiment.page))
    assert "Not run yet" in seen[0]
    assert not Records(tmp_path / "records.jsonl").done(kind="stage_end", stage="look")


def test_a_page_that_cannot_be_drawn_stops_nothing_until_the_end(tmp_path: Path) -> None:
    def broken(records: Records, folder: Path) -> Page:
        raise ValueError("no ink")

    with pytest.raises(ValueError, match="no ink"):
        run(tmp_path, Experiment("tiny", "", tiny_experiment.stages, broken))
    assert len(Records(tmp_path / "records.jsonl").select(kind="stage_end")) == 2


# What is refused


def test_a_folder_with_a_run_is_not_run_over(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ConfigError, match="already holds a run; go on with it by --resume or choose another --out"):
        run(tmp_path)


@pytest.mark.parametrize("other", [{"seed": 1}, {"quick": True}, {"heads": ("wta",)}, {"data": Path("images")}])
def test_resuming_with_other_options_is_refused_by_name(tmp_path: Path, other: dict[str, Any]) -> None:
    run(tmp_path)
    with pytest.raises(ConfigError, match=f"^{next(iter(other))}=.* was started with {next(iter(other))}="):
        run(tmp_path, resume=True, **other)


def test_the_folder_of_another_experiment_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ConfigError, match="holds a run of 'tiny'"):
        run(tmp_path, Experiment("other", "", tiny_experiment.stages, tiny_experiment.page), resume=True)


# Time


def test_the_measured_pace_corrects_what_is_still_to_come(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    records.write_card("tiny", seed=0, threads=2, options=Options().fixed())
    records.write(kind="stage_end", stage="one", seconds=1200)  # 10 minutes were expected

    def nothing(run: Run) -> None:
        pass

    stages = [Stage("one", "One", 10, nothing), Stage("two", "Two", 20, nothing)]
    said = run(tmp_path, Experiment("tiny", "", lambda _: stages, tiny_experiment.page), resume=True)
    assert "about 40 min" in said
    assert "done in 20 min" in said


def test_sessions_that_were_killed_count_from_start_to_last_record(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    log = records._log
    for second, kind in enumerate(["stage_start", "result", "result", "stage_start", "result"]):
        log.write(stage="one", kind=kind, time=f"2030-01-01T00:00:{10 * second:02d}+0000")
    log.write(stage="two", kind="result", time="2030-01-01T00:05:00+0000")
    assert seconds_of_killed_sessions(records, "one") == 20 + 10
    assert seconds_of_killed_sessions(records, "three") == 0
