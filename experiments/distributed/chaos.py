"""Proof that pushes count exactly once: the counter workload under faults, compared with its ledger.

    python -m experiments.distributed.chaos --pushes 10000 --faults 100

Faults: SIGKILL of shards and workers, pauses that outlive the lease, nodes that are removed, dropped requests and
answers, and the whole cluster killed and resumed. Exit code 0: the rows equal the ledger.
"""

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import signal
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
from manyclass.distributed.ray_session import ray_session, secure_environment
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


class _ClusterKilledError(Exception):
    """All processes of the cluster were killed at once."""


def run_chaos(plan: ChaosPlan, folder: Path) -> Verdict:
    """Run the workload under faults, as many lives of the cluster as planned, and return the verdict."""
    began, faults, kills = time.monotonic(), Counter[str](), list[float]()
    settings = HeadSettings(classes=plan.shards * (SHARED + 4 * plan.pushes), features=FEATURES, bias=False,
                            rule=ServerRule(lr=1.0))  # fmt: skip
    placement = Placement(settings.classes, plan.shards)
    job_folder = JobFolder(folder / "job", settings, placement)
    _start_at_zero(job_folder)
    for life in range(plan.lives):
        done = _live(plan, settings, placement, folder / "job", life)
        faults, kills = faults + done.done, kills + done.shard_kills
    rows = [job_folder.open_shard(number).rows.weight for number in range(plan.shards)]
    verdict = judged(read_ledgers(folder / "ledgers"), rows, kills, plan.checkpoint_every)
    verdict.faults, verdict.seconds = dict(faults), time.monotonic() - began
    return verdict


def _start_at_zero(folder: JobFolder) -> None:
    for number in range(folder.placement.shards):
        shard = folder.open_shard(number)
        shard.rows.weight[:] = 0
        folder.save_shard(shard)


def _live(plan: ChaosPlan, settings: HeadSettings, placement: Placement, folder: Path, life: int) -> Nemesis:
    """Run one life of the cluster, which ends by killing all of it, but for the last; returns what did the damage."""
    options = RunOptions(shards=plan.shards, workers=plan.workers, folder=folder, durability=plan.durability,
                         checkpoint_every=plan.checkpoint_every, lease=3.0, deadline=30.0)  # fmt: skip
    job = Job(trunk=_no_trunk, batches=lambda number: (None, None), head=settings, steps=plan.pushes)
    enough = plan.pushes * (life + 1) // plan.lives
    with _cluster(plan) as (ray, node_faults):
        from experiments.distributed.counter_worker import CounterWorker

        processes: dict[str, list[int]] = {}
        run = RayRun(ray, JobText("counter", ""), job, options, placement, lambda _: None, CounterWorker)
        faults = plan.faults // plan.lives
        nemesis = Nemesis(lambda: processes, every=plan.every, faults=faults, seed=plan.seed + life,
                          others=node_faults)  # fmt: skip

        def look(summary: Any) -> None:
            processes["shard"] = [report["process"] for report in summary.shards]
            known = run.ask(run.coordinator.processes)
            processes["worker"] = [process for _, process in known.values()]
            saved = run.ask(run.coordinator.saved)
            if life + 1 < plan.lives and saved["done_through"] + len(saved["done"]) >= enough:
                raise _ClusterKilledError

        run.watch = look
        with nemesis:  # a fault may hit at any time from here on
            try:
                run.finish()
            except _ClusterKilledError:
                for process in processes["shard"] + processes["worker"]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                nemesis.done["kill cluster"] += 1
                nemesis.shard_kills.append(time.time())
        return nemesis


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
        if not plan.nodes:
            with ray_session(None, plan.shards + plan.workers + 2) as ray:
                yield ray, {}
        else:
            with _several_nodes(plan) as found:
                yield found
    finally:
        os.environ.pop(LOSING, None)


@contextmanager
def _several_nodes(plan: ChaosPlan) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield ray on a cluster of several nodes on this machine, of which one may be removed at a time."""
    secure_environment()
    import ray
    from ray.cluster_utils import Cluster

    places: dict[str, Any] = {"num_cpus": plan.shards + plan.workers + 2, "object_store_memory": 150 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **places, "num_cpus": 1})
    nodes = [cluster.add_node(**places) for _ in range(plan.nodes)]
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)

    def remove() -> bool:
        cluster.remove_node(nodes.pop(0), allow_graceful=False)
        nodes.append(cluster.add_node(**places))
        return True

    try:
        yield ray, {"remove node": (2, remove)}
    finally:
        ray.shutdown()
        cluster.shutdown()


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
