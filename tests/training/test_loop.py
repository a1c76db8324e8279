"""Laws of the loop: it learns, it resumes bit for bit, it spends exactly its budget, and its log says what happened."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR, LRScheduler, MultiStepLR, SequentialLR

from manyclass.errors import ConfigError, DivergedError, FileError, InputError, InputTypeError
from manyclass.training import Metrics, read_log, without_overtaken
from manyclass.training import loop as loop_module
from manyclass.training.loop import Trained, TrunkAndHead, evaluate, train

CLASSES, FEATURES = 20, 8
CENTRES = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))


class Found(NamedTuple):
    classes: Tensor


class Meter:
    def report(self) -> dict[str, float]:
        return {"recall": 0.75, "mass": math.nan}


class Head(nn.Module):
    """The least a head can be."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Linear(FEATURES, CLASSES)
        self.meter = Meter()
        self.modes: list[bool] = []

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.rows(input), target)

    def topk(self, input: Tensor, k: int) -> Found:
        self.modes.append(self.training)
        torch.rand(1)  # the random state must be as if there had been no evaluation
        return Found(self.rows(input).topk(k).indices)


def batch(step: int, size: int = 16) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    target = torch.randint(CLASSES, (size,), generator=generator)
    return CENTRES[target] + 0.3 * torch.randn(size, FEATURES, generator=generator), target


TEST = [batch(-1, 64), batch(-2, 64)]


def parts(seed: int = 0) -> tuple[nn.Module, Head]:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.BatchNorm1d(FEATURES), nn.Dropout(0.1)), Head()


def schedules(name: str, optimizer: torch.optim.Optimizer) -> list[LRScheduler]:
    if name == "exponential":
        return [ExponentialLR(optimizer, 0.9)]
    if name == "milestones":
        return [MultiStepLR(optimizer, [4, 9], 0.1)]
    if name == "sequence":
        return [SequentialLR(optimizer, [ExponentialLR(optimizer, 0.9), ExponentialLR(optimizer, 0.5)], [8])]
    return []


def run(seed: int = 0, schedule: str = "none", batches: Any = batch, **settings: Any) -> tuple[Trained, TrunkAndHead]:
    model = TrunkAndHead(*parts(seed))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    settings = {"steps": 12, "progress": False, "schedule": schedules(schedule, optimizer)} | settings
    return train(model, batches, optimizer, **settings), model


def same_weights(left: nn.Module, right: nn.Module) -> bool:
    return all(a.equal(b) for a, b in zip(left.state_dict().values(), right.state_dict().values(), strict=True))


def test_it_learns() -> None:
    done, _ = run(steps=150, evaluate_on=TEST, evaluate_every=75)
    assert [entry["step"] for entry in done.evaluations] == [75, 150]
    assert done.evaluations[-1]["accuracy"] > 0.8
    assert done.step == 150
    assert math.isfinite(done.loss)


def test_trunk_and_head_are_one_model() -> None:
    _, whole = run()
    trunk, head = parts()
    optimizer = torch.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
    train((trunk, head), batch, optimizer, steps=12, progress=False)
    assert same_weights(whole, TrunkAndHead(trunk, head))


def interrupted_at(last: int) -> Any:
    def batches(step: int) -> tuple[Tensor, Tensor]:
        if step == last:
            raise KeyboardInterrupt
        return batch(step)

    return batches


@pytest.mark.parametrize("schedule", ["none", "exponential", "milestones", "sequence"])
def test_a_resumed_run_is_bit_identical(tmp_path: Path, schedule: str) -> None:
    whole_settings = {"steps": 20, "evaluate_on": TEST, "evaluate_every": 3, "log_every": 4, "schedule": schedule}
    whole, whole_model = run(checkpoint=tmp_path / "whole", log=tmp_path / "whole.jsonl", **whole_settings)

    settings = whole_settings | {"checkpoint": tmp_path / "cut", "checkpoint_every": 5, "log": tmp_path / "cut.jsonl"}
    for last, seed in ((7, 0), (13, 1)):
        with pytest.raises(KeyboardInterrupt):
            run(seed=seed, batches=interrupted_at(last), **settings)
    done, model = run(seed=2, **settings)
    assert same_weights(model, whole_model)
    assert (done.step, done.loss) == (whole.step, whole.loss)

    def timeless(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        clock = {"seconds", "examples_per_second"}
        return [
            {key: entry[key] for key in entry if key not in clock} for entry in entries if entry.get("kind") != "card"
        ]

    assert timeless(done.evaluations) == timeless(whole.evaluations)
    records = read_log(tmp_path / "cut.jsonl")
    assert [record["resumed_from"] for record in records if record["kind"] == "card"] == [None, 5, 10]
    assert timeless(without_overtaken(records)) == timeless(read_log(tmp_path / "whole.jsonl"))


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    first, model = run(checkpoint=tmp_path / "run", evaluate_on=TEST)
    again, loaded = run(seed=1, checkpoint=tmp_path / "run", batches=None, evaluate_on=TEST)
    assert again == first
    assert same_weights(model, loaded)
    fresh, other = run(seed=1, checkpoint=tmp_path / "run", resume=False)
    assert fresh.step == 12
    assert not same_weights(other, model)


def test_evaluation_leaves_no_trace() -> None:
    _, without = run()
    _, evaluated = run(evaluate_on=TEST, evaluate_every=2)
    assert same_weights(without, evaluated)
    assert evaluated.training
    assert evaluated.head.modes == [False] * 2 * 6


def test_evaluation_restores_every_mode_even_after_an_error() -> None:
    model = TrunkAndHead(*parts()).train()
    model.trunk[1].eval()
    with pytest.raises(RuntimeError):
        evaluate(model, [(torch.zeros(2, FEATURES + 1), torch.zeros(2).long())])
    assert [module.training for module in model.trunk] == [True, False, True]
    assert model.training


def test_evaluation_takes_several_positives_and_any_leading_shape() -> None:
    model = TrunkAndHead(nn.Identity(), parts()[1])
    input, target = batch(0, 12)
    flat = evaluate(model, [(input, target)])
    assert evaluate(model, [(input.reshape(3, 4, -1), target.reshape(3, 4))]) == flat
    padded = torch.stack([target, torch.full_like(target, -1)], 1)
    assert evaluate(model, [(input, padded)]) == flat
    assert evaluate(model, [(input.reshape(3, 4, -1), padded.reshape(3, 4, 2))]) == flat


# The budget in seconds, on a clock that the test moves


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loop_module, "time", clock)
    return clock


def test_evaluation_costs_none_of_the_seconds(clock: Clock, tmp_path: Path) -> None:
    def slow_batch(step: int) -> tuple[Tensor, Tensor]:
        clock.now += 0.25
        return batch(step)

    def slow_test() -> Iterator[tuple[Tensor, Tensor]]:
        clock.now += 1000
        yield from TEST

    settings = {"steps": None, "batches": slow_batch, "evaluate_on": slow_test, "evaluate_every": 1.0}
    done, model = run(seconds=5, **settings)
    assert (done.step, done.seconds) == (20, 5.0)
    assert [entry["seconds"] for entry in done.evaluations] == [1.0, 2.0, 3.0, 4.0, 5.0]

    resumable = settings | {"checkpoint": tmp_path / "run", "checkpoint_every": 1.5}
    run(seconds=2, **resumable)
    resumed, resumed_model = run(seconds=5, seed=1, **resumable)
    assert (resumed.step, resumed.seconds) == (20, 5.0)
    assert same_weights(model, resumed_model)


def test_a_step_longer_than_the_period_is_evaluated_once(clock: Clock) -> None:
    def slow_batch(step: int) -> tuple[Tensor, Tensor]:
        clock.now += 2.5
        return batch(step)

    done, _ = run(steps=None, seconds=10, batches=slow_batch, evaluate_on=TEST, evaluate_every=1)
    assert [entry["seconds"] for entry in done.evaluations] == [2.5, 5.0, 7.5, 10.0]


# The log


def test_the_log_says_what_happened(tmp_path: Path) -> None:
    losses: list[float] = []
    model = TrunkAndHead(*parts())
    model.register_forward_hook(lambda module, inputs, loss: losses.append(loss.item()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, batch, optimizer, steps=10, schedule=ExponentialLR(optimizer, 0.5), log=tmp_path / "log.jsonl",
          log_every=4, seed=3, evaluate_on=TEST, metrics=Metrics([3]), progress=False)  # fmt: skip
    card, *records = read_log(tmp_path / "log.jsonl")
    assert (card["seed"], card["steps"], card["resumed_from"]) == (3, 10, None)
    lines = [record for record in records if record["kind"] == "step"]
    assert [line["step"] for line in lines] == [4, 8, 10]
    assert lines[1]["loss"] == pytest.approx(sum(losses[4:8]) / 4)
    assert lines[2]["loss"] == pytest.approx(sum(losses[8:10]) / 2)
    assert lines[0]["learning_rate"] == pytest.approx(0.1 * 0.5**4)
    assert all(line["examples_per_second"] > 0 for line in lines)
    assert lines[0]["meter"] == {"recall": 0.75, "mass": None}
    assert set(records[-1]) == {"kind", "step", "seconds", "accuracy", "precision@3", "recall@3", "ndcg@3", "map@3"}


def test_several_meters_are_told_apart(tmp_path: Path) -> None:
    model = TrunkAndHead(*parts())
    model.other = Head()  # type: ignore[assignment]
    train(model, batch, torch.optim.SGD(model.head.parameters(), 0.1), steps=1, log=tmp_path / "log", progress=False)
    readings = read_log(tmp_path / "log")[1]["meter"]
    assert sorted(readings) == ["head.mass", "head.recall", "other.mass", "other.recall"]


def test_the_progress_bar_shows_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    run(progress=True, evaluate_on=TEST, evaluate_every=6)
    shown = capsys.readouterr().out
    assert "12/12 steps" in shown
    assert "accuracy" in shown


def test_without_rich_there_is_no_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    assert run(progress=True)[0].step == 12
    assert not capsys.readouterr().out


# What is refused


def test_a_loss_that_is_not_finite_moves_nothing() -> None:
    def broken(step: int) -> tuple[Tensor, Tensor]:
        input, target = batch(step)
        return (input * math.nan if step == 5 else input), target

    model = TrunkAndHead(nn.Identity(), parts()[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(DivergedError, match="step 5 is nan"):
        train(model, broken, optimizer, steps=10, progress=False)
    whole = TrunkAndHead(nn.Identity(), parts()[1])
    train(whole, batch, torch.optim.SGD(whole.parameters(), lr=0.1), steps=5, progress=False)
    assert same_weights(model, whole)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"steps": None}, ConfigError, "give one of them"),
        ({"seconds": 3}, ConfigError, "give one of them"),
        ({"steps": 0}, ConfigError, "steps=0"),
        ({"steps": "3"}, ConfigError, "steps='3'"),
        ({"steps": None, "seconds": math.nan}, ConfigError, "seconds=nan"),
        ({"log_every": 0}, ConfigError, "log_every=0"),
        ({"evaluate_every": 3}, ConfigError, "without evaluate_on"),
        ({"evaluate_every": -1, "evaluate_on": TEST}, ConfigError, "evaluate_every=-1"),
        ({"checkpoint_every": 3}, ConfigError, "without checkpoint"),
        ({"evaluate_on": iter(TEST)}, InputTypeError, "used up"),
        ({"evaluate_on": 3}, InputTypeError, "evaluate_on is a int"),
    ],
)
def test_bad_settings_are_refused_before_the_first_step(settings: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        run(batches=None, **settings)


def test_a_checkpoint_of_another_run_is_refused_and_the_model_unchanged(tmp_path: Path) -> None:
    run(checkpoint=tmp_path / "run")
    model = TrunkAndHead(*parts(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(FileError, match="holds 0 schedules, 1 are given"):
        train(model, batch, optimizer, steps=3, checkpoint=tmp_path / "run", schedule=ExponentialLR(optimizer, 0.9))
    assert same_weights(model, TrunkAndHead(*parts(1)))


def test_metrics_and_log_do_not_load_torch() -> None:
    program = "import sys, manyclass.training; print('torch' in sys.modules, 'rich' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]


def test_logs_are_json_for_any_reader(tmp_path: Path) -> None:
    run(log=tmp_path / "log", log_every=1)

    def refuse(word: str) -> None:
        raise ValueError(word)

    for line in (tmp_path / "log").read_text().splitlines():
        json.loads(line, parse_constant=refuse)


# Batches from a DataLoader


def loader() -> torch.utils.data.DataLoader[Any]:
    inputs, targets = batch(0, 64)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=16)


def test_a_data_loader_is_gone_through_again_and_again_and_resumed_where_it_was(tmp_path: Path) -> None:
    def run(steps: int, checkpoint: Path | None) -> TrunkAndHead:
        torch.manual_seed(0)
        model = TrunkAndHead(nn.Linear(FEATURES, FEATURES), Head())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, loader(), optimizer, steps=steps, checkpoint=checkpoint, progress=False)
        return model

    whole = run(10, None)
    run(6, tmp_path / "run.safetensors")
    resumed = run(10, tmp_path / "run.safetensors")
    for ours, theirs in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("batches", [[], iter([batch(0)])], ids=["empty", "once"])
def test_batches_that_end_are_refused(batches: Any) -> None:
    model = TrunkAndHead(nn.Linear(FEATURES, FEATURES), Head())
    with pytest.raises(InputError, match="batches is empty, or can be gone through only once"):
        train(model, batches, torch.optim.SGD(model.parameters(), lr=0.1), steps=3, progress=False)
