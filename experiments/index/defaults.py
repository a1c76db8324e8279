"""What a user gets who passes rows and a sample of queries, and nothing else: on every layer, with the sample, without
one, and with a sample half of which comes from elsewhere."""

from time import perf_counter
from typing import Any

import numpy as np

from experiments.frame.stages import Run
from experiments.index.layers import LAYERS, open_layer
from experiments.peers.choosing import BATCHES, DEPTH
from experiments.peers.contest import QUICK_SECONDS
from experiments.peers.judging import judge
from experiments.peers.manyclass_peer import self_configured
from experiments.peers.peer import Floats
from experiments.peers.problem import Halves
from experiments.peers.timing import RUN_SECONDS, timed_runs
from manyclass.index import ClassIndex

STAGE = "defaults"
SAMPLES = {
    "real": "queries of the layer",
    "none": "no queries",
    "misleading": "half of the queries come from elsewhere",
}
GOALS = {"real": 0.99, "none": 0.95}  # agreement
MOST_CANDIDATES = 300


def run_defaults(run: Run, quick: dict[str, tuple[int, int, int]]) -> None:
    """Write a record for every layer and sample that the records lack."""
    for name in LAYERS:
        key = {"stage": STAGE, "kind": "result", "layer": name}
        left = [sample for sample in SAMPLES if not run.records.done(**key, sample=sample)]
        problem = open_layer(run, STAGE, name, quick[name]) if left else None
        if problem is None:
            continue
        halves = problem.halves()
        with run.progress(len(left), "builds") as show:
            for completed, sample in enumerate(left):
                show(completed, f"{name}, {SAMPLES[sample]}")
                run.records.write(**key, sample=sample, **_measured(run, halves, sample_of(halves, sample)))


def sample_of(halves: Halves, sample: str) -> Floats | None:
    """Return the queries that `build` is given."""
    real = halves.calibration.queries
    if sample == "none":
        return None
    return misled(real) if sample == "misleading" else real


def misled(queries: Floats) -> Floats:
    """Return the sample with every other query replaced by Gaussian noise of the same length, without their mean."""
    noise = np.random.default_rng(6).standard_normal(queries.shape, dtype=np.float32)
    noise *= np.linalg.norm(queries, axis=1, keepdims=True) / np.linalg.norm(noise, axis=1, keepdims=True)
    mixed: Floats = np.where(np.arange(len(queries))[:, None] % 2 == 0, queries, noise)
    return mixed


def _measured(run: Run, halves: Halves, sample: Floats | None) -> dict[str, Any]:
    judging, threads = halves.judging, run.options.threads
    start = perf_counter()
    index = self_configured(judging.rows, judging.bias, sample, threads)
    built = perf_counter() - start

    def search(queries: Floats) -> Any:
        return index.search(queries, min(DEPTH, index.config.candidates), threads=threads)

    measured = judge(search(judging.queries).classes, judging)
    seconds = QUICK_SECONDS if run.options.quick else RUN_SECONDS
    for mode, size in BATCHES.items():
        runs = timed_runs(search, judging.queries, size, seconds=seconds)
        measured |= {f"us_{mode}": runs.median, f"spread_{mode}": runs.spread}
    return {
        **measured,
        **told_by(index),
        "candidates": index.config.candidates,
        "pipeline": index.config.pipeline,
        "build_seconds": built,
        "bytes_per_class": sum(index.memory_report().values()),
        "given": 0 if sample is None else len(sample),
    }


def told_by(index: ClassIndex) -> dict[str, Any]:
    """Return what the index says of itself: its report in words, and the agreement it expects at its candidates."""
    report = index.report()
    return {"report": str(report), "expected": report.kept}
