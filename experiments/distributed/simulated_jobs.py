"""A job, or a layer too large to hold, on a cluster in simulated time; and the same job for real, by threads."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from experiments.distributed.hollow_servers import HollowReplica, HollowShard
from experiments.distributed.simulated_cluster import Machines, SimulatedCluster, SimulatedRun
from experiments.distributed.step_costs import Costs
from experiments.distributed.task import TaskSizes, let_workers_import_this
from manyclass.distributed.engines.run_result import RunResult
from manyclass.distributed.job import Job
from manyclass.distributed.placement import Placement
from manyclass.distributed.run_options import RunOptions
from manyclass.distributed.servers.shard import ParameterShard
from manyclass.distributed.servers.trunk_server import TrunkServer
from manyclass.distributed.settings import HeadSettings
from manyclass.distributed.staleness import Staleness
from manyclass.distributed.steps.activations_transport import ActivationsTransport
from manyclass.distributed.steps.transport import TRUNK, Call, Identity, carried_out
from manyclass.distributed.workers.coordinator import Coordinator
from manyclass.distributed.workers.worker import Pipeline, Worker


class Setting(NamedTuple):
    """How a job is run. depth: steps that a worker has under way. noise: how far durations stray.

    policy: what is done about staleness, as `Staleness.parse` reads it.
    """

    workers: int
    shards: int
    machines: Machines
    depth: int = 2
    seed: int = 0
    noise: float = 0.0
    policy: str = "unbounded"


class Outcome(NamedTuple):
    """Speed, mean staleness of pushes, its 95th percentile, and the accuracy at the end where there is one."""

    examples_per_second: float
    staleness: float
    late: float
    accuracy: float | None
    busiest_shard: float = 0.0
    bytes_per_step: float = 0.0


def simulated(job: Job, setting: Setting, costs: Costs) -> Outcome:
    """Return what a job comes to in simulated time: it is really trained, batch by batch."""
    from manyclass.distributed.engines.threads_engine import one_blas_thread
    from manyclass.distributed.workers.sharded_model import ShardedModel, accuracy
    from manyclass.distributed.workers.torch_replica import TorchReplica, trunk_arrays

    head, placement = job.head, Placement(job.head.classes, setting.shards, seed=job.head.seed)
    staleness = Staleness.parse(setting.policy)
    shards = [ParameterShard(head, placement, number, staleness=staleness) for number in range(setting.shards)]
    below = job.trunk()
    trunk = TrunkServer(*trunk_arrays(below), rule=job.trunk_rule, staleness=staleness,
                        buffer_share=1 / setting.workers)  # fmt: skip

    def call(wanted: Call) -> Any:
        server = trunk if wanted.server == TRUNK else shards[wanted.server]
        return getattr(server, wanted.method)(wanted.message)

    def pipeline(number: int) -> Pipeline:
        identity = Identity(number, 1)
        replica = TorchReplica(job.trunk(), job.batches)
        worker = Worker(identity, replica, ActivationsTransport(head, placement, identity), head,
                        rate=job.trunk_rule.lr)  # fmt: skip
        carried_out(worker.prepare(), call)
        return Pipeline(worker, setting.depth)

    with one_blas_thread():
        run = _run(pipeline, setting, shards, trunk, job.steps, costs, placement.size(0))
        found = 0.0 if run.diverged else None
        if job.test is not None and not run.diverged:
            model = ShardedModel(below, placement, lambda calls: [call(one) for one in calls])
            found = accuracy(model, job.test())
    return outcome(run, found)


def simulated_hollow(
    head: HeadSettings, batch: int, trunk_size: int, steps: int, setting: Setting, costs: Costs
) -> Outcome:
    """Return the speed of a layer of any size: messages are those of a run, and rows there are none.

    trunk_size: numbers in the network below. steps: of each worker, in the mean; speed is that of the middle half.
    """
    placement = Placement(head.classes, setting.shards, seed=head.seed)
    values = {"all": np.zeros(trunk_size, np.float32)}
    trunk = TrunkServer(values)
    x = np.zeros((batch, head.features), np.float32)

    def pipeline(number: int) -> Pipeline:
        identity = Identity(number, 1)
        replica = HollowReplica(x, head.classes, values, seed=setting.seed)
        worker = Worker(identity, replica, ActivationsTransport(head, placement, identity), head)
        carried_out(worker.prepare(), lambda wanted: trunk.exchange(wanted.message))
        return Pipeline(worker, setting.depth)

    shards = [HollowShard() for _ in range(setting.shards)]
    run = _run(pipeline, setting, shards, trunk, steps * setting.workers, costs, placement.size(0))
    return outcome(run, None)._replace(examples_per_second=run.steady_examples_per_second)


def _run(pipeline: Any, setting: Setting, shards: Any, trunk: Any, steps: int, costs: Costs, rows: int) -> SimulatedRun:
    coordinator = Coordinator(steps, staleness=Staleness.parse(setting.policy), lease=float("inf"))
    cluster = SimulatedCluster(
        pipeline, setting.workers, shards, trunk, coordinator, costs, setting.machines, rows=rows, seed=setting.seed,
        noise=setting.noise,
    )  # fmt: skip
    return cluster.run()


def outcome(run: SimulatedRun, accuracy: float | None) -> Outcome:
    """Return what a simulated run came to."""
    late = quantile({str(key): count for key, count in run.staleness.items()}, 0.95)
    bytes_per_step = run.sent / max(1, run.steps)
    return Outcome(run.examples_per_second, run.mean_staleness, late, accuracy, run.busiest_shard, bytes_per_step)


def quantile(staleness: dict[str, int], share: float) -> float:
    """Return the staleness that this share of the pushes does not exceed."""
    total, seen = sum(staleness.values()), 0
    for value in sorted(map(int, staleness)):
        seen += staleness[str(value)]
        if seen >= share * total:
            return float(value)
    return 0.0


def real(task: TaskSizes, engine: str, workers: int, shards: int) -> Outcome:
    """Return what the same job comes to for real, by threads of this process or by Ray on this machine."""
    options = RunOptions(shards=shards, workers=workers)
    if engine == "ray":
        from manyclass.distributed.engines.ray_engine import RayEngine

        let_workers_import_this()
        return _came_to(RayEngine(task.text(), task.job(), options).run())
    return _came_to(by_threads(task.job(), options))


def by_threads(job: Job, options: RunOptions) -> RunResult:
    """Run a job by threads of this process."""
    from manyclass.distributed.engines.threads_engine import ThreadsEngine

    return ThreadsEngine(job, options).run()


def _came_to(result: RunResult) -> Outcome:
    summary, last = result.summary, result.curve[-1]
    pushes = sum(summary.staleness.values())
    mean = sum(int(late) * count for late, count in summary.staleness.items()) / max(1, pushes)
    rate = sum(summary.workers.values())
    return Outcome(rate, mean, quantile(summary.staleness, 0.95), last.accuracy, 0.0, summary.bytes_per_step)


def slowdown_of_two(job: Job, shards: int, repeats: int = 3) -> tuple[float, float]:
    """Return the seconds of a step of one worker alone, and how much longer each of two takes that share nothing.

    Two whole runs at the same time, in two threads of this process: what they share is the machine and Python.
    """
    options, job = RunOptions(shards=shards, workers=1), replace(job, test=None)  # training alone

    def rate(at_once: int) -> float:
        with ThreadPoolExecutor(at_once) as threads:
            results = threads.map(lambda _: by_threads(job, options), range(at_once))
            return fmean(sum(result.summary.workers.values()) for result in results)

    rate(1)  # warms up
    alone, both = (median(rate(count) for _ in range(repeats)) for count in (1, 2))
    return len(job.batches(0)[1]) / alone, max(1.0, alone / both)
