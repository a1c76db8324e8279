"""The same task by the plain loop, by threads and by Ray: accuracy after as many examples, and examples per second."""

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from experiments.distributed.task import ROOT, TaskSizes
from experiments.frame.stages import Run
from manyclass.distributed.engines.monitor import Summary
from manyclass.distributed.engines.run_result import RunResult
from manyclass.distributed.run_options import RunOptions
from manyclass.training.progress import Show


def plain_loop(sizes: TaskSizes, seeds: int, run: Run) -> None:
    """Train in one process, without any engine: what the others are held against."""
    for seed in range(seeds):
        if run.records.done(stage="plain", kind="result", seed=seed):
            continue
        found = _trained_plainly(replace(sizes, seed=seed), run)
        run.records.write(stage="plain", kind="result", engine="plain loop", workers=1, seed=seed, **found)


def _trained_plainly(sizes: TaskSizes, run: Run) -> dict[str, Any]:
    import torch

    import manyclass.torch as mct
    from manyclass.training.evaluation import TrunkAndHead, evaluate
    from manyclass.training.loop import train
    from manyclass.training.metrics import Accuracy, Metrics

    torch.set_num_threads(1)  # a worker has one, too
    task, below = sizes.task(), sizes.trunk()
    head = mct.CandidateSoftmax(sizes.hidden, sizes.classes, tail_sampler="uniform", mined_every=sizes.mined_every,
                                remembered=0, meter_every=0, seed=sizes.seed)  # fmt: skip
    optimizer = mct.RowSGD([*below.parameters(), *head.parameters()], lr=sizes.rate, momentum=sizes.momentum)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mct.ApproximationWarning)
        trained = train((below, head), lambda step: task.batch(step, sizes.batch), optimizer, steps=sizes.steps,
                        progress=run.progress)  # fmt: skip
    with head.exact():
        found = evaluate(TrunkAndHead(below, head), [task.test(sizes.tests)], Metrics([Accuracy()]))
    examples = sizes.steps * sizes.batch
    return {"classes": sizes.classes, "examples": examples, "accuracy": found["accuracy"], "seconds": trained.seconds,
            "examples_per_second": examples / trained.seconds}  # fmt: skip


def by_threads(sizes: TaskSizes, seeds: int, run: Run, workers: tuple[int, ...] = (1, 2, 4)) -> None:
    """Train with the engine of threads, both transports once, and each number of workers with every seed."""
    from manyclass.distributed.engines.threads_engine import ThreadsEngine

    for transport, count in [*(("activations", count) for count in workers), ("rows", 2)]:
        for seed in range(seeds):
            if run.records.done(stage="threads", kind="result", transport=transport, workers=count, seed=seed):
                continue
            job = replace(sizes, seed=seed).job()
            options = RunOptions(workers=count, transport=transport, evaluate_every=None)
            with run.progress(job.steps, "batches") as show:
                result = ThreadsEngine(job, options, _shown_by(show)).run()
            _record(run, "threads", result, sizes, workers=count, transport=transport, seed=seed)


def by_ray(sizes: TaskSizes, seeds: int, run: Run, workers: tuple[int, ...] = (1, 2, 4)) -> None:
    """Train with the engine of Ray, one cluster for each number of workers."""
    from manyclass.distributed.engines.ray_engine import RayEngine

    os.environ["PYTHONPATH"] = str(ROOT)  # workers import the task from here
    for count in workers:
        for seed in range(seeds):
            if run.records.done(stage="ray", kind="result", workers=count, seed=seed):
                continue
            text = replace(sizes, seed=seed).text()
            with run.progress(sizes.steps, "batches") as show:
                result = RayEngine(text, text.job(), RunOptions(workers=count),
                                   _shown_by(show)).run()  # fmt: skip
            _record(run, "ray", result, sizes, workers=count, transport="activations", seed=seed)


def _shown_by(show: Show) -> Callable[[Summary], None]:
    return lambda summary: show(summary.steps, "")


def _record(run: Run, engine: str, result: RunResult, sizes: TaskSizes, **fields: Any) -> None:
    summary = result.summary
    run.records.write(
        stage=engine, kind="result", engine=engine, classes=sizes.classes, examples=summary.examples,
        accuracy=result.accuracy, seconds=summary.seconds, examples_per_second=summary.examples_per_second,
        staleness=summary.staleness, bytes_per_step=summary.bytes_per_step, **fields,
        shards=[{name: shard[name] for name in ("load", "table_age", "version")} for shard in summary.shards],
        worker_rates=summary.workers, finished=time.time(),
    )  # fmt: skip
