"""What runs in Ray's actors beside workers: a shard, the trunk's server, the coordinator. No torch in any of them."""

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from manyclass.distributed.checkpoints import JobFolder
from manyclass.distributed.coordinator import Assignment, Coordinator, Fence
from manyclass.distributed.messages import Floats, Outcome
from manyclass.distributed.monitor import Monitor, Summary
from manyclass.distributed.placement import Placement
from manyclass.distributed.ray_metrics import ShardMetrics, WorkerMetrics
from manyclass.distributed.run_options import RunOptions
from manyclass.distributed.settings import HeadSettings
from manyclass.distributed.transport import with_x
from manyclass.distributed.trunk_server import Arrays, TrunkServer
from manyclass.distributed.worker import StepReport


class ShardServer:
    """A shard in a process of its own; when it starts, also after it died, it takes its newest whole checkpoint."""

    def __init__(self, settings: HeadSettings, placement: Placement, number: int, options: RunOptions) -> None:
        assert options.folder is not None
        self.folder = JobFolder(options.folder, settings, placement)
        self.owned = self.folder.own_shard(number)  # before it reads: whoever had the files writes no more
        self.shard = self.folder.open_shard(
            number, durability=options.durability, staleness=options.staleness, threads=options.threads
        )
        self.metrics = ShardMetrics(number)

    def call(self, method: str, message: Any, x: Floats | None = None) -> Any:
        """Make a call of the shard. x: the activations, where they travel apart from the message."""
        answer = getattr(self.shard, method)(message if x is None else with_x(message, x))
        if getattr(answer, "outcome", None) == Outcome.APPLIED:
            self.metrics.applied(answer.staleness)
        return answer

    def fence(self, fence: Fence) -> None:
        """Refuse a worker that was given up."""
        self.shard.fence(fence.worker, fence.incarnation)

    def save(self) -> int:
        """Write a checkpoint and return its version; traffic goes on meanwhile."""
        return int(Path(self.folder.save_shard(self.shard)).stem.rsplit("-", 1)[1])

    def report(self) -> dict[str, Any]:
        """Return how the shard is doing."""
        found = {
            **self.shard.report(),
            "host": socket.gethostname(),
            "process": os.getpid(),
            "torch": "torch" in sys.modules,  # hundreds of MB that a shard has no use for
        }
        self.metrics.seen(found)
        return found


class TrunkActor:
    """The trunk's server in a process of its own."""

    def __init__(
        self,
        values: dict[str, Floats],
        buffers: Arrays,
        settings: HeadSettings,
        placement: Placement,
        rule: Any,
        options: RunOptions,
    ) -> None:
        assert options.folder is not None
        self.folder = JobFolder(options.folder, settings, placement)
        self.server = TrunkServer(
            values, buffers, rule=rule, staleness=options.staleness, buffer_share=1 / options.workers
        )
        self.folder.load_trunk(self.server)

    def call(self, method: str, message: Any, x: Floats | None = None) -> Any:
        """Make a call of the server."""
        return getattr(self.server, method)(message)

    def fence(self, fence: Fence) -> None:
        """Refuse a worker that was given up."""
        self.server.fence(fence.worker, fence.incarnation)

    def save(self) -> None:
        """Write a checkpoint."""
        self.folder.save_trunk(self.server)


class CoordinatorActor:
    """The coordinator, and the place where reports of all workers come together."""

    def __init__(self, batches: int, options: RunOptions, epoch: int, saved: dict[str, Any] | None) -> None:
        self.coordinator = Coordinator(batches, staleness=options.staleness, lease=options.lease, epoch=epoch)
        if saved is not None:
            self.coordinator.restore(saved)
        self.monitor = Monitor()
        self.metrics = WorkerMetrics()
        self._processes: dict[int, tuple[str, int]] = {}
        self._fences: dict[int, Fence] = {}

    def join(self, worker: int, host: str, process: int) -> int:
        """Return the incarnation under which a worker is to push."""
        self._processes[worker] = host, process
        incarnation = self.coordinator.join(worker, time.monotonic())
        self.monitor.started(worker)
        return incarnation

    def next(
        self, worker: int, incarnation: int, finished: list[int], holding: list[int], reports: list[StepReport]
    ) -> Assignment:
        """Take note of finished batches and their reports, and return what to do next."""
        dealt = self.coordinator.next(worker, incarnation, finished, time.monotonic(), holding)
        for report in reports:
            self.monitor.note(worker, report)
            self.metrics.finished(worker, report)
        return dealt

    def give_up(self, worker: int) -> None:
        """Let a worker go that is known to be dead."""
        fence = self.coordinator.give_up(worker)
        if fence is not None:
            self._fences[worker] = fence

    def look(self) -> tuple[int, bool, list[Fence], Summary]:
        """Return batches finished, whether that is all, who is to be refused, and how the run is; any time again."""
        self._fences |= {fence.worker: fence for fence in self.coordinator.expire(time.monotonic())}
        fences = list(self._fences.values())
        return self.coordinator.finished, self.coordinator.over, fences, self.monitor.summary()

    def processes(self) -> dict[int, tuple[str, int]]:
        """Return where each worker runs: host and process number."""
        return dict(self._processes)

    def saved(self) -> dict[str, Any]:
        """Return what a manifest keeps."""
        return self.coordinator.saved()
