"""What faults cost: the pause after a shard was killed, the learning curve through kills, and the counter's verdict."""

import dataclasses
import os
import signal
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.distributed.chaos import ChaosPlan, run_chaos
from experiments.distributed.nemesis import Nemesis
from experiments.distributed.task import TaskSizes, let_workers_import_this
from experiments.frame.stages import Run
from manyclass.distributed import HeadSettings, ServerRule
from manyclass.distributed.engines.ray_session import ray_session
from manyclass.distributed.engines.run_result import RunResult
from manyclass.distributed.messages import Outcome, Push
from manyclass.distributed.placement import Placement
from manyclass.distributed.positives import Targets
from manyclass.distributed.run_options import RunOptions
from manyclass.distributed.steps.activations_transport import ActivationsTransport
from manyclass.distributed.steps.transport import Call, Identity, carried_out
from manyclass.training.progress import Show


@dataclass(frozen=True, kw_only=True)
class KilledShard:
    """A shard of so many rows, killed so many times."""

    classes: int = 2_000_000
    features: int = 128
    times: int = 5


def pause_after_kill(sizes: KilledShard, run: Run) -> None:
    """Kill a shard again and again, and record how long it takes until the next push, and the next step, is applied."""
    done = len(run.records.select(stage="recovery", kind="recovery"))
    if done >= sizes.times:
        return
    let_workers_import_this()
    settings = HeadSettings(classes=sizes.classes, features=sizes.features, rule=ServerRule(lr=0.1), mined_every=1)
    placement = Placement(sizes.classes, 1)
    with tempfile.TemporaryDirectory(dir=run.cache) as folder, ray_session(None, 4) as ray:
        from manyclass.distributed.engines.ray_caller import RayCaller
        from manyclass.distributed.engines.ray_servers import ShardServer

        options = RunOptions(shards=1, folder=Path(folder))
        shard = ray.remote(max_restarts=-1, max_concurrency=4)(ShardServer).remote(settings, placement, 0, options)
        caller = RayCaller([shard], None, deadline=300)
        ray.get(shard.save.remote())
        with run.progress(sizes.times, "kills") as show:
            for number in range(done, sizes.times):
                show(number, "")
                user = _ShardUser(caller, settings, placement, number + 1)
                before, step_before = min(user.push() for _ in range(3)), min(user.step() for _ in range(3))
                os.kill(ray.get(shard.report.remote())["process"], signal.SIGKILL)
                killed = time.perf_counter()
                user.push()
                pause = time.perf_counter() - killed
                user.step()
                run.records.write(stage="recovery", kind="recovery", number=number, classes=sizes.classes,
                                  features=sizes.features, gigabytes=4e-9 * sizes.classes * (sizes.features + 1),
                                  push_seconds=before, step_seconds=step_before, pause_seconds=pause,
                                  step_pause_seconds=time.perf_counter() - killed)  # fmt: skip


class _ShardUser:
    """Pushes to one shard as workers do: a few rows' gradients, and whole steps, for which candidates are looked up."""

    def __init__(self, caller: Any, settings: HeadSettings, placement: Placement, incarnation: int) -> None:
        self.caller, self.settings, self.identity = caller, settings, Identity(0, incarnation)
        self.transport = ActivationsTransport(settings, placement, self.identity)
        self.chance = np.random.default_rng(incarnation)

    def push(self) -> float:
        """Return the seconds of a push, which must be applied."""
        rows, width = np.arange(300, dtype=np.uint32), self.settings.features
        gradients, biases = np.zeros((300, width), np.float32), np.zeros(300, np.float32)
        started = time.perf_counter()
        answer = self._answers([Call(0, "push", Push(self.identity.sender(0), 0, rows, gradients, biases))])[0]
        assert answer.outcome is Outcome.APPLIED, answer
        return time.perf_counter() - started

    def step(self) -> float:
        """Return the seconds of a step over a batch of 32, which must be applied."""
        x = self.chance.normal(size=(32, self.settings.features)).astype(np.float32)
        targets = Targets(self.chance.integers(self.settings.classes, size=32), self.settings.classes)
        started = time.perf_counter()
        outcome = carried_out(self.transport.step(x, targets), lambda call: self._answers([call])[0])
        assert len(outcome.staleness) == 1, outcome  # of the one push that was applied
        return time.perf_counter() - started

    def _answers(self, calls: list[Call]) -> list[Any]:
        found: list[Any] = self.caller.answers(self.caller.start(calls))
        return found


def learning_through_faults(sizes: TaskSizes, faults: int, run: Run) -> None:
    """Train on Ray twice, undisturbed and with killed and paused shards and workers, and record both curves."""
    let_workers_import_this()
    for kind in ("calm", "faults"):
        if run.records.done(stage="faults", kind="curve", run=kind):
            continue
        with tempfile.TemporaryDirectory(dir=run.cache) as folder, run.progress(sizes.steps, "batches") as show:
            options = RunOptions(workers=2, folder=Path(folder), checkpoint_every=2.0, lease=5.0,
                                 evaluate_every=max(1, sizes.steps // 10))  # fmt: skip
            nemesis, result = _trained(sizes, options, faults if kind == "faults" else 0, show)
        run.records.write(
            stage="faults", kind="curve", run=kind, curve=[[point.steps * sizes.batch, point.accuracy] for point in
            result.curve], accuracy=result.accuracy, done=dict(nemesis.done), forgotten=result.summary.forgotten,
            seconds=result.curve[-1].seconds, classes=sizes.classes,
        )  # fmt: skip


def _trained(sizes: TaskSizes, options: RunOptions, faults: int, show: Show) -> tuple[Nemesis, RunResult]:
    """Train on a cluster of its own while so many faults happen."""
    text, processes = sizes.text(), dict[str, list[int]]()
    job = text.job()
    placement = Placement(job.head.classes, options.shards, seed=job.head.seed)
    with ray_session(None, options.shards + options.workers + 2) as ray:
        from manyclass.distributed.engines.ray_engine import RayRun

        engine = RayRun(ray, text, job, options, placement, lambda _: None)

        def seen(summary: Any) -> None:
            processes["shard"] = [report["process"] for report in summary.shards]
            known = engine.ask(engine.coordinator.processes)
            processes["worker"] = [process for _, process in known.values()]
            show(summary.steps, "")

        engine.watch = seen
        with Nemesis(processes.copy, every=4.0, faults=faults, seed=1) as nemesis:
            return nemesis, engine.finish()


def counted_exactly(plan: ChaosPlan, run: Run) -> None:
    """Run the counter workload under faults, once for each kind of durability; nodes are removed in the first."""
    for durability, nodes in (("log", plan.nodes), ("checkpoint", 0)):
        if run.records.done(stage="chaos", kind="chaos", durability=durability):
            continue
        wanted = replace(plan, durability=durability, nodes=nodes, seed=run.options.seed)
        with tempfile.TemporaryDirectory(dir=run.cache) as folder, run.progress(100, "%") as show:
            verdict = run_chaos(wanted, Path(folder), show)
        run.records.write(stage="chaos", kind="chaos", durability=durability, holds=wanted.holds(verdict), nodes=nodes,
                          checkpoint_every=plan.checkpoint_every, **dataclasses.asdict(verdict))  # fmt: skip
