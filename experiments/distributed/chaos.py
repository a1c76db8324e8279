"""Proof that pushes count exactly once: the counter workload under faults, compared with its ledger.

    python -m experiments.distributed.chaos --pushes 10000 --faults 100

Faults: SIGKILL of shards and workers, pauses that outlive the lease, nodes that are removed, dropped requests and
answers, and the whole cluster killed and resumed. Exit code 0: the rows equal the ledger.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.distributed.counter_ledger import FEATURES, SHARED, Verdict, judged, read_ledgers
from experiments.distributed.nemesis import Nemesis
from manyclass.distributed import HeadSettings, Job, ServerRule
from manyclass.distributed.checkpoints import JobFolder
from manyclass.distributed.job import JobText
from manyclass.distributed.placement import Placement
from manyclass.distributed.ray_engine import RayRun
from manyclass.distributed.ray_session import ray_session
from manyclass.distributed.run_options import RunOptions

LOSING = "RAY_testing_rpc_failure"
CALLS = "CoreWorkerService.grpc_client.PushTask"  # how Ray calls a method of an actor
LOST_MESSAGES = {CALLS: {"num_failures": -1, "req_failure_prob": 2, "resp_failure_prob": 2}}  # percent
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class ChaosPlan:
    """Sizes of a run. lives: how often the whole cluster is killed, plus one. nodes: beside the head; 0: one in all."""

    pushes: int = 1000
    faults: int = 6
    lives: int = 1
    nodes: int = 0
    shards: int = 2
    workers: int = 3
    every: float = 1.5
    durability: str = "log"
    checkpoint_every: float = 2.0
    lose_messages: bool = True
    seed: int = 0


def run_chaos(plan: ChaosPlan, folder: Path) -> Verdict:
    """Run the workload under faults, as many lives of the cluster as planned, and return the verdict."""
    began, faults, kills = time.monotonic(), Counter[str](), list[float]()
    settings = HeadSettings(classes=plan.shards * (SHARED + 3 * plan.pushes), features=FEATURES, bias=False,
                            rule=ServerRule(lr=1.0))  # fmt: skip
    placement = Placement(settings.classes, plan.shards)
    job_folder = JobFolder(folder / "job", settings, placement)
    _start_at_zero(job_folder)
    for life in range(plan.lives):
        steps = plan.pushes * (life + 1) // plan.lives
        done = _live(plan, settings, placement, folder / "job", steps, life)
        faults, kills = faults + done[0], kills + done[1]
        if life + 1 < plan.lives:
            faults["kill cluster"] += 1
            kills.append(time.time())
    rows = [job_folder.open_shard(number).rows.weight for number in range(plan.shards)]
    verdict = judged(read_ledgers(folder / "ledgers"), rows, kills, plan.checkpoint_every)
    verdict.faults, verdict.seconds = dict(faults), time.monotonic() - began
    return verdict


def _start_at_zero(folder: JobFolder) -> None:
    for number in range(folder.placement.shards):
        shard = folder.open_shard(number)
        shard.rows.weight[:] = 0
        folder.save_shard(shard)


def _live(
    plan: ChaosPlan, settings: HeadSettings, placement: Placement, folder: Path, steps: int, life: int
) -> tuple[Counter[str], list[float]]:
    """Run one life of the cluster; returns the faults, and when shards were killed."""
    options = RunOptions(shards=plan.shards, workers=plan.workers, folder=folder, durability=plan.durability,
                         checkpoint_every=plan.checkpoint_every, lease=3.0, deadline=30.0)  # fmt: skip
    job = Job(trunk=_no_trunk, batches=lambda number: (None, None), head=settings, steps=steps)
    with _cluster(plan) as (ray, node_faults):
        from experiments.distributed.counter_worker import CounterWorker

        processes: dict[str, list[int]] = {}
        run = RayRun(ray, JobText("counter", ""), job, options, placement, lambda _: None, CounterWorker)

        def look(summary: Any) -> None:
            processes["shard"] = [report["process"] for report in summary.shards]
            known = ray.get(run.coordinator.processes.remote())
            processes["worker"] = [process for _, process in known.values()]

        run.watch = look
        faults = plan.faults // plan.lives
        with Nemesis(lambda: processes, every=plan.every, faults=faults, seed=plan.seed + life,
                     others=node_faults) as nemesis:  # fmt: skip
            run.finish()
        return nemesis.done, nemesis.shard_kills


def _no_trunk() -> Any:
    import torch

    return torch.nn.Identity()


@contextmanager
def _cluster(plan: ChaosPlan) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield ray, connected to a cluster of the plan's size, and the faults that its nodes offer."""
    os.environ["PYTHONPATH"] = str(ROOT)  # actors import the workload from here
    if plan.lose_messages:
        os.environ[LOSING] = json.dumps(LOST_MESSAGES)
    try:
        with ray_session(None, plan.shards + plan.workers + 2) as ray:
            yield ray, {}
    finally:
        os.environ.pop(LOSING, None)


def main() -> int:
    """Run as a command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for one in dataclasses.fields(ChaosPlan):
        if one.name != "lose_messages":
            parser.add_argument(f"--{one.name.replace('_', '-')}", type=type(one.default), default=one.default)
    plan = ChaosPlan(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory(prefix="manyclass-chaos-") as folder:
        verdict = run_chaos(plan, Path(folder))
    print(json.dumps(dataclasses.asdict(verdict), indent=1))
    return 0 if verdict.holds(plan.durability) else 1


if __name__ == "__main__":
    sys.exit(main())
