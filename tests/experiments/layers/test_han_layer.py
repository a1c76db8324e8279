"""The trained layer is opened from a folder of results, and its absence is said with the way to make it."""

from pathlib import Path

import numpy as np
import pytest

from experiments.datasets.han_layer import han_layer
from experiments.datasets.missing import MissingDataError


def finished(folder: Path) -> Path:
    """Write what a finished run of imagenet21k leaves, in small."""
    random = np.random.default_rng(0)
    arrays = {
        "layer/rows": random.standard_normal((30, 8), dtype=np.float32),
        "layer/bias": random.standard_normal(30, dtype=np.float32),
        "features/test": random.standard_normal((50, 8)).astype(np.float16),
        "features/test_labels": np.arange(50) % 30,
    }
    for name, array in arrays.items():
        file = folder / "cache" / f"{name}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, array)
    return folder


def test_rows_bias_and_held_out_features_are_read_in_random_order(tmp_path: Path) -> None:
    problem = han_layer(finished(tmp_path))
    assert (problem.classes, problem.features, len(problem.queries)) == (30, 8, 50)
    kept = np.load(tmp_path / "cache" / "features" / "test.npy").astype(np.float32)
    places = [int(np.flatnonzero((kept == query).all(axis=1))[0]) for query in problem.queries]
    assert sorted(places) == list(range(50)) != places
    np.testing.assert_array_equal(problem.labels, np.array(places) % 30)


def test_a_folder_without_the_layer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (finished(tmp_path) / "cache" / "layer" / "bias.npy").unlink()
    with pytest.raises(MissingDataError, match=r"\(cache/layer/bias.npy is not there\); make it by `python -m exp"):
        han_layer(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingDataError, match="no trained layer in imagenet21k-out"):
        han_layer()
