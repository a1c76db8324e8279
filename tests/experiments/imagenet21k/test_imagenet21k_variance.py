"""In-class variance beside the plain definition."""

import numpy as np
import pytest

from experiments.vision import in_class_variance as measure
from experiments.vision.in_class_variance import in_class_variance
from manyclass.errors import InputError


def plain(features: np.ndarray, labels: np.ndarray) -> tuple[list[float], float]:
    """Return the variances of all classes of two or more examples, and the mean squared distance of their means."""
    groups = [features[labels == label] for label in np.unique(labels)]
    groups = [group for group in groups if len(group) > 1]
    means = [group.mean(axis=0) for group in groups]
    distances = [((a - b) ** 2).sum() for i, a in enumerate(means) for j, b in enumerate(means) if i != j]
    return [group.var(axis=0, ddof=1).sum() for group in groups], float(np.mean(distances))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_result_is_that_of_the_definition(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "VARIANCE_CHUNK", 17)
    random = np.random.default_rng(5)
    labels = np.concatenate([random.integers(0, 9, 100) * 1000 - 3, [77]])  # ids with gaps, and one class of one
    features = (np.maximum(random.normal(size=(101, 12)), 0) + labels[:, None] % 7).astype(dtype)
    features[5] = 0
    found = in_class_variance(features, labels)

    exact = features.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    unit, between = plain(exact / np.where(lengths, lengths, 1), labels)
    raw, _ = plain(exact, labels)
    assert found["mean"] == pytest.approx(np.mean(unit), rel=1e-4)
    assert found["median"] == pytest.approx(np.median(unit), rel=1e-4)
    assert found["between"] == pytest.approx(between, rel=1e-4)
    assert (found["classes"], found["examples"]) == (9, 100)
    assert sum(found["counts"]) == sum(found["raw_counts"]) == 9
    assert len(found["edges"]) == len(found["counts"]) + 1
    assert found["edges"][-1] == pytest.approx(max(unit), rel=1e-4)
    assert found["raw_edges"][-1] == pytest.approx(max(raw) / exact.var(axis=0, ddof=1).sum(), rel=1e-4)


def test_classes_of_equal_examples_have_no_variance() -> None:
    found = in_class_variance(np.repeat(np.eye(3), 2, axis=0), [0, 0, 1, 1, 2, 2])
    assert found["mean"] == found["median"] == 0
    assert found["between"] == pytest.approx(2)


def test_what_has_no_variance_is_refused() -> None:
    with pytest.raises(InputError, match="2 classes of one example each"):
        in_class_variance(np.eye(2), [0, 1])
    with pytest.raises(InputError, match="one label per row"):
        in_class_variance(np.eye(2), [0])
