"""What runs in Ray's actors beside workers: a shard, the trunk's server, the coordinator. No torch in any of them.

What a server raises when it starts is kept, and raised by its methods: Ray would only say that the actor died.
"""

import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from manyclass.distributed.engines.monitor import Monitor, Summary
from manyclass.distributed.engines.ray_metrics import ShardMetrics, WorkerMetrics
from manyclass.distributed.messages import Arrays, FencedError, Floats, Outcome
from manyclass.distributed.placement import Placement
from manyclass.distributed.run_options import RunOptions
from manyclass.distributed.servers.checkpoints import JobFolder
from manyclass.distributed.servers.trunk_server import TrunkServer
from manyclass.distributed.settings import HeadSettings
from manyclass.distributed.steps.transport import with_x
from manyclass.distributed.workers.coordinator import Assignment, Coordinator, Fence
from manyclass.distributed.workers.worker import StepReport
from manyclass.errors import ManyclassError


class Opened:
    """A server that could be started, or says with every call why not."""

    def __init__(self) -> None:
        self.refused: ManyclassError | None = None

    @contextmanager
    def opening(self, name: str) -> Iterator[None]:
        """Keep what goes wrong meanwhile."""
        try:
            yield
        except ManyclassError as error:
            self.refused = error
        except Exception as error:
            self.refused = ManyclassError(f"{name} cannot start on {socket.gethostname()} ({type(error).__name__}: "
                                          f"{error}); the same command goes on when that is mended")  # fmt: skip

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.refused is not None:
            raise self.refused


class ShardServer(Opened):
    """A shard in a process of its own; when it starts, also after it died, it takes its newest whole checkpoint."""

    def __init__(self, settings: HeadSettings, placement: Placement, number: int, options: RunOptions) -> None:
        super().__init__()
        assert options.folder is not None
        with self.opening(f"shard {number}"):
            self.folder = JobFolder(options.folder, settings, placement)
            self.owned = self.folder.own_shard(number)  # before it reads: whoever had the files writes no more
            self.shard = self.folder.open_shard(
                number, durability=options.durability, staleness=options.staleness, threads=options.shard_threads
            )
            self.metrics = ShardMetrics(number)

    def call(self, method: str, message: Any, x: Floats | None = None) -> Any:
        """Make a call of the shard. x: the activations, where they travel apart from the message."""
        self.check()
        answer = getattr(self.shard, method)(message if x is None else with_x(message, x))
        if getattr(answer, "outcome", None) == Outcome.APPLIED:
            self.metrics.applied(answer.staleness)
        return answer

    def save(self) -> int:
        """Write a checkpoint and return its version; traffic goes on meanwhile."""
        self.check()
        return int(Path(self.folder.save_shard(self.shard)).stem.rsplit("-", 1)[1])

    def report(self, fences: Iterable[Fence] = ()) -> dict[str, Any]:
        """Return how the shard is doing. fences: workers that were given up, all of them: they are refused from now on.

        It is told with every look, so that one look that gets lost, or a restart, does no harm.
        """
        self.check()
        for fence in fences:
            self.shard.fence(fence.worker, fence.incarnation)
        found = {
            **self.shard.report(),
            "host": socket.gethostname(),
            "process": os.getpid(),
            "torch": "torch" in sys.modules,  # hundreds of MB that a shard has no use for
        }
        self.metrics.seen(found)
        return found


class TrunkActor(Opened):
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
        super().__init__()
        assert options.folder is not None
        with self.opening("the trunk's server"):
            self.folder = JobFolder(options.folder, settings, placement)
            self.server = TrunkServer(
                values, buffers, rule=rule, staleness=options.staleness, buffer_share=1 / options.workers
            )
            self.folder.load_trunk(self.server)

    def call(self, method: str, message: Any, x: Floats | None = None) -> Any:
        """Make a call of the server."""
        self.check()
        return getattr(self.server, method)(message)

    def report(self, fences: Iterable[Fence] = ()) -> dict[str, Any]:
        """Return how the server is doing; fences as those of a shard."""
        self.check()
        for fence in fences:
            self.server.fence(fence.worker, fence.incarnation)
        return self.server.report()

    def save(self) -> None:
        """Write a checkpoint."""
        self.check()
        self.folder.save_trunk(self.server)


class CoordinatorActor:
    """The coordinator, and the place where reports of all workers come together."""

    def __init__(self, batches: int, options: RunOptions, epoch: int, saved: dict[str, Any] | None) -> None:
        self.coordinator = Coordinator(batches, staleness=options.staleness, lease=options.lease, epoch=epoch)
        if saved is not None:
            self.coordinator.restore(saved)
        self.monitor = Monitor(options.workers)
        self._started: dict[int, int] = {}  # the incarnation of each worker that has asked for batches
        self.metrics = WorkerMetrics()
        self._processes: dict[int, tuple[str, int]] = {}
        self._fences: dict[int, Fence] = {}

    def join(self, worker: int, host: str, process: int) -> int:
        """Return the incarnation under which a worker is to push."""
        self._processes[worker] = host, process
        return self.coordinator.join(worker, time.monotonic())

    def alive(self, worker: int, incarnation: int) -> None:
        """Take note that a worker lives; one that was given up is not told here, as nobody waits for the answer."""
        with suppress(FencedError):
            self.coordinator.alive(worker, incarnation, time.monotonic())

    def next(
        self, worker: int, incarnation: int, finished: list[int], holding: list[int], reports: list[StepReport]
    ) -> Assignment:
        """Take note of finished batches and their reports, and return what to do next.

        Reports of batches that are known as finished are not added again: their answer was lost, and they come twice.
        """
        dealt = self.coordinator.next(worker, incarnation, finished, time.monotonic(), holding)
        if self._started.get(worker) != incarnation:  # its replica and its rows are there: the clock may start
            self._started[worker] = incarnation
            self.monitor.started(worker)
        for report in reports:
            if report.number in dealt.accepted:
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
