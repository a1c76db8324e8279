"""Downpour past this machine: costs that are measured here, a simulation that is checked here, and what it predicts.

Stages: costs of the parts of a step; real runs by threads and by Ray beside simulated ones; learning with many workers,
for real but in simulated time; speed for layers and clusters that nobody has here. On the page it is called a
prediction.
"""

from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from experiments.distributed.simulated_cluster import Machines
from experiments.distributed.simulated_jobs import (
    Outcome,
    Setting,
    real,
    simulated,
    simulated_hollow,
    slowdown_of_two,
)
from experiments.distributed.simulated_time import Link
from experiments.distributed.step_costs import Costs, measured
from experiments.distributed.task import TaskSizes
from experiments.frame.stages import Options, Run, Stage
from manyclass.distributed.job import Job
from manyclass.distributed.placement import Placement
from manyclass.distributed.positives import Targets
from manyclass.distributed.settings import HeadSettings

COSTS, VALIDATION, LEARNING, SCALE = (f"simulation_{part}" for part in ("costs", "validation", "learning", "scale"))


@dataclass(frozen=True)
class Plan:
    """Sizes of the simulation."""

    task_classes: int = 20_000
    steps: int = 600  # batches of a training run
    tests: int = 10_000  # examples to evaluate on
    repeats: int = 40  # of each timing
    look_up_rows: tuple[int, int] = (30_000, 300_000)  # of shards in which candidates are looked up, timed
    policies: tuple[str, ...] = ("unbounded", "bounded:4", "scaled:4")  # of staleness, in learning
    engines: tuple[str, ...] = ("threads", "ray")  # of the real runs
    real_workers: tuple[int, ...] = (1, 2, 4)
    real_shards: int = 2
    real_runs: int = 3  # of each number of workers
    workers: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 100)
    learning_shards: tuple[int, ...] = (8,)
    shards: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    classes: tuple[int, ...] = (1_000_000, 10_000_000, 100_000_000)
    scale_steps: int = 10  # of each worker, where only time is simulated
    draws: int = 2  # of costs and of chance: what error bars are made of


FULL = Plan()
QUICK = Plan(
    task_classes=5_000, steps=150, tests=1000, repeats=10, real_runs=1, look_up_rows=(5_000, 50_000),
    workers=(1, 4, 16), learning_shards=(4,), shards=(1, 8), classes=(1_000_000, 100_000_000), scale_steps=12, draws=2,
)  # fmt: skip


def task_of(plan: Plan) -> TaskSizes:
    """Return the task that is simulated: the one that the other stages train."""
    return TaskSizes(classes=plan.task_classes, steps=plan.steps, tests=plan.tests)


def simulated_job(plan: Plan) -> Job:
    """Return it as a job."""
    return task_of(plan).job()


def measure_costs(plan: Plan, run: Run) -> None:
    """Time the parts of a step, a step of one worker, two workers that share nothing, and calls and steps by Ray."""
    import torch

    from experiments.distributed.ray_call_costs import measured_calls
    from manyclass.distributed.engines.threads_engine import one_blas_thread
    from manyclass.distributed.servers.trunk_server import TrunkServer
    from manyclass.distributed.workers.torch_replica import TorchReplica, trunk_arrays

    if run.records.done(stage=COSTS, kind="costs"):
        return
    torch.set_num_threads(1)
    job = simulated_job(plan)
    trunk = TrunkServer(*trunk_arrays(job.trunk()), rule=job.trunk_rule)
    replica = TorchReplica(job.trunk(), job.batches)
    with one_blas_thread():
        costs, errors = measured(job, replica, trunk, plan.real_shards, plan.repeats, plan.look_up_rows)
    short = replace(job, steps=max(20, plan.steps // 4))
    step, slowdown = slowdown_of_two(short, plan.real_shards)
    parts = simulated(short, Setting(1, plan.real_shards, here(1.0), depth=1), costs)
    examples = len(job.batches(0)[1])
    noise = min(0.5, median(errors.values()) * plan.repeats**0.5)  # of one duration; errors are those of means
    rest = max(0.0, step - examples / parts.examples_per_second)  # what no part accounts for
    forward, places = replica.forward(0), Placement(job.head.classes, plan.real_shards, seed=job.head.seed)
    positives = Targets(forward.targets, job.head.classes).split(places)[0]
    calls = measured_calls(forward.x, positives, plan.real_shards, plan.repeats)._asdict()
    costs = replace(costs, loop=rest)
    record = {"costs": costs.to_json(), "ray": calls | {"rest": 0.0}}
    by_one = real(replace(task_of(plan), steps=short.steps), "ray", 1, plan.real_shards).examples_per_second
    setting = Setting(1, plan.real_shards, Machines(link=None, cores=2))
    without = simulated(short, setting, by_ray(costs, record)).examples_per_second
    record["ray"]["rest"] = max(0.0, examples / by_one - examples / without)  # of Ray's own processes beside the calls
    run.records.write(
        stage=COSTS, kind="costs", **record, errors=errors, step=step, slowdown=slowdown, examples=examples,
        trunk=int(sum(part.size for part in trunk.values.values())), features=job.head.features, noise=noise,
    )  # fmt: skip


def here(slowdown: float) -> Machines:
    """Return this machine: two cores, a process of threads, each of which makes its calls itself."""
    return Machines(link=None, cores=2, sequential=True, slowdown=slowdown)


def costs_of(record: dict[str, Any]) -> Costs:
    """Return the costs that a record holds."""
    found = record["costs"]
    return Costs(**{**found, "features": int(found["features"])})


def found_costs(run: Run) -> dict[str, Any]:
    """Return the record of the measured costs."""
    record = run.records.last(stage=COSTS, kind="costs")
    assert record is not None, "the stage before this one writes it"
    return record


def validate(plan: Plan, run: Run) -> None:
    """Run the job for real with a few workers, and in simulated time with as many."""
    import torch

    torch.set_num_threads(1)
    record, task = found_costs(run), task_of(plan)
    cases = [(engine, workers, number) for engine in plan.engines for number in range(plan.real_runs)
             for workers in plan.real_workers]  # fmt: skip
    with run.progress(len(cases), "runs") as show:
        for place, (engine, workers, number) in enumerate(cases):
            show(place, f"{engine}, {workers} workers")
            key = {"stage": VALIDATION, "engine": engine, "workers": workers, "run": number}
            if not run.records.done(kind="real", **key):
                found = real(task, engine, workers, plan.real_shards)
                run.records.write(kind="real", **key, **found._asdict())
            if not run.records.done(kind="simulated", **key):
                costs, machines, depth = on_this_machine(record, engine, workers, number)
                setting = Setting(workers, plan.real_shards, machines, depth, number, record["noise"])
                run.records.write(kind="simulated", **key, **simulated(task.job(), setting, costs)._asdict())


def on_this_machine(record: dict[str, Any], engine: str, workers: int, draw: int) -> tuple[Costs, Machines, int]:
    """Return costs and machines of a run here, and how many steps of a worker are under way."""
    costs = costs_of(record).drawn(record["errors"], draw)
    if engine == "threads":
        return costs, here(record["slowdown"] if workers > 1 else 1.0), 1
    return by_ray(costs, record), Machines(link=None, cores=2), 2


def by_ray(costs: Costs, record: dict[str, Any]) -> Costs:
    """Return costs with those of Ray's calls, and what else a step takes there."""
    ray = record["ray"]
    return replace(costs, call=ray["call"], serve=ray["serve"], loop=costs.loop + ray["rest"])


def cluster(record: dict[str, Any], draw: int) -> tuple[Costs, Machines]:
    """Return costs and machines of a cluster: one worker or shard on each, 10 GbE, calls by Ray."""
    errors = record["errors"] | dict.fromkeys(("call", "serve"), record["ray"]["error"])
    return by_ray(costs_of(record), record).drawn(errors, draw), Machines(link=Link())


def learn(plan: Plan, run: Run) -> None:
    """Train with many workers in simulated time: speed, staleness and accuracy after as many examples."""
    import torch

    torch.set_num_threads(1)
    record, job = found_costs(run), simulated_job(plan)
    grid = [(policy, workers, shards)
            for policy in plan.policies for shards in plan.learning_shards for workers in plan.workers]  # fmt: skip
    with run.progress(len(grid) * plan.draws, "runs") as show:
        for draw in range(plan.draws):
            for place, (policy, workers, shards) in enumerate(grid):
                key = {"stage": LEARNING, "kind": "learning", "workers": workers, "shards": shards, "draw": draw,
                       "policy": policy}  # fmt: skip
                if not run.records.done(**key):
                    costs, machines = cluster(record, draw)
                    setting = Setting(workers, shards, machines, 2, draw, record["noise"], policy)
                    found = simulated(job, setting, costs)
                    run.records.write(**key, **found._asdict())
                show(draw * len(grid) + place + 1, f"{workers} workers, {shards} shards, {policy}")


def scale(plan: Plan, run: Run) -> None:
    """Simulate the time alone, for layers of up to a hundred million classes."""
    record = found_costs(run)
    grid = [(classes, shards, workers)
            for classes in plan.classes for shards in plan.shards for workers in plan.workers]  # fmt: skip
    with run.progress(len(grid), "settings") as show:
        for place, (classes, shards, workers) in enumerate(grid):
            for draw in range(plan.draws):
                key = {"stage": SCALE, "kind": "scale", "classes": classes, "shards": shards, "workers": workers,
                       "draw": draw}  # fmt: skip
                if run.records.done(**key):
                    continue
                costs, machines = cluster(record, draw)
                setting = Setting(workers, shards, machines, 2, draw, record["noise"])
                run.records.write(**key, **_hollow(plan, record, classes, setting, costs)._asdict())
            show(place + 1, f"{classes:,} classes, {shards} shards, {workers} workers")


def _hollow(plan: Plan, record: dict[str, Any], classes: int, setting: Setting, costs: Costs) -> Outcome:
    head = HeadSettings(classes=classes, features=record["features"])
    return simulated_hollow(head, record["examples"], record["trunk"], plan.scale_steps, setting, costs)


def simulation_stages(options: Options, plan: Plan | None = None) -> list[Stage]:
    """Return the stages of the simulation, for the list of an experiment."""
    plan = plan or (QUICK if options.quick else FULL)
    return [
        options.stage(COSTS, "what the parts of a step cost here", 2, 0.5, partial(measure_costs, plan)),
        options.stage(VALIDATION, "real runs beside simulated ones", 8, 1, partial(validate, plan), COSTS),
        options.stage(LEARNING, "learning with many workers, in simulated time", 20, 1, partial(learn, plan), COSTS),
        options.stage(SCALE, "speed for very many classes, predicted", 20, 0.5, partial(scale, plan), COSTS),
    ]
