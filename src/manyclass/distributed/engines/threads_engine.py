"""Downpour on one machine: shards are objects, workers are threads; native code and torch release the interpreter.

The default engine: nothing to install, nothing to start, no copies. Calls are plain function calls; rows are kept whole
by the lock of their shard. Threads do not die alone, so that there is no lease: nobody is given up, however slow.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import torch

from manyclass.distributed.engines.monitor import Monitor, Summary
from manyclass.distributed.engines.run_result import Point, RunResult
from manyclass.distributed.job import Job
from manyclass.distributed.placement import Placement
from manyclass.distributed.run_options import RunOptions
from manyclass.distributed.servers.checkpoints import JobFolder
from manyclass.distributed.servers.shard import ParameterShard
from manyclass.distributed.servers.trunk_server import TrunkServer
from manyclass.distributed.steps.activations_transport import ActivationsTransport
from manyclass.distributed.steps.rows_transport import RowsTransport
from manyclass.distributed.steps.transport import TRUNK, Call, Identity, Transport
from manyclass.distributed.workers.coordinator import Coordinator
from manyclass.distributed.workers.dry_run import check_job
from manyclass.distributed.workers.sharded_model import ShardedModel, accuracy
from manyclass.distributed.workers.torch_replica import TorchReplica, trunk_arrays
from manyclass.distributed.workers.worker import Pipeline, Worker
from manyclass.distributed.workers.worker_loop import Caller, InlineCaller, prepare, work

LOOK_EVERY = 0.5  # seconds between two looks at the run


class ThreadsEngine:
    """Runs a job with threads. watch: called now and then with a summary."""

    def __init__(self, job: Job, options: RunOptions, watch: Callable[[Summary], None] = lambda _: None) -> None:
        self.job, self.options, self.watch = job, options, watch
        check_job(job)
        head = job.head
        self.placement = Placement(head.classes, options.shards, seed=head.seed)
        self.monitor = Monitor(options.workers)
        self.model = job.trunk()
        self.trunk = TrunkServer(
            *trunk_arrays(self.model),
            rule=job.trunk_rule,
            staleness=options.staleness,
            buffer_share=1 / options.workers,
        )
        self.folder = None if options.folder is None else JobFolder(options.folder, head, self.placement)
        with contextlib.ExitStack() as owned:
            if self.folder is not None:
                owned.enter_context(self.folder.own_job())  # before anything is read: whoever has it may be writing
            manifest = None if self.folder is None else self.folder.manifest()  # refuses the folder of another job
            self.shards = self._opened_shards()
            epoch = 0 if self.folder is None else self.folder.new_epoch()
            self.coordinator = Coordinator(job.steps, staleness=options.staleness, epoch=epoch)
            if manifest is not None:
                self.coordinator.restore(manifest["coordinator"])
            self._owned = owned.pop_all()  # until the run is over
        self._failure: BaseException | None = None
        self._over = threading.Event()

    def run(self) -> RunResult:
        """Train until every batch is finished, and return what came of it."""
        with self._owned:
            return self._run()

    def _run(self) -> RunResult:
        curve: list[Point] = []
        threads = [threading.Thread(target=self._guarded, args=(self._work, number), name=f"worker {number}")
                   for number in range(self.options.workers)]  # fmt: skip
        if self.folder is not None:
            threads.append(threading.Thread(target=self._guarded, args=(self._save_now_and_then,), name="checkpoints"))
        began = time.monotonic()
        with one_blas_thread():
            for thread in threads:
                thread.start()
            try:
                self._look_on(curve, began)
            finally:
                self._over.set()
                for thread in threads:
                    thread.join()
            if self._failure is not None:
                raise self._failure
            seconds = time.monotonic() - began
            if self.folder is not None:  # before the evaluation, which is code of the job and may fail
                self.save()
            if self.job.test is not None:
                curve.append(Point(self.coordinator.finished, seconds, self._accuracy()))
        summary = self.summary()
        self.watch(summary)
        enough = self.job.learned is None or (bool(curve) and curve[-1].accuracy >= self.job.learned)
        return RunResult(summary, curve, enough)

    def summary(self) -> Summary:
        """Return how the run is now."""
        return self.monitor.summary([shard.report() for shard in self.shards])

    def save(self) -> None:
        """Write checkpoints of all servers, and then the manifest that says how far they are."""
        assert self.folder is not None
        progress = self.coordinator.saved()  # before: what is finished now is in the checkpoints that follow
        for shard in self.shards:
            self.folder.save_shard(shard)
        self.folder.save_trunk(self.trunk)
        self.folder.write_manifest(progress)

    def call(self, call: Call) -> Any:
        """Make a call of a server."""
        server = self.trunk if call.server == TRUNK else self.shards[call.server]
        return getattr(server, call.method)(call.message)

    def _opened_shards(self) -> list[ParameterShard]:
        parts: dict[str, Any] = {"staleness": self.options.staleness, "threads": self.options.shard_threads}
        numbers = range(self.options.shards)
        if self.folder is None:
            return [ParameterShard(self.job.head, self.placement, number, **parts) for number in numbers]
        self.folder.load_trunk(self.trunk)
        durability = self.options.durability
        return [self.folder.open_shard(number, durability=durability, **parts) for number in numbers]

    def _look_on(self, curve: list[Point], began: float) -> None:
        """Watch and evaluate until all is done."""
        every = self.options.evaluate_every
        due = every or 0
        while not self.coordinator.over and not self._over.wait(LOOK_EVERY):
            if every and self.job.test is not None and self.coordinator.finished >= due:
                due = (self.coordinator.finished // every + 1) * every
                curve.append(Point(self.coordinator.finished, time.monotonic() - began, self._accuracy()))
            self.watch(self.summary())

    def _accuracy(self) -> float:
        assert self.job.test is not None
        model = ShardedModel(self.model, self.placement, lambda calls: [self.call(call) for call in calls])
        return accuracy(model, self.job.test())

    def _work(self, number: int) -> None:
        torch.set_num_threads(self.options.threads)
        incarnation = self.coordinator.join(number, time.monotonic())
        identity, options = Identity(number, incarnation), self.options
        replica = TorchReplica(self.job.trunk(), self.job.batches)
        transport = made_transport(self.job, options, self.placement, identity)
        rate = self.job.trunk_rule.lr
        worker = Worker(identity, replica, transport, self.job.head, trunk_every=options.trunk_every, rate=rate)
        depth = options.pipeline or 1
        with ThreadPoolExecutor(max(1, depth * options.shards)) as pool:
            caller: Caller = InlineCaller(self.call) if depth == 1 else PooledCaller(self.call, pool)
            prepare(worker, caller)
            self.monitor.started(number)
            work(
                Pipeline(worker, depth),
                caller,
                lambda finished, _: self.coordinator.next(number, incarnation, finished, time.monotonic()),
                lambda report: self.monitor.note(number, report),
                self._over.is_set,
            )
        self._over.set()  # a worker ends when all batches are finished

    def _save_now_and_then(self) -> None:
        while not self._over.wait(self.options.checkpoint_every):
            self.save()

    def _guarded(self, target: Callable[..., None], *arguments: Any) -> None:
        """Run a thread's work; what it raises ends the run, and is raised there."""
        try:
            target(*arguments)
        except BaseException as failure:
            self._failure = self._failure or failure
            self._over.set()


class PooledCaller:
    """Makes calls of objects in this process by threads of a pool, so that a worker goes on meanwhile."""

    def __init__(self, make: Callable[[Call], Any], pool: ThreadPoolExecutor) -> None:
        self.make, self.pool = make, pool

    def start(self, calls: list[Call]) -> list[Future[Any]]:
        return [self.pool.submit(self.make, call) for call in calls]

    def first(self, started: list[list[Future[Any]]]) -> int:
        while True:
            for number, futures in enumerate(started):
                if all(future.done() for future in futures):
                    return number
            wait([future for futures in started for future in futures if not future.done()],
                 return_when=FIRST_COMPLETED)  # fmt: skip

    def answers(self, started: list[Future[Any]]) -> list[Any]:
        return [future.result() for future in started]


def made_transport(job: Job, options: RunOptions, placement: Placement, identity: Identity) -> Transport:
    """Return the transport that a run asks for."""
    if options.transport == "rows":
        return RowsTransport(job.head, placement, identity, options.threads)
    return ActivationsTransport(job.head, placement, identity)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep NumPy's products to one thread each, where threadpoolctl is installed: workers are the threads here."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(1):
        yield
