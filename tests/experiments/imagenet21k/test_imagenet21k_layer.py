"""Stage "layer": one record per cell, resumable."""

from pathlib import Path

import numpy as np
import pytest
from layer_cases import quick_run, small_layer

from experiments.imagenet21k.layer import Cell, asking, built, run_layer
from experiments.imagenet21k.results import PIPELINES
from manyclass.config import HashConfig

pytestmark = pytest.mark.usefixtures("thread_counts")

BATCHES, CANDIDATES = (1, 4, 1000), (10, 30, 300, 3000)


def test_every_cell_is_recorded_with_what_the_page_needs(tmp_path: Path) -> None:
    run, layer = quick_run(tmp_path), small_layer()
    run_layer(run, layer, layer.queries, BATCHES, CANDIDATES)
    records = run.records.select(stage="layer", kind="result")
    cells = {(r["pipeline"], r["candidates"], r["batch"]) for r in records}
    assert cells == {(p, k, b) for p in ("default", "paper") for k in (10, 30, 300) for b in (1, 4)}
    assert len(records) == 12
    for record in records:
        assert record["exact_accuracy"] == layer.exact_accuracy
        assert record["accuracy_kept"] == record["accuracy"] / layer.exact_accuracy
        assert record["speedup"] == pytest.approx(record["exact_ms"] / record["ours_ms"])
        assert record["speedup_torch"] == pytest.approx(record["softmax_ms"] / record["ours_ms"])
        assert record["products_ms"][record["exact_product"]] == record["exact_ms"] == min(
            ms for name, ms in record["products_ms"].items() if "@" in name
        )  # fmt: skip
        assert "exact" in record["stages"]
    every_class = [r for r in records if r["pipeline"] == "default" and r["candidates"] == 300]
    assert all(r["accuracy_kept"] == 1 for r in every_class)


def test_a_second_run_adds_only_what_is_missing(tmp_path: Path) -> None:
    run, layer = quick_run(tmp_path), small_layer()
    run_layer(run, layer, layer.queries, (1,), (10, 30))
    before = run.records.path.read_bytes()
    run_layer(run, layer, layer.queries, (1,), (10, 30))
    assert run.records.path.read_bytes() == before

    lines = before.splitlines(keepends=True)
    run.records.path.write_bytes(b"".join(lines[:-1]) + lines[-1][:40])  # killed while it wrote the last record
    run_layer(quick_run(tmp_path), layer, layer.queries, (1, 2), (10, 30))
    records = quick_run(tmp_path).records.select(stage="layer")
    keys = [(r["pipeline"], r["candidates"], r["batch"]) for r in records]
    assert len(keys) == len(set(keys)) == 8
    assert run.records.path.read_bytes().startswith(b"".join(lines[:-1]))


def test_the_default_is_what_the_library_chooses_and_the_paper_its_own() -> None:
    layer = small_layer()
    ours, literal = (built(name, layer, layer.queries, 1) for name in PIPELINES)
    assert literal.config == HashConfig.paper_imagenet21k()
    assert ours.config != literal.config


def test_a_timing_never_asks_the_same_query_twice_in_a_row() -> None:
    asked: list[bytes] = []
    layer = small_layer()

    def search(queries: np.ndarray, depth: int, candidates: int) -> None:
        assert (len(queries), depth, candidates) == (2, 5, 5)
        asked.append(queries.tobytes())

    ask = asking(search, layer, Cell("default", 5, 2), 3)
    ask()
    ask()
    assert asked == [layer.queries[start : start + 2].tobytes() for start in range(0, 12, 2)]
    for _ in range(len(layer.queries)):
        ask()
    assert asked[len(layer.queries) // 2] == asked[0]  # round again, whole batches only
