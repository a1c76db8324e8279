"""What the tests run in a process of its own: jobs on Ray that are slow, do not fit, or lose what they need."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from manyclass.distributed import HeadSettings, Job
from manyclass.distributed.engines.ray_session import ray_session
from manyclass.distributed.job import JobText
from manyclass.distributed.placement import Placement
from manyclass.distributed.run_options import RunOptions
from manyclass.errors import ManyclassError

STEPS, PAUSE, LEASE = 8, 0.4, 1.0  # a worker has four steps to do before it speaks to the coordinator again


def slow_batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch, late."""
    time.sleep(PAUSE)
    return torch.ones(4, 8), torch.arange(4)


def job(quick: bool = False) -> Job:
    """Return a job with steps that are long beside the lease."""
    return Job(
        trunk=lambda: nn.Linear(8, 8), batches=slow_batch, head=HeadSettings(classes=20, features=8), steps=STEPS
    )


def refusal(make: Callable[[], Any]) -> dict[str, Any]:
    """Return what is raised, and after how long."""
    began = time.monotonic()
    try:
        make()
    except ManyclassError as error:
        return {"kind": type(error).__name__, "said": str(error), "seconds": time.monotonic() - began}
    return {"kind": "", "said": "nothing was raised", "seconds": time.monotonic() - began}


def main(folder: Path) -> dict[str, Any]:
    """Return what was found."""
    found: dict[str, Any] = {}
    with ray_session("local", 8) as ray:
        from manyclass.distributed.engines.ray_caller import RayCaller, UnavailableError
        from manyclass.distributed.engines.ray_engine import RayEngine, RayRun
        from manyclass.distributed.engines.ray_servers import CoordinatorActor, ShardServer
        from manyclass.distributed.engines.ray_worker import WorkerActor, join
        from manyclass.distributed.messages import Push, Sender
        from manyclass.distributed.steps.transport import Call, StepOutcome
        from manyclass.distributed.workers.coordinator import Fence
        from manyclass.distributed.workers.worker import StepReport

        class FullDisk(ShardServer):
            def save(self) -> int:
                raise OSError(28, "No space left on device")

        class LeftAlone(WorkerActor):
            def run(self, *servers: Any) -> int:
                raise UnavailableError("shard 1 has not answered for 300 s")

        class LeftAloneOnce(LeftAlone):
            def run(self, *servers: Any) -> int:
                mark = self.options.folder / "left alone"  # type: ignore[operator]
                return WorkerActor.run(self, *servers) if mark.exists() else mark.touch() or super().run(*servers)

        class Idle(WorkerActor):
            def run(self, coordinator: Any, *servers: Any) -> int:
                incarnation = join(coordinator, 0, 60)
                ray.get(coordinator.next.remote(0, incarnation, list(range(STEPS)), [], []))
                return 0

        class Killer(WorkerActor):
            def run(self, coordinator: Any, *servers: Any) -> int:
                ray.kill(coordinator)
                return 0

        class Sleeper:
            def call(self, *arguments: Any) -> None:
                time.sleep(5)

        text, placement = JobText("slow", Path(__file__).read_text()), Placement(20, 1)

        def options(name: str) -> RunOptions:
            return RunOptions(workers=1, shards=1, folder=folder / name, lease=LEASE)

        def run(name: str, **classes: Any) -> Any:
            return RayRun(ray, text, job(), options(name), placement, lambda _: None, **classes).finish()

        result = run("slow", worker_class=LeftAloneOnce)
        found["slow"] = [result.summary.steps, *(report["version"] for report in result.summary.shards)]
        other = Job(trunk=lambda: nn.Sequential(nn.Linear(8, 8)), batches=slow_batch, head=job().head, steps=STEPS)
        found["another trunk"] = refusal(lambda: RayEngine(text, other, options("slow")).run())
        missing = JobText("missing", "import no_such_module")
        found["missing import"] = refusal(lambda: RayEngine(missing, job(), options("missing")).run())
        crowd = RunOptions(workers=20, shards=3, shard_threads=2)
        found["too few CPUs"] = refusal(lambda: RayEngine(text, job(), crowd).run())
        found["left alone"] = refusal(lambda: run("alone", worker_class=LeftAlone))
        found["full disk"] = refusal(lambda: run("full", worker_class=Idle, shard_class=FullDisk))

        found["no coordinator"] = refusal(lambda: run("killed", worker_class=Killer))

        caller = RayCaller([ray.remote(Sleeper).remote()], None, deadline=1.0)
        found["deadline"] = refusal(lambda: caller.answers(caller.start([Call(0, "pull", None)])))
        found["repeated"] = caller.repeated

        shard = ShardServer(job().head, placement, 0, options("fenced"))
        for _ in range(2):  # as often as anybody looks
            shard.report([Fence(3, 5)])
        rows = torch.zeros(1, dtype=torch.int32).numpy().astype("uint32")
        push = Push(Sender(3, 4, 0), 0, rows, torch.ones(1, 8).numpy(), torch.ones(1).numpy())
        found["fenced"] = refusal(lambda: shard.call("push", push))

        coordinator = CoordinatorActor(4, RunOptions(), 0, None)
        incarnation = coordinator.join(0, "here", 1)
        numbers = coordinator.next(0, incarnation, [], [], []).numbers
        reports = [StepReport(number, 10, StepOutcome(1.0, None)) for number in numbers]
        for _ in range(2):  # the first answer is lost
            coordinator.next(0, incarnation, numbers, [], reports)
        found["reports"] = coordinator.look()[3].steps
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
