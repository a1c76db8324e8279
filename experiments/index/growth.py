"""Time per query as classes grow, of rows with planted neighbours and of rows of unequal norm."""

from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import Any

from experiments.datasets.made_rows import planted, unequal_norms
from experiments.frame.stages import Run
from experiments.peers.contest import QUICK_SECONDS
from experiments.peers.manyclass_peer import self_configured
from experiments.peers.problem import Problem
from experiments.peers.timing import RUN_SECONDS, timed_runs
from manyclass.config import HashConfig
from manyclass.index import ClassIndex

STAGE = "growth"
LADDER = (10, 12, 15, 18, 22, 26, 30, 40, 60, 100, 200, 300, 500, 1000)  # candidates tried until enough is found
SHARE = 0.9  # of the exact winners
FEATURES, QUERIES = 64, 2000
MOST_CELLS = 4096  # a cell for every 256 classes would take longer to build than all else
ROWS: dict[str, Callable[[int], Problem]] = {
    "planted neighbours": lambda classes: planted(classes, FEATURES, QUERIES),
    "unequal norms": lambda classes: unequal_norms(classes, FEATURES, QUERIES),
}
CHOSEN = "as build chooses"


def configs_of(rows: str, classes: int) -> dict[str, HashConfig | None]:
    """Return the pipelines whose growth is told, by name; None for what `build` chooses itself."""
    if rows == "planted neighbours":
        tables = HashConfig.probed_tables(classes, FEATURES, sketch_bits=64)
        return {"flat scan": HashConfig.flat_sketch(64), "probed tables": tables, CHOSEN: None}
    cells = max(1, min(classes // 256, MOST_CELLS))
    return {"scan with cells": HashConfig.flat_sketch(256, cells=cells), CHOSEN: None}


def run_growth(run: Run, sizes: Iterable[int]) -> None:
    """Write a record per size, rows and pipeline: the fewest candidates that find enough, and the time they take."""
    for classes in sizes:
        for rows, make in ROWS.items():
            key = {"stage": STAGE, "kind": "result", "classes": classes, "rows": rows}
            configs = configs_of(rows, classes)
            missing = {name: config for name, config in configs.items() if not run.records.done(peer=name, **key)}
            if missing:
                run.console.print(f"  {classes:,} classes, {rows}", highlight=False)
                halves = make(classes).halves()
                for name, config in missing.items():
                    build = partial(_built, run, halves.calibration, config)
                    run.records.write(**key, peer=name, **_reaching(run, halves.judging, build))


def _built(run: Run, calibration: Problem, config: HashConfig | None) -> ClassIndex:
    if config is None:
        sample = calibration.queries
        return self_configured(calibration.rows, calibration.bias, sample, run.options.threads, target=SHARE)
    return ClassIndex.build(calibration.rows, bias=calibration.bias, config=config, threads=run.options.threads)


def _reaching(run: Run, judging: Problem, build: Callable[[], ClassIndex]) -> dict[str, Any]:
    start = perf_counter()
    index = build()
    build_seconds = perf_counter() - start
    wanted = judging.exact.classes[:, 0]
    search = partial(index.search, k=1, threads=run.options.threads)
    for candidates in LADDER:
        found = search(judging.queries, candidates=candidates).classes[:, 0]
        agreement = float(judging.same_logit(found, wanted).mean())
        if agreement >= SHARE:
            break
    ask = partial(search, candidates=candidates)
    seconds = QUICK_SECONDS if run.options.quick else RUN_SECONDS
    times = {mode: timed_runs(ask, judging.queries, size, seconds=seconds) for mode, size in
             (("batch", len(judging.queries)), ("single", 1))}  # fmt: skip
    return {
        "stages": index.config.pipeline,
        "candidates": candidates,
        "agreement": agreement,
        **{f"us_{mode}": runs.median for mode, runs in times.items()},
        **{f"spread_{mode}": runs.spread for mode, runs in times.items()},
        "build_seconds": build_seconds,
        "bytes_per_class": sum(size for part, size in index.memory_report().items() if part != "rows"),
    }
