"""What a call costs by Ray: processor time of caller and actor, with messages as large as those of a step."""

import time
from typing import Any, NamedTuple

import numpy as np

from experiments.distributed.step_costs import spread_of_logarithm
from manyclass.distributed.messages import ApplyShared, ScoreShared, Sender
from manyclass.distributed.steps.transport import Call

WAVES = 20  # of calls in one timing


class RayCalls(NamedTuple):
    """Seconds of processor time per call of each side, and how uncertain both are."""

    call: float
    serve: float
    error: float


class Answering:
    """An actor that answers calls as a shard does, with arrays as large, and computes nothing."""

    def __init__(self, examples: int, features: int) -> None:
        self.sums, self.gradient = np.zeros(examples, np.float32), np.zeros((examples, features), np.float32)

    def call(self, method: str, message: Any, x: Any) -> Any:
        """Return two sums per example, or a gradient as large as the activations."""
        return (self.sums, self.sums) if method == "score_shared" else self.gradient

    def spent(self) -> float:
        """Return the processor time of this process so far."""
        return time.process_time()


def measured_calls(x: Any, positives: Any, shards: int, repeats: int) -> RayCalls:
    """Return what calls to so many shards cost, on a cluster that is started for it.

    x: activations of a batch; positives: what a shard is told of the targets.
    """
    from manyclass.distributed.engines.ray_session import ray_session

    with ray_session(None, shards + 1) as ray:
        from manyclass.distributed.engines.ray_caller import RayCaller  # loads ray, which reads its environment then

        actors = [ray.remote(Answering).remote(*x.shape) for _ in range(shards)]
        caller = RayCaller(actors, None, deadline=60)
        step = {
            "score_shared": ScoreShared(0, 0, x, positives, np.empty(0, np.uint32), 0, 16),
            "apply_shared": ApplyShared(Sender(0, 1, 0), 0, np.zeros(len(x), np.float32), 1 / len(x)),
        }

        def waves() -> None:
            for _ in range(WAVES):
                for method, message in step.items():
                    caller.answers(caller.start([Call(shard, method, message) for shard in range(shards)]))

        waves()  # warms up
        ours, theirs = [], []
        for _ in range(max(3, repeats // 4)):
            served, started = sum(ray.get([actor.spent.remote() for actor in actors])), time.process_time()
            waves()
            ours.append(time.process_time() - started)
            theirs.append(sum(ray.get([actor.spent.remote() for actor in actors])) - served)
    calls = 2 * WAVES * shards
    error = max(spread_of_logarithm(ours), spread_of_logarithm(theirs))
    return RayCalls(float(np.median(ours)) / calls, float(np.median(theirs)) / calls, error)
