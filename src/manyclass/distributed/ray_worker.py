"""A worker in a Ray actor: it runs the text of the job, joins, and works until all is done or it is given up."""

import os
import socket
from typing import Any

from manyclass.distributed.coordinator import Assignment
from manyclass.distributed.job import JobText
from manyclass.distributed.placement import Placement
from manyclass.distributed.push_ledger import FencedError
from manyclass.distributed.ray_caller import RayCaller, asked
from manyclass.distributed.run_options import RunOptions
from manyclass.distributed.transport import Identity
from manyclass.distributed.worker import Pipeline, StepReport, Worker
from manyclass.distributed.worker_loop import prepare, work

DEPTH = 2  # steps under way, unless told


class WorkerActor:
    """One replica."""

    def __init__(self, number: int, text: JobText, placement: Placement, options: RunOptions) -> None:
        import torch

        torch.set_num_threads(options.threads)
        self.number, self.options, self.placement = number, options, placement
        self.job = text.job()

    def run(self, coordinator: Any, shards: list[Any], trunk: Any) -> int:
        """Work until there is nothing left, and return how many calls had to be made again."""
        caller = RayCaller(shards, trunk, self.options.deadline)
        while True:
            try:
                self._run_as(join(coordinator, self.number, self.options.deadline), coordinator, caller)
                return caller.repeated
            except FencedError:  # given up while it slept: what it had under way is lost, and it starts anew
                continue

    def _run_as(self, incarnation: int, coordinator: Any, caller: RayCaller) -> None:
        from manyclass.distributed.threads_engine import made_transport
        from manyclass.distributed.torch_replica import TorchReplica

        job, options, identity = self.job, self.options, Identity(self.number, incarnation)
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
