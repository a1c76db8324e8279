"""What faults cost: the pause after a shard was killed, the learning curve through kills, and the counter's verdict."""

import dataclasses
import os
import signal
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.distributed.chaos import ChaosPlan, run_chaos
from experiments.distributed.learning import ROOT
from experiments.distributed.nemesis import Nemesis
from experiments.distributed.task import TaskSizes
from experiments.frame.stages import Run
from manyclass.distributed import HeadSettings, ServerRule
from manyclass.distributed.placement import Placement
from manyclass.distributed.ray_session import ray_session
from manyclass.distributed.run_options import RunOptions


@dataclass(frozen=True, kw_only=True)
class KilledShard:
    """A shard of so many rows, killed so many times."""

    classes: int = 2_000_000
    features: int = 128
    times: int = 5


def pause_after_kill(sizes: KilledShard, run: Run) -> None:
    """Kill a shard again and again, and record how long it takes until the next push is applied."""
    done = len(run.records.select(stage="recovery", kind="recovery"))
    if done >= sizes.times:
        return
    os.environ["PYTHONPATH"] = str(ROOT)
    settings = HeadSettings(classes=sizes.classes, features=sizes.features, rule=ServerRule(lr=0.1))
    placement = Placement(sizes.classes, 1)
    with tempfile.TemporaryDirectory(dir=run.cache) as folder, ray_session(None, 4) as ray:
        from manyclass.distributed.ray_caller import RayCaller
        from manyclass.distributed.ray_servers import ShardServer

        options = RunOptions(shards=1, folder=Path(folder))
        shard = ray.remote(max_restarts=-1, max_concurrency=4)(ShardServer).remote(settings, placement, 0, options)
        caller = RayCaller([shard], None, deadline=300)
        ray.get(shard.save.remote())
        with run.progress(sizes.times, "kills") as show:
            for number in range(done, sizes.times):
                show(number, "")
                found = _killed(ray, shard, caller, number, sizes)
                run.records.write(stage="recovery", kind="recovery", number=number, classes=sizes.classes,
                                  features=sizes.features, gigabytes=4e-9 * sizes.classes * (sizes.features + 1),
                                  **found)  # fmt: skip


def _killed(ray: Any, shard: Any, caller: Any, number: int, sizes: KilledShard) -> dict[str, float]:
    """Return seconds of a push before, and from the kill to the end of the first push after."""
    import numpy as np

    from manyclass.distributed.messages import Push
    from manyclass.distributed.push_ledger import Sender
    from manyclass.distributed.transport import Call

    def push(sequence: int) -> float:
        rows, gradients = np.arange(300, dtype=np.uint32), np.zeros((300, sizes.features), np.float32)
        message = Push(Sender(0, number + 1, sequence), 0, rows, gradients, np.zeros(300, np.float32))
        started = time.perf_counter()
        caller.answers(caller.start([Call(0, "push", message)]))
        return time.perf_counter() - started

    before = min(push(sequence) for sequence in range(3))
    os.kill(ray.get(shard.report.remote())["process"], signal.SIGKILL)
    return {"push_seconds": before, "pause_seconds": push(3)}


def learning_through_faults(sizes: TaskSizes, faults: int, run: Run) -> None:
    """Train on Ray twice, undisturbed and with killed shards and workers, and record both curves."""
    from manyclass.distributed.ray_engine import RayEngine

    os.environ["PYTHONPATH"] = str(ROOT)
    for kind in ("calm", "faults"):
        if run.records.done(stage="faults", kind="curve", run=kind):
            continue
        text, processes = sizes.text(), dict[str, list[int]]()
        with tempfile.TemporaryDirectory(dir=run.cache) as folder, run.progress(sizes.steps, "batches") as show:

            def seen(summary: Any, show: Any = show, processes: Any = processes) -> None:
                processes["shard"] = [report["process"] for report in summary.shards]
                show(summary.steps, "")

            options = RunOptions(workers=2, folder=Path(folder), checkpoint_every=2.0, lease=5.0,
                                 evaluate_every=max(1, sizes.steps // 10))  # fmt: skip
            engine = RayEngine(text, text.job(), options, seen)
            wanted = faults if kind == "faults" else 0
            nemesis = Nemesis(processes.copy, every=6.0, faults=wanted, seed=1)
            with nemesis:
                result = engine.run()
        run.records.write(
            stage="faults", kind="curve", run=kind, curve=[[point.steps * sizes.batch, point.accuracy] for point in
            result.curve], accuracy=result.accuracy, done=dict(nemesis.done), forgotten=result.summary.forgotten,
            seconds=result.curve[-1].seconds, classes=sizes.classes,
        )  # fmt: skip


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
