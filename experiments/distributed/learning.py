"""The same task by the plain loop, by threads and by Ray: accuracy after as many examples, and examples per second."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

from experiments.distributed.task import RULES, TaskSizes, let_workers_import_this
from experiments.frame.stages import Run
from manyclass.distributed.engines.monitor import Summary
from manyclass.distributed.engines.run_result import RunResult
from manyclass.distributed.run_options import RunOptions
from manyclass.training.progress import Show


def plain_loop(sizes: TaskSizes, seeds: int, run: Run) -> None:
    """Train in one process, without any engine: what the others are held against."""
    for rule, seed in product(RULES, range(seeds)):
        key = {"stage": "plain", "kind": "result", "rule": rule, "seed": seed}
        if not run.records.done(**key):
            found = _trained_plainly(replace(sizes, seed=seed, rule=rule), run)
            run.records.write(**key, engine="plain loop", workers=1, **found)


def _trained_plainly(sizes: TaskSizes, run: Run) -> dict[str, Any]:
    import torch

    import manyclass.torch as mct
    from manyclass.training.evaluation import TrunkAndHead, evaluate
    from manyclass.training.loop import train
    from manyclass.training.metrics import Accuracy, Metrics

    torch.set_num_threads(1)  # a worker has one, too
    task, below = sizes.task(), sizes.trunk()
    layer = sizes.head()
    same = {
        name: getattr(layer, name) for name in ("mined_examples", "mined_every", "mined_candidates", "tail", "seed")
    }
    head = mct.CandidateSoftmax(layer.features, layer.classes, tail_sampler="uniform", remembered=0, meter_every=0,
                                **same)  # fmt: skip
    of_rows, of_trunk = RULES[sizes.rule]
    groups = [{"params": [*below.parameters()], "lr": of_trunk.lr}, {"params": [*head.parameters()], "lr": of_rows.lr}]
    optimizer: torch.optim.Optimizer
    if sizes.rule == "adagrad":
        optimizer = mct.RowAdagrad(groups)
    else:
        optimizer = mct.RowSGD(groups, lr=of_rows.lr, momentum=of_rows.momentum)
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

    ways = [*product(RULES, ["activations"], workers), ("adagrad", "rows", 2)]
    for (rule, transport, count), seed in product(ways, range(seeds)):
        key = {"rule": rule, "transport": transport, "workers": count, "seed": seed}
        if run.records.done(stage="threads", kind="result", **key):
            continue
        job = replace(sizes, seed=seed, rule=rule).job()
        options = RunOptions(workers=count, transport=transport, evaluate_every=None)
        with run.progress(job.steps, "batches") as show:
            result = ThreadsEngine(job, options, _shown_by(show)).run()
        _record(run, "threads", result, sizes, **key)


def by_ray(sizes: TaskSizes, seeds: int, run: Run, workers: tuple[int, ...] = (1, 2, 4)) -> None:
    """Train with the engine of Ray, one cluster for each number of workers."""
    from manyclass.distributed.engines.ray_engine import RayEngine

    let_workers_import_this()
    for count, seed in product(workers, range(seeds)):
        key = {"rule": sizes.rule, "transport": "activations", "workers": count, "seed": seed}
        if run.records.done(stage="ray", kind="result", **key):
            continue
        text = replace(sizes, seed=seed).text()
        with run.progress(sizes.steps, "batches") as show:
            result = RayEngine(text, text.job(), RunOptions(workers=count), _shown_by(show)).run()
        _record(run, "ray", result, sizes, **key)


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
