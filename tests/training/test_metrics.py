"""Laws of the metrics, and their values against slow loops and hand-computed examples."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyclass.errors import InputError, InputTypeError
from manyclass.training.metrics import Accuracy, AveragePrecision, Metric, Metrics, NDCGAt, PrecisionAt, RecallAt

KINDS: list[type[Metric]] = [PrecisionAt, RecallAt, NDCGAt, AveragePrecision]
Case = tuple[list[list[int]], list[list[int]]]


def slow_values(classes: list[int], targets: list[int], k: int) -> dict[str, float]:
    """The definitions, one example at a time."""
    wanted = {target for target in targets if target >= 0}
    seen: set[int] = set()
    precision_sum = gain = 0.0
    for rank, found in enumerate(classes[:k], start=1):
        if found in wanted and found not in seen:
            seen.add(found)
            precision_sum += len(seen) / rank
            gain += 1 / math.log2(rank + 1)
    reachable = min(k, len(wanted))
    return {
        "accuracy": float(classes[0] in wanted),
        f"precision@{k}": len(seen) / k,
        f"recall@{k}": len(seen) / len(wanted),
        f"ndcg@{k}": gain / sum(1 / math.log2(rank + 1) for rank in range(1, reachable + 1)),
        f"map@{k}": precision_sum / reachable,
    }


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count, width, padded = draw(st.integers(0, 6)), draw(st.integers(1, 6)), draw(st.integers(0, 5))
    ids = st.integers(-1, 7)  # few ids: repetitions and hits are frequent
    rows = st.lists(ids, min_size=width, max_size=width)
    wanted = st.lists(ids, min_size=padded, max_size=padded)
    return (
        draw(st.lists(rows, min_size=count, max_size=count)),
        draw(st.lists(wanted, min_size=count, max_size=count)),
    )


def arrays(case: Case, width: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    classes, targets = case
    return (
        np.array(classes, np.int64).reshape(len(classes), width or (len(classes[0]) if classes else 6)),
        np.array(targets, np.int64).reshape(len(targets), len(targets[0]) if targets else 0),
    )


@given(cases(), st.integers(1, 6))
def test_values_equal_the_slow_loop(case: Case, k: int) -> None:
    classes, targets = arrays(case)
    k = min(k, classes.shape[1])
    metrics = Metrics([Accuracy(), *(kind(k) for kind in KINDS)])
    metrics.update(classes, targets)
    judged = [(found, wanted) for found, wanted in zip(*case, strict=True) if any(target >= 0 for target in wanted)]
    assert (metrics.examples, metrics.skipped) == (len(judged), len(case[0]) - len(judged))
    slow = [slow_values(found, wanted, k) for found, wanted in judged]
    for name, value in metrics.value().items():
        if not slow:
            assert math.isnan(value)
        else:
            assert value == pytest.approx(sum(values[name] for values in slow) / len(slow), rel=1e-12)


@given(cases(), st.integers(0, 6))
def test_merged_parts_equal_the_whole(case: Case, cut: int) -> None:
    classes, targets = arrays(case)
    k = classes.shape[1]
    whole, left, right = (Metrics([k]) for _ in range(3))
    whole.update(classes, targets)
    left.update(classes[:cut], targets[:cut])
    right.update(classes[cut:], targets[cut:])
    merged = left.merge(pickle.loads(pickle.dumps(right)))
    assert (merged.examples, merged.skipped) == (whole.examples, whole.skipped)
    assert merged.value() == pytest.approx(whole.value(), rel=1e-12, nan_ok=True)


@given(cases())
def test_every_value_is_between_0_and_1(case: Case) -> None:
    classes, targets = arrays(case)
    metrics = Metrics(range(1, classes.shape[1] + 1))
    metrics.update(classes, targets)
    assert all(math.isnan(value) or 0 <= value <= 1 for value in metrics.value().values())


@given(st.integers(1, 8), st.integers(1, 8))
def test_a_perfect_ranking_is_1(k: int, positives: int) -> None:
    targets = np.arange(positives)
    ranking = np.concatenate([targets[::-1], np.arange(100, 108)])[None, :k]
    metrics = Metrics([k])
    metrics.update(ranking, targets[None])
    values = metrics.value()
    assert values["accuracy"] == values[f"ndcg@{k}"] == values[f"map@{k}"] == 1
    assert values[f"precision@{k}"] == min(k, positives) / k
    assert values[f"recall@{k}"] == min(k, positives) / positives


def test_hand_computed_example() -> None:
    """Positives 3, 5, 9; ranking 5, 1, 3, 5: hits at ranks 1 and 3, the repeated 5 counts once."""
    metrics = Metrics([4])
    metrics.update([[5, 1, 3, 5]], [[3, 5, 9, 5, -1]])
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    assert metrics.value() == pytest.approx(
        {
            "accuracy": 1.0,
            "precision@4": 2 / 4,
            "recall@4": 2 / 3,
            "ndcg@4": (1 + 1 / 2) / ideal,
            "map@4": (1 + 2 / 3) / 3,
        }
    )


def test_single_targets_and_a_column_of_targets_are_the_same() -> None:
    ranking = np.array([[1, 2], [3, 4], [5, 6]])
    flat, column = Metrics([2]), Metrics([2])
    flat.update(ranking, np.array([2, 3, -100]))
    column.update(ranking, np.array([[2], [3], [-1]]))
    assert flat.value() == column.value()
    assert flat.value()["accuracy"] == 0.5
    assert flat.value()["recall@2"] == 1
    assert flat.skipped == column.skipped == 1


def test_tensors_and_every_integer_type_are_taken() -> None:
    for ids in (np.uint8, np.int32, np.uint64):
        accuracy = Accuracy()
        accuracy.update(np.array([[1], [2]], ids), np.array([1, 1], ids))
        assert accuracy.compute() == 0.5
    accuracy = Accuracy()
    accuracy.update(torch.tensor([[1], [2]]), torch.tensor([1, 1], dtype=torch.int32))
    assert accuracy.value() == 0.5


def test_ids_of_any_size_are_told_apart() -> None:
    recall = RecallAt(2)
    recall.update([[2**62, 2**62 + 1]], [[2**62 + 1, 2**63 - 1]])
    assert recall.value() == 0.5


def test_reset_forgets() -> None:
    metrics = Metrics([1])
    metrics.update([[1]], [1])
    metrics.reset()
    assert (metrics.examples, metrics.skipped) == (0, 0)
    assert all(math.isnan(value) for value in metrics.value().values())


def test_the_bundle_asks_for_enough_classes() -> None:
    assert Metrics([1, 10, 3]).k == 10
    assert list(Metrics([2]).metrics) == ["accuracy", "precision@2", "recall@2", "ndcg@2", "map@2"]


BAD_UPDATES: list[tuple[Any, Any, type[Exception], str]] = [
    ([[1.0, 2.0]], [1], InputTypeError, "classes has dtype float64"),
    ([[1, 2]], [1.0], InputTypeError, "targets has dtype float64"),
    ([[True, False]], [1], InputTypeError, "bool"),
    ([1, 2], [1, 2], InputError, "classes has shape"),
    ([[1]], [1], InputError, "ask topk for 2"),
    ([[1, 2]], [1, 2], InputError, "targets has shape"),
    ([[1, 2]], [[[1]]], InputError, "targets has shape"),
    ([[1, 2], [3]], [1, 2], InputError, "classes cannot be read"),
    ([[1, -2]], [1], InputError, "classes holds -2"),
    (np.array([[1, 2**63]], np.uint64), [1], InputError, "below 2"),
]


@pytest.mark.parametrize(("classes", "targets", "error", "words"), BAD_UPDATES)
def test_bad_input_is_named_and_changes_nothing(classes: Any, targets: Any, error: type[Exception], words: str) -> None:
    metrics = Metrics([2])
    with pytest.raises(error, match=words):
        metrics.update(classes, targets)
    assert (metrics.examples, metrics.skipped) == (0, 0)


def test_metrics_of_another_kind_are_not_merged() -> None:
    for other in (RecallAt(2), PrecisionAt(3), None, Metrics([2])):
        with pytest.raises(InputTypeError, match="cannot merge"):
            PrecisionAt(2).merge(other)  # type: ignore[arg-type]
    for others in (Metrics([3]), RecallAt(2)):
        with pytest.raises(InputTypeError, match="cannot merge"):
            Metrics([2]).merge(others)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [[], [0], [1.5], [Accuracy(), 3], ["recall"]])
def test_bad_bundles_are_refused(wrong: Any) -> None:
    with pytest.raises((InputError, InputTypeError)):
        Metrics(wrong)
