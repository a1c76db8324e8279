"""Laws of running, shown by the demo: stages run once, a kill costs nothing that was recorded, spoiling is refused."""

import io
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_demo
from rich.console import Console

from experiments.demo import stages as demo_stages
from experiments.frame.page import Page
from experiments.frame.records import Records
from experiments.frame.stages import Experiment, Options, Run, Stage, run_experiment
from manyclass.errors import ConfigError

ONCE = replace(tiny_demo.EXPERIMENT, replaces=False)  # as an experiment of hours: a run is not replaced by the next


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the demo small."""
    monkeypatch.setattr(demo_stages, "FULL", tiny_demo.PLAN)
    monkeypatch.setattr(demo_stages, "QUICK", tiny_demo.PLAN)


def run(out: Path, experiment: Experiment = ONCE, resume: bool = False, **options: Any) -> str:
    """Run and return what was said."""
    said = io.StringIO()
    chosen = Options(**{"heads": tiny_demo.HEADS, "threads": 1, **options})
    run_experiment(experiment, out, chosen, resume, Console(file=said, width=120))
    return said.getvalue()


def results(out: Path) -> list[dict[str, Any]]:
    """Return what the stages recorded."""
    return Records(out / "records.jsonl").select(kind="result")


def with_stages(*stages: Stage) -> Experiment:
    """Return an experiment of these stages."""
    return replace(ONCE, stages=lambda _: list(stages))


def nothing(run: Run) -> None:
    """Do no work."""


def test_a_run_says_beforehand_what_it_does_and_ends_in_a_page_and_a_table(tmp_path: Path) -> None:
    said = run(tmp_path / "out", threads=2)
    before, after = said.split("1/2")[0], said.split("2/2")[1]
    assert "train with hierarchical softmax" in before
    assert before.count("about 4 s") == 2
    assert "in all about 8 s to go, with 2 threads" in before
    assert "output layer" in after
    assert "full softmax" in after
    assert "full softmax" in (tmp_path / "out" / "report.html").read_text()
    assert (tmp_path / "out" / "figures" / "demo.png").stat().st_size > 1000


def test_the_card_says_how_to_repeat_the_run(tmp_path: Path) -> None:
    run(tmp_path, seed=3)
    card = Records(tmp_path / "records.jsonl").all()[0]
    assert (card["kind"], card["experiment"], card["seed"], card["threads"]) == ("card", "demo", 3, 1)
    told = {
        "quick": False,
        "heads": ["hierarchical", "full"],
        "data": None,
        "corpus": None,
        "phrases": None,
        "min_count": None,
        "seed": 3,
    }
    assert card["options"] == told
    assert {"cpu", "instruction_set", "cache_kb", "cores", "versions"} <= card["machine"].keys()
    assert {"commit", "dirty", "time"} <= card.keys()


def test_every_stage_ends_with_its_seconds(tmp_path: Path) -> None:
    run(tmp_path)
    ends = Records(tmp_path / "records.jsonl").select(kind="stage_end")
    assert [end["stage"] for end in ends] == ["hierarchical", "full"]
    assert all(end["seconds"] > 0 for end in ends)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill")
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    process = tiny_demo.start(tmp_path)
    try:
        deadline = time.monotonic() + 300
        while not Records(tmp_path / "records.jsonl").done(kind="stage_start", stage="full"):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    before = results(tmp_path)
    assert [result["head"] for result in before] == ["hierarchical"]
    said = run(tmp_path, resume=True)
    assert "1/2" not in said
    assert [result["head"] for result in results(tmp_path)] == ["hierarchical", "full"]
    assert results(tmp_path)[0] == before[0]


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

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, with_stages(Stage("one", "One", 0.1, nothing), Stage("look", "Look at the page", 0.1, look)))
    assert "What was run" in seen[0]
    assert not Records(tmp_path / "records.jsonl").done(kind="stage_end", stage="look")


def test_a_page_that_cannot_be_drawn_stops_nothing_until_the_end(tmp_path: Path) -> None:
    def broken(records: Records, folder: Path) -> Page:
        raise ValueError("no ink")

    with pytest.raises(ValueError, match="no ink"):
        run(tmp_path, replace(ONCE, page=broken))
    assert len(Records(tmp_path / "records.jsonl").select(kind="stage_end")) == 2


def test_an_experiment_of_minutes_starts_over_where_it_was_run_before(tmp_path: Path) -> None:
    for _ in range(2):
        run(tmp_path, tiny_demo.EXPERIMENT)
    assert [result["head"] for result in results(tmp_path)] == list(tiny_demo.HEADS)
    run(tmp_path, tiny_demo.EXPERIMENT, resume=True)
    assert len(Records(tmp_path / "records.jsonl").select(kind="card")) == 1


# Stages one by one


def test_only_the_stages_asked_for_are_run(tmp_path: Path) -> None:
    run(tmp_path, stages=("full",))
    assert [result["head"] for result in results(tmp_path)] == ["full"]
    run(tmp_path, stages=("hierarchical",), resume=True)
    assert {result["head"] for result in results(tmp_path)} == {"full", "hierarchical"}


def test_an_unknown_stage_is_refused_by_name_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--stage ful: there is no such stage; give one of hierarchical, full"):
        run(tmp_path, stages=("ful",))
    assert not list(tmp_path.iterdir())


def test_a_stage_waits_for_those_it_stands_on(tmp_path: Path) -> None:
    both = with_stages(Stage("one", "One", 0.1, nothing), Stage("two", "Two", 0.1, nothing, ("one",)))
    with pytest.raises(ConfigError, match="--stage two uses what stage one leaves, which is not done; add --stage one"):
        run(tmp_path, both, stages=("two",))
    run(tmp_path, both, stages=("one",))
    run(tmp_path, both, stages=("two",), resume=True)
    assert Records(tmp_path / "records.jsonl").done(kind="stage_end", stage="two")


# What is refused


def test_a_folder_with_a_run_is_not_run_over(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ConfigError, match="already holds a run; go on with it by --resume or choose another --out"):
        run(tmp_path)


@pytest.mark.parametrize("other", [{"seed": 1}, {"quick": True}, {"heads": ("full",)}, {"data": Path("images")}])
def test_resuming_with_other_options_is_refused_by_name(tmp_path: Path, other: dict[str, Any]) -> None:
    run(tmp_path)
    with pytest.raises(ConfigError, match=f"^{next(iter(other))}=.* was started with {next(iter(other))}="):
        run(tmp_path, resume=True, **other)


@pytest.mark.parametrize("experiment", [ONCE, tiny_demo.EXPERIMENT], ids=["of hours", "of minutes"])
def test_the_folder_of_another_experiment_is_refused(tmp_path: Path, experiment: Experiment) -> None:
    run(tmp_path)
    before = (tmp_path / "records.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="holds a run of 'demo'"):
        run(tmp_path, replace(experiment, name="other"))
    assert (tmp_path / "records.jsonl").read_bytes() == before


def test_an_output_layer_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--head wtf: there is no such output layer; give one of candidate, wta"):
        run(tmp_path, heads=("wtf",))


# Time


def test_the_measured_pace_corrects_what_is_still_to_come(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    records.write_card("demo", seed=0, threads=2, options=Options(heads=tiny_demo.HEADS).fixed())
    records.write(kind="stage_end", stage="one", seconds=1200)  # 10 minutes were expected
    said = run(tmp_path, with_stages(Stage("one", "One", 10, nothing), Stage("two", "Two", 20, nothing)), resume=True)
    assert "about 40 min" in said
    assert "done in 20 min" in said


def test_sessions_that_were_killed_count_from_start_to_last_record(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    log = records._log
    for second, kind in enumerate(["stage_start", "result", "result", "stage_start", "result"]):
        log.write(stage="one", kind=kind, time=f"2030-01-01T00:00:{10 * second:02d}+0000")
    log.write(stage="two", kind="result", time="2030-01-01T00:05:00+0000")
    assert records.seconds_of_killed_sessions("one") == 20 + 10
    assert records.seconds_of_killed_sessions("three") == 0


def test_a_stage_that_is_run_again_takes_back_what_it_recorded(tmp_path: Path) -> None:
    run(tmp_path)
    before = {result["head"]: result["time"] for result in results(tmp_path)}
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    time.sleep(1.1)  # times are told in seconds
    run(tmp_path, resume=True, stages=("full",), again=True)
    after = {result["head"]: result["time"] for result in results(tmp_path)}
    assert len(results(tmp_path)) == 2
    assert after["hierarchical"] == before["hierarchical"]
    assert after["full"] != before["full"]
    assert (tmp_path / "records.jsonl").read_text().splitlines()[: len(lines)] == lines
    with pytest.raises(ConfigError, match="add --stage"):
        run(tmp_path, resume=True, again=True)


def test_who_runs_a_stage_again_is_told_what_used_it(tmp_path: Path) -> None:
    stages = [
        Stage("first", "", 1, nothing),
        Stage("second", "", 1, nothing, ("first",)),
        Stage("third", "", 1, nothing, ("second",)),
        Stage("other", "", 1, nothing),
    ]
    said = run(tmp_path, with_stages(*stages))
    assert "run anew" not in said
    said = run(tmp_path, with_stages(*stages), resume=True, stages=("first",), again=True)
    assert "what these recorded used what is run anew: second, third; run them --again, too" in said
    said = run(tmp_path, with_stages(*stages), resume=True, stages=("first", "second"), again=True)
    assert "run anew: third;" in said
    assert "run anew" not in run(tmp_path, with_stages(*stages), resume=True, stages=("third", "other"), again=True)
