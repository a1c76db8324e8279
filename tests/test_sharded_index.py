"""An index in parts answers as one index does, here and on Ray."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_cases import run_with_ray

from manyclass import (
    ClassIndex,
    ConfigError,
    FileError,
    HashConfig,
    InputError,
    ManyclassError,
    RankError,
    ShardedIndex,
)
from manyclass.sharded_index import shard_path

CLASSES, FEATURES, PARTS = 301, 16, 3


def made(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows, bias, queries = rng.normal(size=(CLASSES, FEATURES)), rng.normal(size=CLASSES), rng.normal(size=(9, FEATURES))
    return rows.astype(np.float32), bias.astype(np.float32), queries.astype(np.float32)


def saved(folder: Path, parts: int = PARTS, output: Any = "softmax") -> list[str]:
    rows, bias, _ = made()
    config = HashConfig.flat_sketch(64, output=output)
    paths = [shard_path(folder, number, parts) for number in range(parts)]
    for number, path in enumerate(paths):
        ClassIndex.build(rows[number::parts].copy(), bias=bias[number::parts].copy(), config=config).save(path)
    return paths


def whole(output: Any = "softmax") -> ClassIndex:
    rows, bias, _ = made()
    return ClassIndex.build(rows, bias=bias, config=HashConfig.flat_sketch(64, output=output))


def assert_same(got: Any, expected: Any) -> None:
    np.testing.assert_array_equal(got.classes, expected.classes)
    np.testing.assert_allclose(got.logits, expected.logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got.log_probs, expected.log_probs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("output", ["softmax", "logistic"])
def test_the_parts_answer_as_the_whole(tmp_path: Path, parts: int, output: str) -> None:
    index, single = ShardedIndex.load(saved(tmp_path, parts, output)), whole(output)
    queries = made()[2]
    assert (index.classes, index.features) == (CLASSES, FEATURES)
    assert_same(index.search(queries, 7, candidates=CLASSES), single.search(queries, 7, candidates=CLASSES))
    assert_same(index.search(queries[0], 7, candidates=CLASSES), single.search(queries[0], 7, candidates=CLASSES))
    best = index.search(queries, 7, candidates=CLASSES).classes
    left = index.search(queries, 5, candidates=CLASSES, exclude=best[:, :2])
    np.testing.assert_array_equal(left.classes, best[:, 2:])


def test_few_candidates_find_nearly_the_best(tmp_path: Path) -> None:
    index, queries = ShardedIndex.load(saved(tmp_path)), made(5)[2]
    exact = whole().search(queries, 1, candidates=CLASSES).classes
    assert (index.search(queries, 1, candidates=60).classes == exact).mean() > 0.7


def test_all_classes_may_be_asked_for(tmp_path: Path) -> None:
    found = ShardedIndex.load(saved(tmp_path), mmap=True).search(made()[2], CLASSES, candidates=CLASSES)
    assert (np.sort(found.classes, 1) == np.arange(CLASSES)).all()
    assert np.allclose(np.exp(found.log_probs.astype(float)).sum(1), 1, atol=1e-4)


def test_misuse_is_refused(tmp_path: Path) -> None:
    paths = saved(tmp_path)
    index = ShardedIndex.load(paths)
    rows, _, queries = made()
    ClassIndex.build(rows[:100, :8].copy()).save(tmp_path / "narrow.mc")
    for call, kind, words in [
        (lambda: ShardedIndex.load(paths[0]), InputError, "one per part"),
        (lambda: ShardedIndex.load([]), InputError, "one per part"),
        (lambda: ShardedIndex.load(paths[::-1]), InputError, "name all parts once, in order"),
        (lambda: ShardedIndex.load([paths[0], str(tmp_path / "none.mc")]), FileError, "is missing"),
        (lambda: ShardedIndex.load([paths[0], str(tmp_path / "narrow.mc")]), InputError, "has 8 features"),
        (lambda: index.search(queries * np.nan), InputError, "NaN"),
        (lambda: index.search(queries[:, :3]), InputError, "features|shape"),
        (lambda: index.search(queries, 9, candidates=4), InputError, "raise candidates"),
        (lambda: ShardedIndex.on_ray(paths), ConfigError, "Ray"),
    ]:  # fmt: skip
        with pytest.raises(kind, match=words):
            call()
    assert issubclass(RankError, ManyclassError)


def on_ray(folder: Path) -> None:
    """Ask parts that are actors; in a process of its own, as Ray reads its settings when it is imported."""
    from manyclass.distributed.engines.ray_session import ray_session

    with ray_session(None, 2) as ray:
        paths = saved(folder, 2)
        index, queries = ShardedIndex.on_ray(paths), made()[2]
        expected = whole().search(queries, 5, candidates=CLASSES)
        assert_same(index.search(queries, 5, candidates=CLASSES), expected)
        ray.kill(index._parts[1], no_restart=False)  # a lost machine: the part comes back from its file
        assert_same(index.search(queries, 5, candidates=CLASSES), expected)
        few: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0}
        with pytest.raises(RankError, match=r"part 1 of 2 .*is missing"):
            ShardedIndex.on_ray([paths[0], f"{paths[1]}x"], options=[few] * 2)
        with pytest.raises(InputError, match="give one for each"):
            ShardedIndex.on_ray(paths, options=[{}])


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
def test_actors_of_ray_each_hold_a_part(tmp_path: Path) -> None:
    assert run_with_ray(__file__, str(tmp_path), folder=tmp_path)[-1] == "all parts have answered"


if __name__ == "__main__":
    on_ray(Path(sys.argv[1]))
    print("all parts have answered")
