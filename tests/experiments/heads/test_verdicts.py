"""What is concluded from runs: made-up records that hold, that fail, and that are lacking."""

from pathlib import Path

import pytest

from experiments.frame.records import Records
from experiments.heads.page import make_page
from experiments.heads.task_parts import spans
from experiments.heads.verdicts import (
    ahead_or_equal,
    behind_at,
    runs_by_head,
    share_of_full,
    time_to_near_best,
    verdicts,
)

TASKS = ["demo", "families", "wordnet", "han", "places", "articles"]
PER_STEP = ["demo", "places"]


def write_run(records: Records, task: str, head: str, seed: int, scores: list[float]) -> None:
    curve = [(100 * place, 2.0 * place, score) for place, score in enumerate(scores, start=1)]
    records.write(
        stage=f"seconds_{task}", kind="result", head=head, seed=seed, rate=0.1, classes=1000, batch=8, tests=10,
        budget=2.0 * len(scores), curve=curve, score=scores[-1], metric="accuracy", steps=1000, seconds=20.0,
        diverged=False, at_the_end={"all": {"accuracy": scores[-1]}},
    )  # fmt: skip


def rising(end: float, quick: float = 1.0) -> list[float]:
    """Return ten scores that rise to an end, sooner the quicker."""
    return [end * min(1.0, quick * place / 10) for place in range(1, 11)]


def write_task(records: Records, task: str, ours: list[float], other: list[float]) -> None:
    for seed in (0, 1, 2):
        write_run(records, task, "candidate", seed, [score + 0.001 * seed for score in ours])
        write_run(records, task, "sampled", seed, [score + 0.001 * seed for score in other])


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "records.jsonl")


def runs(records: Records, ours: list[list[float]], other: list[list[float]]):  # type: ignore[no-untyped-def]
    for head, curves in (("candidate", ours), ("sampled", other)):
        for seed, scores in enumerate(curves):
            write_run(records, "demo", head, seed, scores)
    return runs_by_head(records, "seconds_demo")


def test_ahead_at_every_tenth(records: Records) -> None:
    found = runs(records, [[0.2, 0.4]] * 3, [[0.1, 0.4]] * 3)
    assert behind_at(found["candidate"], found["sampled"]) == []
    assert ahead_or_equal(found) is True


def test_behind_at_one_tenth_with_every_seed_fails(records: Records) -> None:
    found = runs(records, [[0.2, 0.4]] * 3, [[0.21, 0.3]] * 3)
    assert behind_at(found["candidate"], found["sampled"]) == [1]
    assert ahead_or_equal(found) is False


def test_differences_on_both_sides_of_zero_are_equal_within_the_spread(records: Records) -> None:
    found = runs(records, [[0.20], [0.30], [0.40]], [[0.22], [0.29], [0.44]])  # behind in the mean
    assert ahead_or_equal(found) is True
    # The spread of the data does not hide what every seed says.
    assert behind_at(found["sampled"], found["candidate"]) == []


def test_a_wide_spread_of_the_data_excuses_nothing(records: Records) -> None:
    found = runs(records, [[0.20], [0.30], [0.40]], [[0.21], [0.31], [0.41]])
    assert ahead_or_equal(found) is False


def test_nothing_is_concluded_without_ours_or_without_others(records: Records) -> None:
    write_run(records, "demo", "candidate", 0, rising(0.5))
    found = runs_by_head(records, "seconds_demo")
    assert ahead_or_equal(found) is None
    assert time_to_near_best(found) is None
    assert share_of_full(found) is None


def test_time_to_near_the_best(records: Records) -> None:
    write_task(records, "demo", rising(0.5, quick=2), rising(0.4, quick=1))
    write_run(records, "demo", "full", 0, rising(0.5, quick=1))
    soon = time_to_near_best(runs_by_head(records, "seconds_demo"))
    assert soon is not None
    assert soon.other_head == "full"
    assert soon.ours == pytest.approx(9.5, abs=0.1)  # 95% of 0.5 on the way to 0.5 at 10 s
    assert soon.other == pytest.approx(19, abs=0.2)
    assert soon.ratio == pytest.approx(0.5, abs=0.01)
    assert soon.in_time


def test_a_level_that_no_other_reaches_counts_against_the_whole_time(records: Records) -> None:
    write_task(records, "demo", rising(0.5, quick=1), rising(0.2))
    soon = time_to_near_best(runs_by_head(records, "seconds_demo"))
    assert soon is not None
    assert soon.other is None
    assert soon.ratio == pytest.approx(0.95, abs=0.01)
    assert not soon.in_time


def test_a_level_that_ours_does_not_reach_fails(records: Records) -> None:
    write_task(records, "demo", rising(0.2), rising(0.5))
    soon = time_to_near_best(runs_by_head(records, "seconds_demo"))
    assert soon is not None
    assert soon.ratio is None
    assert not soon.in_time


def write_per_step(records: Records, task: str, ours: float, full: float) -> None:
    for head, end in (("candidate", ours), ("full", full)):
        for seed in (0, 1, 2):
            records.write(stage=f"per_step_{task}", kind="result", head=head, seed=seed, budget_steps=400, score=end,
                          seconds=10.0, classes=1000, metric="accuracy", curve=[(400, 10.0, end)])  # fmt: skip


def test_all_claims_hold_and_each_can_fail(records: Records, tmp_path: Path) -> None:
    assert [verdict.holds for verdict in verdicts(records, TASKS, PER_STEP)] == [None] * 3
    for task in TASKS[:4]:
        write_task(records, task, rising(0.5, quick=2), rising(0.45))
    for task in PER_STEP:
        write_per_step(records, task, 0.496, 0.5)
    ahead, soon, per_step = verdicts(records, TASKS, PER_STEP)
    assert (ahead.holds, soon.holds, per_step.holds) == (None, True, True)
    assert "not measured: places, articles" in ahead.detail
    for task in TASKS[4:]:
        write_task(records, task, rising(0.5, quick=2), rising(0.45))
    assert [verdict.holds for verdict in verdicts(records, TASKS, PER_STEP)] == [True] * 3
    write_task(records, "places", rising(0.5), rising(0.5, quick=2))  # newer runs take the place of older ones
    write_per_step(records, "demo", 0.494, 0.5)
    ahead, soon, per_step = verdicts(records, TASKS, PER_STEP)
    assert (ahead.holds, soon.holds, per_step.holds) == (False, True, False)
    assert ahead.detail == "yes: demo, families, wordnet, han, articles; no: places"
    for task in ("demo", "families"):
        write_task(records, task, rising(0.5, quick=1.01), rising(0.5))
    assert verdicts(records, TASKS, PER_STEP)[1].holds is False
    page = make_page(records, tmp_path)
    claims = next(section for section in page.sections if section.short == "Verdicts").parts[0]
    assert [row[1] for row in claims.rows] == ["no", "no", "no"]  # type: ignore[union-attr]


def test_too_few_tasks_in_time_are_unknown_as_long_as_others_may_follow(records: Records) -> None:
    for task in TASKS[:3]:
        write_task(records, task, rising(0.5), rising(0.5, quick=2))
    assert verdicts(records, TASKS, PER_STEP)[1].holds is False  # three more are not enough
    for task in TASKS[:1]:
        write_task(records, task, rising(0.5, quick=2), rising(0.5))
    assert verdicts(records, TASKS, PER_STEP)[1].holds is None


def test_spans() -> None:
    assert spans([1, 2, 3, 7, 9, 10]) == "1–3, 7, 9–10"
