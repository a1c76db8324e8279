"""What the records of the third experiment are taken to say."""

from pathlib import Path

import pytest

from experiments.frame.records import Records
from experiments.video_id.documents import texts
from experiments.video_id.goals import verdicts
from experiments.video_id.results import (
    Motion,
    accuracy_at,
    best_so_far,
    chance_of,
    motions,
    quickest_at,
    rank_correlation,
    verdict_on_motion,
)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "records.jsonl")


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 45]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert rank_correlation([1, 2, 2, 3], [1, 2, 2, 3]) == pytest.approx(1)
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([1, 2, 3], [5, 5, 5]) is None


def test_few_motions_are_often_in_order_by_chance() -> None:
    assert chance_of([1, 2, 3], [1, 2, 3]) == pytest.approx(2 / 6)  # upwards and downwards
    assert chance_of([1, 2, 3, 4, 5], [5, 4, 3, 2, 1]) == pytest.approx(2 / 120)
    assert chance_of([1, 2, 3, 4], [2, 4, 1, 3]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [([0.9, 0.8, 0.7, 0.6, 0.5], "as it supposes"), ([0.5, 0.6, 0.7, 0.8, 0.9], "its explanation is refuted here"),
     ([0.6, 0.5, 0.9, 0.4, 0.7], "not borne out"), ([0.9, 0.5], "Too few motions")],
)  # fmt: skip
def test_the_series_can_refute_the_paper(shares: list[float], verdict: str) -> None:
    series = [Motion(place, 0.1 * place, {}, {"wta": share}, {}) for place, share in enumerate(shares)]
    assert verdict in verdict_on_motion(series)


def test_motions_are_means_over_seeds_beside_full_softmax(records: Records) -> None:
    for motion, variance in ((2.0, 0.4), (0.5, 0.1), (1.0, 0.2)):
        records.write(stage="motion", kind="variance", motion=motion, mean=variance)
    for motion in (0.5, 2.0):
        for head, seed, way in (("full", 0, 0.4), ("full", 1, 0.6), ("wta", 0, 0.3), ("wta", 1, 0.1)):
            records.write(stage="motion", kind="result", motion=motion, head=head, seed=seed, on_the_way=way,
                          accuracy=2 * way, seen=way)  # fmt: skip
    found = motions(records)
    assert [one.motion for one in found] == [0.5, 2.0]  # nothing was trained at 1.0
    assert found[0].shares == {"wta": pytest.approx(0.4)}
    assert found[1].accuracy["full"] == pytest.approx(1.0)


def test_a_curve_is_read_between_its_points() -> None:
    curve = [{"step": 10, "seconds": 1.0, "accuracy": 0.2}, {"step": 20, "seconds": 2.0, "accuracy": 0.6}]
    assert accuracy_at(curve, "step", 5) == pytest.approx(0.1)
    assert accuracy_at(curve, "step", 15) == pytest.approx(0.4)
    assert accuracy_at(curve, "seconds", 9) == pytest.approx(0.6)


def write_curve(
    records: Records, head: str, accuracies: list[float], seconds: float, stage: str = "end_to_end"
) -> None:
    for place, accuracy in enumerate(accuracies, start=1):
        records.write(stage=stage, kind="evaluation", head=head, step=10 * place, seconds=seconds * place,
                      accuracy=accuracy)  # fmt: skip


def write_step(records: Records, stage: str, head: str, trunk: float, logits: float) -> None:
    parts = {
        "frames_ms": 0.0,
        "trunk_ms": trunk,
        "find_ms": 0.0,
        "logits_ms": logits,
        "update_ms": 0.0,
        "refresh_ms": 0.0,
    }
    records.write(stage=stage, kind="result", head=head, **parts, step_ms=sum(parts.values()))


def test_nothing_recorded_is_nothing_reached(records: Records) -> None:
    assert {shown for _, shown, _ in verdicts(records)} == {None}
    assert all(told == "not measured yet" for _, _, told in verdicts(records))


@pytest.mark.parametrize("good", [True, False])
def test_goals_are_reached_or_missed_as_the_figures_are(records: Records, good: bool) -> None:
    write_curve(records, "candidate", [0.2, 0.4] if good else [0.1, 0.15], 1.0)
    write_curve(records, "full", [0.1, 0.3], 4.0 if good else 1.0)
    write_curve(records, "hierarchical", [0.1, 0.2] if good else [0.3, 0.4], 0.8)
    write_curve(records, "sampled", [0.1, 0.3], 1.0)
    for stage in ("step_parts", "million_steps"):
        write_step(records, stage, "full", 100, 1000)
        write_step(records, stage, "hierarchical", 100, 5)
        write_step(records, stage, "candidate", 100, 10 if good else 300)
    records.write(stage="million", kind="nearest_mean", accuracy=0.5)
    records.write(stage="million", kind="result", accuracy=0.48 if good else 0.4)
    records.write(stage="latency", kind="result", candidates=30, us=400.0 if good else 4000.0, accuracy=0.5,
                  exact_accuracy=0.5)  # fmt: skip
    records.write(stage="latency", kind="result", candidates=5, us=100.0, accuracy=0.4, exact_accuracy=0.5)
    assert {shown for _, shown, _ in verdicts(records)} == {good}


def test_layers_are_compared_by_steps_wherever_the_other_one_came_so_far(records: Records) -> None:
    write_curve(records, "candidate", [0.1] * 4, 1.0)
    write_curve(records, "full", [0.9], 40.0)  # ends after the first quarter
    write_curve(records, "candidate", [0.4, 0.5], 1.0, "fewer_videos")
    write_curve(records, "full", [0.3, 0.6], 4.0, "fewer_videos")
    goal, reached, told = verdicts(records)[0]
    assert "full softmax after as many steps" in goal
    assert not reached
    assert told == (
        "all videos, 25% 10.0% and 90.0%; fewer, 25% 20.0% and 15.0%; fewer, 50% 40.0% and 30.0%; "
        "fewer, 75% 45.0% and 45.0%; fewer, 100% 50.0% and 60.0%"
    )


def test_the_quickest_answer_keeps_its_share(records: Records) -> None:
    for candidates, us, accuracy in ((5, 100.0, 0.40), (10, 300.0, 0.495), (30, 900.0, 0.5)):
        records.write(
            stage="latency", kind="result", candidates=candidates, us=us, accuracy=accuracy, exact_accuracy=0.5
        )
    found = quickest_at(records, 0.99)
    assert found is not None
    assert found["candidates"] == 10
    assert quickest_at(records, 1.01) is None


def test_a_layer_beside_an_exact_method_that_knows_nothing(records: Records) -> None:
    records.write(stage="scene_features", kind="result", frames=8)
    records.write(stage="million", kind="nearest_mean", accuracy=0.0)
    records.write(stage="million", kind="result", accuracy=0.1, classes=1000, seconds=1.0)
    assert "nearest class mean on 0.0%: – of it" in texts(records)["video_id_million"]


def test_the_best_so_far_leaves_out_where_accuracy_fell() -> None:
    curve = [{"step": step, "accuracy": value} for step, value in enumerate([0.0, 0.3, 0.1, 0.3, 0.4, 0.2])]
    assert [point["step"] for point in best_so_far(curve)] == [0, 1, 4]
    assert best_so_far([]) == []
