"""The stages: learning by plain loop, threads and Ray; bytes; recovery; learning through faults; the counter."""

from functools import partial

from experiments.distributed.learning_figures import learning_table
from experiments.distributed.page import documents, make_page
from experiments.distributed.task import TaskSizes
from experiments.frame.needs import Need
from experiments.frame.stages import Experiment, Options, Stage
from manyclass.doctor import package


def stages(options: Options) -> list[Stage]:
    """Return the stages, smaller ones for a quick run."""
    from experiments.distributed.chaos import ChaosPlan
    from experiments.distributed.learning import by_ray, by_threads, plain_loop
    from experiments.distributed.recovery import (
        KilledShard,
        counted_exactly,
        learning_through_faults,
        pause_after_kill,
    )
    from experiments.distributed.simulation import simulation_stages
    from experiments.distributed.traffic import TrafficSizes, count_bytes

    quick = options.quick
    task = TaskSizes(steps=150, classes=5_000, tests=1000) if quick else TaskSizes()
    seeds = 1 if quick else 3
    traffic = TrafficSizes(classes=20_000, batches=(32,), shards=(1, 4, 16)) if quick else TrafficSizes()
    shard = KilledShard(classes=50_000, times=1) if quick else KilledShard()
    chaos = ChaosPlan(pushes=400, faults=4) if quick else ChaosPlan(pushes=5_500, faults=55, lives=3, nodes=2)
    faults = 2 if quick else 8
    ray_workers = (2,) if quick else (1, 2, 4)
    return [
        options.stage("plain", "the plain loop", 2, 0.1, partial(plain_loop, task, seeds)),
        options.stage("threads", "1, 2 and 4 workers, threads", 6, 0.4, partial(by_threads, task, seeds)),
        options.stage("ray", "1, 2 and 4 workers, Ray", 12, 0.5, partial(by_ray, task, seeds, workers=ray_workers)),
        options.stage("bytes", "bytes of both transports (a million classes)", 12, 0.2, partial(count_bytes, traffic)),
        options.stage("recovery", "a killed shard (1 GB)", 3, 0.5, partial(pause_after_kill, shard)),
        options.stage("faults", "learning through faults", 3, 1.0, partial(learning_through_faults, task, faults)),
        options.stage("chaos", "the counter workload under faults", 15, 1.5, partial(counted_exactly, chaos)),
        *simulation_stages(options),
    ]


def needs() -> list[Need]:
    """Return what the experiment needs beside what all of them use."""
    return [package("ray", "distributed: Ray engine, recovery, chaos", "pip install 'manyclass[ray]'")]


EXPERIMENT = Experiment(
    "distributed", "Asynchronous training with many workers: accuracy, speed, bytes, and what faults do to it",
    stages, make_page, needs=needs, documents=documents, table=learning_table,
)  # fmt: skip
