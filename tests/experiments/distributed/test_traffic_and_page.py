"""Counted bytes agree with the formulas; the page tells of whatever was measured."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.distributed import EXPERIMENT
from experiments.distributed.goals import goals_sentence
from experiments.distributed.traffic import TrafficSizes, count_bytes
from experiments.frame.page import write_page
from experiments.frame.records import Records
from experiments.frame.stages import Options

RESULT = {"kind": "result", "rule": "adagrad", "classes": 5000, "examples": 1000, "accuracy": 0.5, "seconds": 2.0,
          "examples_per_second": 500.0}  # fmt: skip
BY_WORKERS = {"transport": "activations", "staleness": {"0": 5, "2": 3}, "bytes_per_step": 1e5,
              "shards": [{"load": 0.3, "table_age": 3.0, "version": 4}],
              "worker_rates": {"0": 250.0, "1": 250.0}}  # fmt: skip
VERDICT = {"acknowledged": 612, "in_doubt_applied": 3, "doubled": 0, "lost": 0, "lost_early": 0, "wrong_cells": 0,
           "holds": True, "faults": {"kill shard": 1}}  # fmt: skip


@contextmanager
def _no_progress(total: float, unit: str) -> Iterator[Any]:
    yield lambda *_: None


def run_of(records: Records) -> Any:
    return SimpleNamespace(records=records, progress=_no_progress, options=Options(quick=True))


def test_bytes_are_those_of_the_formulas_and_counted_once(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    sizes = TrafficSizes(classes=2000, features=32, candidates=50, batches=(32,), shards=(1, 4))
    count_bytes(sizes, run_of(records))
    found = records.select(kind="bytes")
    assert len(found) == 6
    for record in found:
        assert record["bytes"] == pytest.approx(record["predicted"], rel=0.05), record
    count_bytes(sizes, run_of(records))  # a run that goes on measures nothing again
    assert len(records.select(kind="bytes")) == 6
    assert "activations" in EXPERIMENT.documents(records)["distributed_bytes"]


@pytest.mark.parametrize("parts", [(), ("plain",), ("plain", "threads"), ("plain", "threads", "faults", "chaos")])
def test_the_page_tells_what_there_is(parts: tuple[str, ...], tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    if "plain" in parts:
        records.write(stage="plain", engine="plain loop", workers=1, seed=0, **RESULT)
    if "threads" in parts:
        records.write(stage="threads", engine="threads", workers=2, seed=0, **RESULT, **BY_WORKERS)
    if "faults" in parts:
        for kind in ("calm", "faults"):
            records.write(
                stage="faults", kind="curve", run=kind, curve=[[100, 0.1], [200, 0.3]], done={"kill shard": 2}
            )
        records.write(stage="recovery", kind="recovery", gigabytes=1.0, pause_seconds=4.2, step_pause_seconds=7.5)
    if "chaos" in parts:
        records.write(stage="chaos", kind="chaos", durability="log", **VERDICT)
    page = write_page(EXPERIMENT.page(records, tmp_path / "figures"), tmp_path).read_text(encoding="utf-8")
    assert ("612" in page) == ("chaos" in parts)
    assert ("plain loop, no engine" in page) == ("plain" in parts)
    learning = EXPERIMENT.documents(records)["distributed_learning"]
    assert ("Not measured yet" in learning) == ("plain" not in parts)


def test_a_goal_that_is_missed_is_named(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    assert "Not measured yet" in goals_sentence(records)
    records.write(stage="plain", engine="plain loop", workers=1, seed=0, **RESULT)
    for workers, accuracy in ((2, 0.499), (4, 0.48)):
        result = RESULT | {"accuracy": accuracy}
        records.write(stage="threads", engine="threads", workers=workers, seed=0, **result, **BY_WORKERS)
    for kind, count in (("rows", 900), ("activations", 100), ("shared sets", 50)):
        records.write(stage="bytes", kind="bytes", batch=32, shards=16, transport=kind, bytes=count)
    told = goals_sentence(records)
    assert "with 4 workers, threads: 96.0%" in told
    assert "with 2 workers" not in told
    assert "9.0× fewer at the least (batch 32, 16 shards)" in told
