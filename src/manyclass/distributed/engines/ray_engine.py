"""Downpour on Ray: shards, trunk and coordinator are actors, workers are actors; the same on a laptop and a cluster."""

import contextlib
import dataclasses
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from manyclass.distributed.engines.monitor import Summary
from manyclass.distributed.engines.ray_session import check_reachable, check_version, ray_session
from manyclass.distributed.engines.run_result import Point, RunResult
from manyclass.distributed.job import Job, JobText
from manyclass.distributed.placement import Placement
from manyclass.distributed.run_options import RunOptions
from manyclass.distributed.servers.checkpoints import JobFolder
from manyclass.distributed.workers.coordinator import Fence
from manyclass.errors import ConfigError, FileError, ManyclassError

LOOK_EVERY, LAST_LOOK = 0.5, 10.0  # seconds between two looks at the run, and that the last one waits for all shards
SERVING = 8  # calls that a shard works on at a time; the rest waits in its queue
PENDING = 64  # calls of one process that wait for a server: more than a worker has under way
MOST_FAILURES = 20  # of one worker, with no batch finished in between: the job is broken, not a machine
MOST_WAITS = 3  # of one worker for a server that does not come back, a deadline each


class RayEngine:
    """Runs a job on Ray. text: what workers get; watch: called now and then with a summary."""

    def __init__(
        self, text: JobText, job: Job, options: RunOptions, watch: Callable[[Summary], None] = lambda _: None
    ) -> None:
        if options.folder is None and options.address is not None:
            raise ConfigError("a cluster needs --folder, on storage that all of its machines see: a shard that is "
                              "restarted elsewhere takes its checkpoint from there")  # fmt: skip
        check_version()
        if options.address is not None:
            check_reachable(options.address)
        from manyclass.distributed.workers.dry_run import check_job

        check_job(job)
        self.text, self.job, self.options, self.watch = text, job, options, watch
        self.placement = Placement(job.head.classes, options.shards, seed=job.head.seed)

    def run(self) -> RunResult:
        """Train until every batch is finished, and return what came of it."""
        with tempfile.TemporaryDirectory(prefix="manyclass-") as temporary:
            folder = Path(temporary) if self.options.folder is None else Path(self.options.folder).absolute()
            options = dataclasses.replace(self.options, folder=folder)
            job_folder = JobFolder(folder, self.job.head, self.placement)
            with job_folder.own_job(), ray_session(options.address, options.cpus + 2) as ray:
                check_places(ray.cluster_resources().get("CPU", 0), options)
                return RayRun(ray, self.text, self.job, options, self.placement, self.watch).finish()


def check_places(places: float, options: RunOptions) -> None:
    """Raise a ConfigError where a cluster has not enough CPUs: Ray would wait for machines that nobody adds."""
    if places < options.cpus:
        raise ConfigError(
            f"shards={options.shards} with shard_threads={options.shard_threads} and workers={options.workers} take "
            f"{options.cpus} CPUs, the cluster has {places:g}; give fewer, or add machines"
        )


class RayRun:
    """One run on a cluster that is connected.

    worker_class, shard_class: what workers and shards are, if not replicas of the job's trunk and its `ShardServer`.
    """

    def __init__(
        self,
        ray: Any,
        text: JobText,
        job: Job,
        options: RunOptions,
        placement: Placement,
        watch: Callable[[Summary], None],
        worker_class: type | None = None,
        shard_class: type | None = None,
    ) -> None:
        from manyclass.distributed.engines import ray_servers
        from manyclass.distributed.workers.torch_replica import trunk_arrays

        assert options.folder is not None
        self.ray, self.text, self.job, self.options, self.placement, self.watch = (
            ray, text, job, options, placement, watch)  # fmt: skip
        self.folder = JobFolder(options.folder, job.head, placement)
        manifest = self.folder.manifest()  # refuses the folder of another job before anything starts
        self.model = job.trunk()
        values, buffers = trunk_arrays(self.model)
        serving = {"max_restarts": -1, "max_concurrency": SERVING, "max_pending_calls": PENDING}
        made = ray.remote(**serving, num_cpus=options.shard_threads, scheduling_strategy="SPREAD")(
            shard_class or ray_servers.ShardServer
        )
        self.shards = [made.remote(job.head, placement, number, options) for number in range(options.shards)]
        trunk_class = ray.remote(**serving, num_cpus=0)(ray_servers.TrunkActor)
        self.trunk = trunk_class.remote(values, buffers, job.head, placement, job.trunk_rule, options)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )  # beside this process: without either, the run is over anyway
        coordinator_class = ray.remote(num_cpus=0, max_concurrency=2 * SERVING, scheduling_strategy=here)(
            ray_servers.CoordinatorActor
        )
        saved = None if manifest is None else manifest["coordinator"]
        self.coordinator = coordinator_class.remote(job.steps, options, self.folder.new_epoch(), saved)
        self.worker_class = worker_class
        self.workers: dict[Any, tuple[int, Any]] = {}  # by what stands for the end of their work
        self.failures: Counter[tuple[int, bool]] = Counter()  # by worker, and whether it waited in vain
        self._fences: list[Fence] = []
        self._reports: dict[Any, Any] = {}  # by what stands for the answer of a server: the server
        self._saving: list[Any] = []
        self._progress: dict[str, Any] = {}

    def finish(self) -> RunResult:
        """Work until all batches are finished, and return what came of it."""
        for server in (*self.shards, self.trunk):  # they are there, or say why not
            self.ask(server.report, name="the trunk's server" if server is self.trunk else "a shard", restarts=True)
        for number in range(self.options.workers):
            self._start_worker(number)
        curve: list[Point] = []
        began = time.monotonic()
        self._look_on(curve, began)
        seconds = time.monotonic() - began
        self._save_now()
        finished, _, _, summary = self.ask(self.coordinator.look)
        self._reports.clear()  # they are older than the last push
        summary = self._summary(summary, LAST_LOOK)
        if self.job.test is not None:
            curve.append(Point(finished, seconds, self._accuracy()))
        self.watch(summary)
        enough = self.job.learned is None or (bool(curve) and curve[-1].accuracy >= self.job.learned)
        return RunResult(summary, curve, enough)

    def _look_on(self, curve: list[Point], began: float) -> None:
        from manyclass.distributed.engines import ray_caller

        every, next_save = self.options.evaluate_every, time.monotonic() + self.options.checkpoint_every
        due, before = every or 0, 0
        while True:
            time.sleep(0 if self.workers else LOOK_EVERY)
            ended, _ = self.ray.wait(list(self.workers), timeout=LOOK_EVERY) if self.workers else ([], None)
            for end in ended:
                self._worker_ended(end)
            finished, over, self._fences, summary = self.ask(self.coordinator.look)
            if finished > before:
                before = finished
                self.failures.clear()
            self.watch(self._summary(summary))
            if over:
                return
            if every and self.job.test is not None and finished >= due:
                due = (finished // every + 1) * every
                with contextlib.suppress(ray_caller.UnavailableError):  # a curve may miss a point, the job goes on
                    curve.append(Point(finished, time.monotonic() - began, self._accuracy()))
            if time.monotonic() > next_save and self._save_beside():
                next_save = time.monotonic() + self.options.checkpoint_every

    def _start_worker(self, number: int) -> None:
        from manyclass.distributed.engines.ray_worker import WorkerActor

        made = self.ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(self.worker_class or WorkerActor)
        worker = made.remote(number, self.text, self.placement, self.options)
        self.workers[worker.run.remote(self.coordinator, self.shards, self.trunk)] = number, worker

    def _worker_ended(self, end: Any) -> None:
        """A worker is done, or died: then its pushes are refused from now on, and another takes its place."""
        from manyclass.distributed.engines.ray_caller import UnavailableError

        number, _ = self.workers.pop(end)
        try:
            self.ray.get(end)
            return
        except self.ray.exceptions.RayTaskError as error:
            failure = getattr(error, "cause", None) or error
        except self.ray.exceptions.RayError as error:
            failure = error
        in_vain = isinstance(failure, UnavailableError)  # for a server that was gone, and may be back by now
        if isinstance(failure, ManyclassError) and not in_vain:
            raise failure from None  # a broken job, a loss that is not finite: nobody could do better
        self.failures[number, in_vain] += 1
        if self.failures[number, in_vain] > (MOST_WAITS if in_vain else MOST_FAILURES):
            said = [line for line in str(failure).splitlines() if line.strip()] or [""]
            raise ManyclassError(f"worker {number} failed {self.failures[number, in_vain]} times while no batch was "
                                 f"finished, last with {type(failure).__name__}: {said[0]}")  # fmt: skip
        self.ask(self.coordinator.give_up, number)
        self._start_worker(number)

    def _summary(self, summary: Summary, patience: float = LOOK_EVERY) -> Summary:
        """Return a summary with the reports of those shards that answer soon, and tell all servers of all fences.

        Each has one report under way: a server that is restarting gets no queue of them.
        """
        asked = set(self._reports.values())
        for server in (*self.shards, self.trunk):
            if server not in asked:
                self._reports[server.report.remote(self._fences)] = server
        ready, _ = self.ray.wait(list(self._reports), num_returns=len(self._reports), timeout=patience)
        reports = []
        for answer in ready:
            server = self._reports.pop(answer)
            try:
                found = self.ray.get(answer)
            except self.ray.exceptions.RayTaskError as error:  # it has started again, and cannot go on
                raise getattr(error, "cause", None) or error from None
            except self.ray.exceptions.RayError:
                continue  # it is being restarted
            if server is not self.trunk:
                reports.append(found)
        return dataclasses.replace(summary, shards=sorted(reports, key=lambda report: report["shard"]))

    def _save_beside(self) -> bool:
        """Start checkpoints of all servers, unless the last ones are not done; the manifest follows them."""
        if self._saving:
            ready, _ = self.ray.wait(self._saving, num_returns=len(self._saving), timeout=0)
            if len(ready) < len(self._saving):
                return False
            self._finish_saving()
        self._progress = self.ask(self.coordinator.saved)  # before: it is in what follows
        self._saving = [server.save.remote() for server in (*self.shards, self.trunk)]
        return True

    def _finish_saving(self) -> Exception | None:
        """Wait for checkpoints that were started, and return what went wrong; the manifest before stays then."""
        saving, self._saving = self._saving, []
        try:
            self.ray.get(saving)
        except self.ray.exceptions.RayTaskError as error:  # a full disk does not empty itself
            cause = getattr(error, "cause", None) or error
            raise FileError(f"a checkpoint cannot be written ({cause}); the same command goes on from the one before "
                            "when that is mended") from None  # fmt: skip
        except self.ray.exceptions.RayError as error:
            failure: Exception = error  # a server died meanwhile, an answer was lost
            return failure
        self.folder.write_manifest(self._progress)
        return None

    def _save_now(self) -> None:
        """Write the last checkpoints; a server that dies meanwhile is asked again, or the end of the job is lost."""
        until = time.monotonic() + self.options.deadline
        if self._saving:
            self._finish_saving()
        while True:
            self._save_beside()
            failure = self._finish_saving()
            if failure is None:
                return
            if time.monotonic() > until:
                raise ManyclassError(f"the last checkpoint could not be written for {self.options.deadline:.0f} s "
                                     f"({failure}); the same command goes on from the one before")  # fmt: skip
            time.sleep(LOOK_EVERY)

    def ask(self, method: Any, *arguments: Any, name: str = "the coordinator", restarts: bool = False) -> Any:
        """Return what an actor answers to a call that may be made again; name, restarts: of the actor."""
        from manyclass.distributed.engines.ray_caller import asked

        return asked(lambda: method.remote(*arguments), name, self.options.deadline, restarts=restarts)

    def _accuracy(self) -> float:
        from manyclass.distributed.engines.ray_caller import RayCaller
        from manyclass.distributed.workers.sharded_model import ShardedModel, accuracy

        caller = RayCaller(self.shards, self.trunk, self.options.deadline)
        model = ShardedModel(self.model, self.placement, lambda calls: caller.answers(caller.start(calls)))
        assert self.job.test is not None
        return accuracy(model, self.job.test())
