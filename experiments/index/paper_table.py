"""The paper's table on a trained layer: speed-up over the fastest exact product by batch and candidates [K].

Queries are streamed, so that no cell profits from rows of the last batch; beside each cell stands its ceiling, the
speed-up of a method that did nothing but read the rows of the candidates once and multiply them.
"""

from collections.abc import Callable
from dataclasses import asdict
from functools import cache, partial
from typing import Any

import numpy as np

from experiments.frame.stages import Run
from experiments.peers.contest import QUICK_SECONDS
from experiments.peers.exact import PRODUCTS, multiply
from experiments.peers.floor import Rates, distinct_classes, measured_rates, seconds_to_gather
from experiments.peers.judging import judge
from experiments.peers.manyclass_peer import self_configured
from experiments.peers.peer import Floats, Ids
from experiments.peers.problem import Problem
from experiments.peers.timing import PAUSE, ROUNDS, RUN_SECONDS, Runs, in_turn, timed_runs
from manyclass.index import ClassIndex

STAGE = "paper_table"
CANDIDATES = (30, 300, 3000)
GOALS = {1: (90, 30, 4.5), 8: (65, 16, 3), 32: (30, 8, 3), 64: (22, 7, 2.5)}  # batch → speed-up by candidates
KEPT = 0.99  # of the accuracy, below which a speed-up does not count
DEPTH = 10
BATCHES_LOOKED_AT = 8  # over which distinct candidates are averaged


def run_paper_table(run: Run, layer: Callable[[], Problem | None]) -> None:
    """Write a record for each cell that the records lack; the exact products are timed in the same run."""
    missing = [batch for batch in GOALS if not run.records.done(stage=STAGE, kind="batch", batch=batch)]
    problem = layer() if missing else None
    if problem is None:
        return
    halves = problem.halves()
    judging, threads = halves.judging, run.options.threads
    rounds, pause = (1, 0.0) if run.options.quick else (ROUNDS, PAUSE)
    rates = measured_rates(judging.rows, threads, rounds, pause)
    run.records.write(stage=STAGE, kind="rates", **asdict(rates))
    counts = [count for count in CANDIDATES if count <= judging.classes]

    @cache
    def index_for(optimize: str) -> ClassIndex:
        sample = halves.calibration.queries
        return self_configured(judging.rows, judging.bias, sample, threads, optimize=optimize)

    with run.progress(len(missing), "batch sizes") as show:
        for place, batch in enumerate(missing):
            show(place, f"exact products of {batch}")
            exact = fastest_product(run, judging, batch)
            show(place, f"batches of {batch}")
            index = index_for("single" if batch == 1 else "batch")
            for count in counts:
                told = _cell(run, judging, index, batch, count, rates, exact[1].median)
                run.records.write(stage=STAGE, kind="result", batch=batch, candidates=count, product=exact[0], **told)
            run.records.write(stage=STAGE, kind="batch", batch=batch)


def fastest_product(run: Run, judging: Problem, batch: int) -> tuple[str, Runs]:
    """Return the quickest form of the exact product and its µs per query, over the same stream of queries."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(run.options.threads)
    weight = torch.from_numpy(judging.rows)

    def product(name: str, x: Floats) -> Any:
        return multiply(name, weight, torch.from_numpy(x)) if "torch" in name else multiply(name, judging.rows, x)

    with threadpool_limits(run.options.threads):
        timed = {name: _timed(run, partial(product, name), judging, batch) for name in PRODUCTS}
    name = min(timed, key=lambda name: timed[name].median)
    return name, timed[name]


def _timed(run: Run, search: Callable[[Floats], object], judging: Problem, batch: int) -> Runs:
    seconds = QUICK_SECONDS if run.options.quick else RUN_SECONDS
    return timed_runs(search, judging.queries, batch, seconds=seconds)


def _as_many_in_a_row(count: int, place: int, classes: int) -> Ids:
    """Return so many ids that follow each other, elsewhere for each place."""
    return np.arange(count) + place * max(0, classes - count) // BATCHES_LOOKED_AT


def _cell(
    run: Run, judging: Problem, index: ClassIndex, batch: int, count: int, rates: Rates, exact: float
) -> dict[str, Any]:
    """Return quality, time, speed-up and ceiling of one cell."""
    search = partial(index.search, k=min(DEPTH, count), candidates=count, threads=run.options.threads)
    quality = judge(search(judging.queries).classes, judging)
    ours = _timed(run, search, judging, batch)
    batches = in_turn(judging.queries, min(batch, len(judging.queries)))
    looked_at = [index.shortlist(next(batches), count, threads=run.options.threads) for _ in range(BATCHES_LOOKED_AT)]
    sets = [distinct_classes(found) for found in looked_at]
    distinct = float(np.mean([len(ids) for ids in sets]))
    rounds, pause = (1, 0.0) if run.options.quick else (ROUNDS, PAUSE)
    # Of rows that lie apart, or of as many that follow each other: nobody reads faster than that.
    next_to_each_other = [_as_many_in_a_row(len(ids), place, judging.classes) for place, ids in enumerate(sets)]
    gathered = min(
        seconds_to_gather(judging.rows, some, run.options.threads, rounds, pause) for some in (sets, next_to_each_other)
    )
    multiplied = rates.seconds(0, looked_at[0].size, judging.features)
    floor = max(gathered, multiplied) / len(looked_at[0]) * 1e6
    return {
        **quality,
        "pipeline": index.config.pipeline,
        "us": ours.median,
        "spread": ours.spread,
        "exact_us": exact,
        "speedup": exact / ours.median,
        "ceiling": exact / floor,
        "distinct": distinct,
    }
