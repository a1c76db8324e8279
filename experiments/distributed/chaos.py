"""Proof that pushes count exactly once: the counter workload under faults, compared with its ledger.

    python -m experiments.distributed.chaos --pushes 10000 --faults 100

Faults: SIGKILL of shards and workers, pauses that outlive the lease, nodes that are removed, dropped requests and
answers, and the whole cluster killed and resumed. It goes on until so many pushes were acknowledged and so many faults
have happened. Exit code 0: both, and the rows equal the ledger.
"""

import argparse
import contextlib
import dataclasses
import faulthandler
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.distributed.chaos_cluster import cluster
from experiments.distributed.counter_ledger import (
    FEATURES,
    SHARED,
    Verdict,
    judged,
    read_ledgers,
    read_restarts,
)
from experiments.distributed.nemesis import Nemesis
from manyclass.distributed import HeadSettings, Job, ServerRule
from manyclass.distributed.engines.ray_engine import RayRun
from manyclass.distributed.job import JobText
from manyclass.distributed.placement import Placement
from manyclass.distributed.run_options import RunOptions
from manyclass.distributed.servers.checkpoints import JobFolder
from manyclass.errors import ManyclassError
from manyclass.training.progress import progress_bar, spoken_time

OWN_ROWS = 100_000  # of each shard, beside those of planned pushes: for as long as the faults take
LINES_EVERY = 5.0  # seconds
HANGING = 120.0  # seconds after the limit until a run that does not even end is ended from outside

Show = Callable[[float, str], None]  # percent done, and what that means


@dataclass(frozen=True, kw_only=True)
class ChaosPlan:
    """Sizes of a run. lives: how often the whole cluster is killed, plus one. nodes: beside the head; 0: one in all.

    every: mean seconds between two faults. minutes: a run that takes longer has failed.
    """

    pushes: int = 1000
    faults: int = 6
    lives: int = 1
    nodes: int = 0
    shards: int = 2
    workers: int = 3
    every: float = 1.5
    durability: str = "log"
    checkpoint_every: float = 2.0
    minutes: float = 15.0
    lose_messages: bool = True
    seed: int = 0

    def holds(self, verdict: Verdict) -> bool:
        """Return whether what was planned has happened, and the rows equal the ledger."""
        happened = verdict.acknowledged >= self.pushes and sum(verdict.faults.values()) >= self.faults
        return happened and verdict.holds(self.durability)


class ChaosError(ManyclassError):
    """A run has not come to its end."""


class _ClusterKilledError(Exception):
    """All processes of the cluster are to be killed at once."""


def run_chaos(plan: ChaosPlan, folder: Path, show: Show = lambda percent, text: None) -> Verdict:
    """Run the workload under faults, as many lives of the cluster as planned, and return the verdict."""
    began, folder = time.monotonic(), folder.absolute()  # actors may be started elsewhere
    settings = HeadSettings(classes=plan.shards * (SHARED + 4 * plan.pushes + OWN_ROWS), features=FEATURES, bias=False,
                            rule=ServerRule(lr=1.0))  # fmt: skip
    placement = Placement(settings.classes, plan.shards)
    job_folder = JobFolder(folder / "job", settings, placement)
    _start_at_zero(job_folder)
    faults = Counter[str]()
    for life in range(plan.lives):
        faults += _Life(plan, job_folder, life, faults, began, show).lived()
    rows = [job_folder.open_shard(number).rows.weight for number in range(plan.shards)]
    restarts = read_restarts(folder / "checkpoints", plan.shards)
    verdict = judged(read_ledgers(folder / "ledgers"), rows, restarts)
    verdict.faults, verdict.seconds = dict(faults), time.monotonic() - began
    return verdict


def _start_at_zero(folder: JobFolder) -> None:
    for number in range(folder.placement.shards):
        shard = folder.open_shard(number)
        shard.rows.weight[:] = 0
        folder.save_shard(shard)


class _Life:
    """One life of the cluster, which ends when its share of pushes and faults has happened: killed, but for the last.

    before: the faults of earlier lives. began: when the first one did.
    """

    def __init__(
        self, plan: ChaosPlan, folder: JobFolder, life: int, before: Counter[str], began: float, show: Show
    ) -> None:
        self.plan, self.folder, self.life, self.before, self.began, self.show = plan, folder, life, before, began, show
        self.pushes, self.faults = (total * (life + 1) // plan.lives for total in (plan.pushes, plan.faults))
        self.processes: dict[str, list[int]] = {}

    def lived(self) -> Counter[str]:
        """Live, and return the faults."""
        plan, settings, placement = self.plan, self.folder.settings, self.folder.placement
        options = RunOptions(shards=plan.shards, workers=plan.workers, folder=self.folder.path,
                             durability=plan.durability, checkpoint_every=plan.checkpoint_every, lease=3.0,
                             deadline=30.0)  # fmt: skip
        job = Job(trunk=_no_trunk, batches=lambda number: (None, None), head=settings, steps=self.pushes)
        with cluster(plan.shards + plan.workers + 2, plan.nodes, plan.lose_messages) as nodes:
            from experiments.distributed.counter_shard import CounterShard  # imports ray, which is secured by now
            from experiments.distributed.counter_worker import CounterWorker

            run = RayRun(nodes.ray, JobText("counter", str(self.pushes)), job, options, placement, lambda _: None,
                         CounterWorker, CounterShard)  # fmt: skip
            nemesis = Nemesis(lambda: self.processes, every=plan.every, others=nodes.faults,
                              faults=self.faults - plan.faults * self.life // plan.lives,
                              seed=plan.seed + self.life)  # fmt: skip

            def look(summary: Any) -> None:
                nodes.mend()
                self._look(run, nemesis, summary)

            run.watch = look
            with nemesis:  # a fault may hit at any time from here on
                try:
                    run.finish()
                except _ClusterKilledError:
                    for process in self.processes["shard"] + self.processes["worker"]:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(process, signal.SIGKILL)
                    nemesis.done["kill cluster"] += 1
            return nemesis.done

    def _look(self, run: RayRun, nemesis: Nemesis, summary: Any) -> None:
        from experiments.distributed.counter_worker import HELD, OVER

        self.processes["shard"] = [report["process"] for report in summary.shards]
        known = run.ask(run.coordinator.processes)
        self.processes["worker"] = [process for _, process in known.values()]
        saved = run.ask(run.coordinator.saved)
        pushes = saved["done_through"] + len(saved["done"])
        faults = sum(self.before.values()) + sum(nemesis.done.values())
        self._tell(pushes, faults)
        if nemesis.failure is not None:
            raise ChaosError(f"no more faults: the last one failed ({nemesis.failure!r})") from nemesis.failure
        if time.monotonic() - self.began > 60 * self.plan.minutes:
            raise ChaosError(f"after {self.plan.minutes:g} minutes: {pushes:,} of {self.plan.pushes:,} pushes, "
                             f"{faults} of {self.plan.faults} faults; is the machine busy? (--minutes)")  # fmt: skip
        if nemesis.finished and pushes >= self.pushes - HELD:
            if self.life + 1 < self.plan.lives:
                raise _ClusterKilledError
            (self.folder.path.parent / "ledgers" / OVER).touch()

    def _tell(self, pushes: int, faults: int) -> None:
        share = min(1.0, pushes / self.plan.pushes, faults / max(1, self.plan.faults))
        self.show(100 * share, f"{pushes:,}/{self.plan.pushes:,} pushes, {faults}/{self.plan.faults} faults")


def _no_trunk() -> Any:
    import torch

    return torch.nn.Identity()


@contextmanager
def _shown() -> Iterator[Show]:
    """Yield what shows how far a run is: a bar on a terminal, a line every few seconds elsewhere."""
    if sys.stderr.isatty():
        with progress_bar(100, "%", True, Console(stderr=True)) as show:
            yield show
        return
    began = said = time.monotonic()

    def say(percent: float, text: str) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= LINES_EVERY:
            said = now
            left = f", about {spoken_time((now - began) * (100 / percent - 1))} left" if percent else ""
            print(f"{percent:.0f}%: {text}{left}", file=sys.stderr, flush=True)

    yield say


def main() -> int:
    """Run as a command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for one in dataclasses.fields(ChaosPlan):
        if one.name != "lose_messages":
            parser.add_argument(f"--{one.name.replace('_', '-')}", type=type(one.default), default=one.default)
    plan = ChaosPlan(**vars(parser.parse_args()))
    faulthandler.dump_traceback_later(60 * plan.minutes + HANGING, exit=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="manyclass-chaos-") as folder,
            _shown() as show,
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere),  # Ray tells of every process that dies; here they are meant to
        ):
            verdict = run_chaos(plan, Path(folder), show)
    except ManyclassError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps(dataclasses.asdict(verdict) | {"holds": plan.holds(verdict)}, indent=1))
    return 0 if plan.holds(verdict) else 1


if __name__ == "__main__":
    sys.exit(main())
