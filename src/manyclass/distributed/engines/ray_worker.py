"""A worker in a Ray actor: it runs the text of the job, joins, and works until all is done or it is given up."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

from ray.exceptions import RayError

from manyclass.distributed.engines.ray_caller import RayCaller, asked
from manyclass.distributed.job import Job, JobText
from manyclass.distributed.messages import FencedError
from manyclass.distributed.placement import Placement
from manyclass.distributed.run_options import RunOptions
from manyclass.distributed.steps.transport import Identity
from manyclass.distributed.workers.coordinator import Assignment
from manyclass.distributed.workers.worker import Pipeline, StepReport, Worker
from manyclass.distributed.workers.worker_loop import prepare, work
from manyclass.errors import ConfigError

DEPTH = 2  # steps under way, unless told
BEATS = 3  # signs of life per lease


class WorkerActor:
    """One replica. What may fail is done in `run`: what a constructor raises, Ray hides behind the actor's death."""

    def __init__(self, number: int, text: JobText, placement: Placement, options: RunOptions) -> None:
        self.number, self.text, self.options, self.placement = number, text, options, placement

    def run(self, coordinator: Any, shards: list[Any], trunk: Any) -> int:
        """Work until there is nothing left, and return how many calls had to be made again."""
        job, caller = self._job(), RayCaller(shards, trunk, self.options.deadline)
        while True:
            incarnation = join(coordinator, self.number, self.options.deadline)
            try:
                with heartbeat(coordinator, self.number, incarnation, self.options.lease):
                    self._run_as(incarnation, job, coordinator, caller)
                return caller.repeated
            except FencedError:  # given up while it slept: what it had under way is lost, and it starts anew
                continue

    def _job(self) -> Job:
        """Return the job; what this machine lacks for it ends the run, as it would be missing in every other try."""
        try:
            import torch

            torch.set_num_threads(self.options.threads)
            return self.text.job()
        except (ConfigError, ModuleNotFoundError) as error:
            raise ConfigError(f"worker {self.number} on {socket.gethostname()}: {error}; what the job imports has to "
                              "be installed there") from None  # fmt: skip

    def _run_as(self, incarnation: int, job: Job, coordinator: Any, caller: RayCaller) -> None:
        from manyclass.distributed.engines.threads_engine import made_transport
        from manyclass.distributed.workers.torch_replica import TorchReplica

        options, identity = self.options, Identity(self.number, incarnation)
        replica = TorchReplica(job.trunk(), job.batches)
        transport = made_transport(job, options, self.placement, identity)
        worker = Worker(identity, replica, transport, job.head, trunk_every=options.trunk_every,
                        rate=job.trunk_rule.lr)  # fmt: skip
        prepare(worker, caller)
        reports: list[StepReport] = []

        def deal(finished: list[int], holding: list[int]) -> Assignment:
            told = [_without_arrays(report) for report in reports]
            reports.clear()
            return dealt(coordinator, identity, finished, holding, told, options.deadline)

        work(Pipeline(worker, options.pipeline or DEPTH), caller, deal, reports.append)


def join(coordinator: Any, number: int, deadline: float) -> int:
    """Return the incarnation under which this process is to push; where an answer is lost, the next one counts."""
    where = socket.gethostname(), os.getpid()
    return int(asked(lambda: coordinator.join.remote(number, *where), "the coordinator", deadline))


@contextlib.contextmanager
def heartbeat(coordinator: Any, number: int, incarnation: int, lease: float) -> Iterator[None]:
    """Say from a thread that this process lives, so that long steps and shards that restart are not taken for death.

    Nobody waits for the answers: one of these may get lost, and whoever was given up learns it from the next call.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.wait(lease / BEATS):
            with contextlib.suppress(RayError):
                coordinator.alive.remote(number, incarnation)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def dealt(
    coordinator: Any,
    identity: Identity,
    finished: list[int],
    holding: list[int],
    reports: list[StepReport],
    deadline: float,
) -> Assignment:
    """Return what to do next; where an answer is lost, its batches are dealt out again."""

    def ask() -> Any:
        return coordinator.next.remote(identity.worker, identity.incarnation, finished, holding, reports)

    found: Assignment = asked(ask, "the coordinator", deadline)
    return found


def _without_arrays(report: StepReport) -> StepReport:
    report.outcome.input_gradients = None
    return report
