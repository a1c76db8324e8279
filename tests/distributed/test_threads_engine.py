"""Jobs on threads: they learn, go on after an interruption, keep a log, and refuse what cannot work in one sentence."""

import dataclasses
import json
import re
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from manyclass import ConfigError, DivergedError, FileError, InputError, InputTypeError
from manyclass.cli import main
from manyclass.distributed import HeadSettings, Job, ServerRule, Staleness
from manyclass.distributed.engines.monitor import Monitor
from manyclass.distributed.engines.threads_engine import ThreadsEngine
from manyclass.distributed.engines.watching import line
from manyclass.distributed.job import JobText
from manyclass.distributed.quick_job import Pictures
from manyclass.distributed.run_options import RunOptions
from manyclass.distributed.steps.transport import StepOutcome
from manyclass.distributed.workers.torch_replica import TorchReplica
from manyclass.distributed.workers.worker import StepReport
from manyclass.training.run_log import read_log

RULE = ServerRule(lr=0.1, momentum=0.9)  # low enough for steps that overtake each other on a busy machine


def small_job(**changes: object) -> Job:
    pictures = Pictures(300, 64)

    def trunk() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.BatchNorm1d(32))

    job = Job(
        trunk=trunk,
        batches=lambda number: pictures.batch(number, 64),
        head=HeadSettings(classes=300, features=32, tail=64, rule=RULE),
        trunk_rule=RULE,
        steps=120,
        test=lambda: [pictures.batch(10**9, 500)],
        learned=0.4,
    )
    return dataclasses.replace(job, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 1},
        {"workers": 3, "pipeline": 2},
        {"workers": 2, "transport": "rows", "staleness": Staleness(lead=1)},
        {"workers": 2, "trunk_every": 3, "staleness": Staleness(free=4)},
    ],
    ids=["one", "pipelined", "rows and bounded", "scaled, and a trunk now and then"],
)
def test_it_learns(options: dict[str, object]) -> None:
    looks = []
    result = ThreadsEngine(small_job(), RunOptions(**options), looks.append).run()  # type: ignore[arg-type]
    assert result.learned, result.curve
    summary = result.summary
    assert summary.steps == 120
    assert summary.examples == 120 * 64
    assert sum(summary.staleness.values()) == 240  # every step pushes to two shards
    assert summary.bytes_per_step > 10_000
    assert [report["version"] for report in summary.shards] == [120, 120]
    assert len(summary.workers) == options["workers"]
    assert looks


def test_less_than_the_job_asks_for_is_a_failure() -> None:
    assert not ThreadsEngine(small_job(learned=0.99, steps=5), RunOptions()).run().learned


def test_a_run_goes_on_where_it_was_with_other_shards(tmp_path: Path) -> None:
    first = ThreadsEngine(small_job(steps=60), RunOptions(folder=tmp_path)).run()
    again = ThreadsEngine(small_job(), RunOptions(folder=tmp_path, shards=3, evaluate_every=20)).run()
    assert again.summary.steps == 60  # the other half
    assert again.accuracy is not None
    assert first.accuracy is not None
    assert again.accuracy > first.accuracy
    finished = ThreadsEngine(small_job(), RunOptions(folder=tmp_path, shards=3)).run()
    assert finished.summary.steps == 0
    assert finished.accuracy == again.accuracy
    assert json.loads((tmp_path / "job.json").read_text())["shards"] == 3


def test_a_folder_of_another_job_is_refused_and_left_alone(tmp_path: Path) -> None:
    ThreadsEngine(small_job(steps=4), RunOptions(folder=tmp_path)).run()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = small_job(head=HeadSettings(classes=301, features=32, rule=RULE))
    with pytest.raises(FileError, match="is of a job with classes=300, this one has classes=301"):
        ThreadsEngine(other, RunOptions(folder=tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_steps_that_are_slower_than_the_lease_come_to_an_end() -> None:
    pictures = Pictures(300, 64)

    def slow(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.05)
        return pictures.batch(number, 8)

    job = small_job(batches=slow, steps=12, learned=None, test=None)
    result = ThreadsEngine(job, RunOptions(lease=0.02)).run()
    assert [report["version"] for report in result.summary.shards] == [12, 12]  # each batch once


def test_the_last_checkpoint_does_not_wait_for_the_evaluation(tmp_path: Path) -> None:
    calls: list[int] = []

    def test() -> list[tuple[torch.Tensor, torch.Tensor]]:
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("the test data is gone")
        return [Pictures(300, 64).batch(0, 8)]

    with pytest.raises(ValueError, match="the test data is gone"):
        ThreadsEngine(small_job(steps=4, test=test), RunOptions(folder=tmp_path)).run()
    assert json.loads((tmp_path / "job.json").read_text())["coordinator"]["done_through"] == 4


def broken(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    raise KeyError("no such file")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batches": broken}, "batches(0) of the job raised KeyError: 'no such file'"),
        ({"batches": lambda number: torch.ones(4, 64)}, "batches(0) is a Tensor; return a pair (input, targets)"),
        ({"batches": lambda number: (torch.ones(2, 64), [1, 2])}, "are a list; give a tensor of class ids"),
        ({"batches": lambda number: (torch.ones(2, 64), torch.ones(2))}, "are torch.float32; give class ids"),
        ({"batches": lambda number: (torch.ones(2, 64), torch.tensor([0, 300]))}, "a target is class 300"),
        ({"batches": lambda number: (torch.ones(2, 63), torch.ones(2).long())}, "the trunk on batches(0) of the job"),
        ({"trunk": lambda: nn.Linear(64, 31)}, "makes 31 features per example, HeadSettings has features=32"),
        ({"trunk": lambda: None}, "trunk() returned a NoneType; return a torch module"),
        ({"test": lambda: []}, "test() has no batches"),
        ({"test": lambda: [3]}, "the first batch of test() is a int; return a pair"),
        ({"test": [3]}, "test is a list, which cannot be called; give a function"),
    ],
)
def test_a_job_that_does_not_fit_is_refused_before_anything_starts(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises((InputError, InputTypeError), match=re.escape(said)) as refused:
        ThreadsEngine(small_job(**changes), RunOptions(folder=tmp_path / "run"))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_looking_at_a_job_leaves_its_weights_as_they_would_be() -> None:
    job = small_job(trunk=lambda: nn.Sequential(nn.Linear(64, 32), nn.Dropout(), nn.BatchNorm1d(32)))
    torch.manual_seed(3)
    weights = job.trunk()[0].weight
    torch.manual_seed(3)
    engine = ThreadsEngine(job, RunOptions())
    assert torch.equal(engine.model[0].weight, weights)
    assert (engine.trunk.buffers["2.running_mean"] == 0).all()


def test_speed_counts_from_when_all_workers_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("manyclass.distributed.engines.monitor.time.monotonic", lambda: now[0])
    monitor, step = Monitor(2), StepReport(0, 100, StepOutcome(1.0, None))
    monitor.started(0)
    now[0] = 10.0
    monitor.note(0, step)
    assert monitor.summary().examples_per_second == 10
    now[0] = 20.0
    monitor.started(1)
    assert monitor.summary().examples_per_second == 10
    for now[0] in (21.0, 22.0):
        monitor.note(0, step)
        monitor.note(1, step)
    summary = monitor.summary()
    assert (summary.examples_per_second, summary.seconds, summary.examples) == (200, 22, 500)


def test_pushes_that_a_shard_forgot_are_shown() -> None:
    monitor = Monitor()
    monitor.note(0, StepReport(0, 100, StepOutcome(1.0, None)))
    assert "forgotten" not in line(monitor.summary(), 4)
    monitor.note(0, StepReport(1, 100, StepOutcome(1.0, None, forgotten=2)))
    assert ", 2 pushes that their shard had forgotten" in line(monitor.summary(), 4)


def test_local_is_a_cluster_that_is_started_here() -> None:
    assert RunOptions(address="local").address is None


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    job = small_job(
        trunk=lambda: nn.Linear(64, 32), batches=lambda _: (torch.full((4, 64), torch.inf), torch.arange(4))
    )
    with pytest.raises(DivergedError, match="lower the learning rate"):
        ThreadsEngine(job, RunOptions()).run()


def test_the_gradient_of_a_step_is_that_of_its_own_weights() -> None:
    replica = TorchReplica(
        nn.Linear(4, 3, bias=False), lambda number: (torch.full((2, 4), float(number)), torch.ones(2))
    )
    replica.load({"weight": torch.ones(3, 4).numpy()}, {})
    first, second = replica.forward(1), replica.forward(2)  # both under way
    replica.load({"weight": torch.zeros(3, 4).numpy()}, {})
    gradient = torch.ones(2, 3).numpy()
    assert (replica.backward(first, gradient)["weight"] == 2).all()
    assert (replica.backward(second, gradient)["weight"] == 4).all()
    assert (replica.forward(1).x == 0).all()


# The command


GOOD = """
from manyclass.distributed.quick_job import job as demo
import dataclasses
def job(quick=False):
    return dataclasses.replace(demo(True), steps=4, learned=LEARNED)
"""


def test_the_command_trains_logs_and_says_how_it_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.py"
    path.write_text(GOOD.replace("LEARNED", "0.0"))
    arguments = ["train", str(path), "--workers", "2", "--folder", str(tmp_path / "run"), "--durability", "log"]
    assert main(arguments) == 0
    assert "1,024 examples" in capsys.readouterr().out
    card, *looks, evaluation = read_log(tmp_path / "run" / "run.jsonl")
    assert card["workers"] == 2
    assert looks[-1]["step"] == 4
    assert {"staleness", "bytes_per_step", "workers", "shards"} <= set(looks[-1])
    assert evaluation["kind"] == "evaluation"
    path.write_text(GOOD.replace("LEARNED", "0.9"))
    assert main(["train", str(path), "--workers", "1"]) == 1
    assert "less than the job asks for" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = (", "line 1: SyntaxError"),
        ("import no_such_module", "line 1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("y = 1", "has no function job"),
        ("def job(quick=False):\n    return 3", "returned a int; return a manyclass Job"),
        ("def job(quick=False):\n    return 1 / 0", "line 2: ZeroDivisionError"),
    ],
)
def test_a_bad_job_file_is_one_sentence(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.py"
    path.write_text(text)
    assert main(["train", str(path), "--folder", str(tmp_path / "run")]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no job was given"),
        (["nowhere.py"], "cannot be read"),
        (["--quick", "--shards", "0"], "shards=0"),
        (["--quick", "--staleness", "late"], "staleness='late'"),
        (["--quick", "--address", "somewhere:1"], "is for --engine ray"),
        (["--quick", "--pipeline", "5"], "pipeline=5, but shards keep 4 steps of a worker; give at most 4"),
        (["--quick", "--lease", "0"], "lease=0.0 is not a positive number of seconds"),
        (["--quick", "--deadline", "-1"], "deadline=-1.0 is not a positive number of seconds"),
        (["--quick", "--shard-threads", "0"], "shard_threads=0"),
        (["--quick", "--folder", __file__], "is a file; give a directory"),
        (["--quick", "--folder", f"{__file__}/run"], "Not a directory"),
        (["--quick", "--durability", "log"], "durability='log' without a folder"),
        (["--quick", "--engine", "ray", "--address", "127.0.0.1:1"], "needs --folder"),
        (["--quick", "--engine", "ray", "--address", "127.0.0.1:1", "--folder", "run"], "cannot be reached"),
        (["--quick", "--engine", "ray", "--address", "nonsense", "--folder", "run"], "is not host:port"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_another_version_of_ray_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from manyclass.distributed.engines import ray_session

    monkeypatch.setattr(ray_session, "version_of_ray", lambda: "2.9.3")
    with pytest.raises(ConfigError, match=r"ray 2\.9\.3 is installed; this engine runs with 2\.52 or later, below 3"):
        ray_session.check_version()


def test_a_shard_needs_no_torch() -> None:
    import subprocess

    program = "import sys, manyclass.distributed.engines.ray_servers; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_a_job_text_runs_anywhere() -> None:
    assert JobText("here", GOOD.replace("LEARNED", "None")).job().steps == 4


def test_a_job_text_may_have_dataclasses_with_late_annotations() -> None:
    text = (
        "from __future__ import annotations\n"
        + GOOD.replace("LEARNED", "None")
        + """
@dataclasses.dataclass
class Sizes:
    steps: int = 4
"""
    )
    assert JobText("here", text).job().steps == 4
    assert "manyclass_job" not in sys.modules
