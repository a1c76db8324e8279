"""A worker: a replica of the trunk on its share of the data, one step at a time or several under way.

Engine-free: `Worker.step` yields calls, as transports do; `Pipeline` holds the steps that are under way.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from manyclass._validation import check_count
from manyclass.distributed.messages import Arrays, Exchange, Floats, TrunkValues, wire_bytes
from manyclass.distributed.positives import Targets
from manyclass.distributed.servers.worker_memory import KEPT
from manyclass.distributed.settings import HeadSettings
from manyclass.distributed.steps.transport import TRUNK, Call, Identity, StepOutcome, Transport
from manyclass.errors import ConfigError, DivergedError


class Forward(NamedTuple):
    """A batch after its way through the trunk: activations, targets, and what the replica needs for the way back."""

    x: Floats
    targets: npt.NDArray[np.int64]
    kept: Any


class Replica(Protocol):
    """A trunk with its data; `TorchReplica` is one."""

    def forward(self, number: int) -> Forward:
        """Return batch number `number` after the trunk."""
        ...

    def backward(self, forward: Forward, gradient: Floats) -> dict[str, Floats]:
        """Return the gradients of the trunk's parameters, given that of the activations."""
        ...

    def load(self, values: dict[str, Floats], buffers: Arrays) -> None:
        """Take over parameters, and buffers where there are any."""
        ...

    def buffers(self) -> Arrays:
        """Return running means and the like as they are."""
        ...


@dataclass
class StepReport:
    """A finished step: the number of its batch, its examples, what it came to; seconds are filled in by the engine."""

    number: int
    examples: int
    outcome: StepOutcome
    trunk_staleness: int | None = None
    seconds: float = 0.0


Stepping = Generator[list[Call], list[Any], StepReport]


class Worker:
    """Runs steps. trunk_every: steps between two exchanges with the trunk's server; rate: of the steps between them."""

    def __init__(
        self,
        identity: Identity,
        replica: Replica,
        transport: Transport,
        settings: HeadSettings,
        *,
        trunk_every: int = 1,
        rate: float = 0.0,
    ) -> None:
        self.identity, self.replica, self.transport, self.settings = identity, replica, transport, settings
        self.trunk_every, self.rate = check_count("trunk_every", trunk_every), rate
        self._version, self._taken = 0, -1  # of the trunk here: its server's count, and which exchange brought it
        self._values: dict[str, Floats] = {}
        self._sum: dict[str, Floats] = {}
        self._steps = 0

    def prepare(self) -> Generator[list[Call], list[Any], None]:
        """Fetch the trunk, and what the transport needs."""
        asked = Exchange(self.identity.sender(TRUNK), 0, None, {}, True)
        (found,) = yield [Call(TRUNK, "exchange", asked)]
        self._take(asked, found)
        yield from self.transport.prepare()

    def step(self, number: int) -> Stepping:
        """Return the report of a step on batch `number`."""
        forward = self.replica.forward(number)
        if not np.isfinite(forward.x).all():
            raise DivergedError(
                f"the network's outputs of batch {number} are not finite; lower the learning rate or look at the batch"
            )
        targets = Targets(forward.targets, self.settings.classes)
        outcome = yield from self.transport.step(forward.x, targets)
        report = StepReport(number, targets.count, outcome)
        if outcome.input_gradients is not None:
            self._add(self.replica.backward(forward, outcome.input_gradients))
        self._steps += 1
        if self._steps % self.trunk_every == 0:
            found = yield from self._exchange(outcome)
            report.trunk_staleness = found.staleness
        return report

    def _exchange(self, outcome: StepOutcome) -> Generator[list[Call], list[Any], TrunkValues]:
        gradients, self._sum = self._sum, {}
        sender = self.identity.sender(TRUNK)
        asked = Exchange(sender, self._version, gradients or None, self.replica.buffers(), True)
        (found,) = yield [Call(TRUNK, "exchange", asked)]
        outcome.sent, outcome.received = outcome.sent + wire_bytes(asked), outcome.received + wire_bytes(found)
        self._take(asked, found)
        return found  # type: ignore[no-any-return]

    def _take(self, asked: Exchange, found: TrunkValues) -> None:
        """Take over an answer, unless that of a later exchange has come already.

        The worker's own count decides: the server's goes back where it dies and starts from its checkpoint.
        """
        if asked.sender.sequence < self._taken:
            return
        self._taken, self._version, self._values = asked.sender.sequence, found.version, found.values
        self.replica.load(found.values, found.buffers)

    def _add(self, gradients: dict[str, Floats]) -> None:
        """Add gradients to those that wait; between exchanges, the replica goes ahead by itself (Downpour)."""
        for name, gradient in gradients.items():
            self._sum[name] = self._sum[name] + gradient if name in self._sum else gradient
        if self.trunk_every > 1 and self.rate:
            rate = np.float32(self.rate)
            self._values = {
                name: part - rate * gradients[name] if name in gradients else part
                for name, part in self._values.items()
            }
            self.replica.load(self._values, {})


class Wave(NamedTuple):
    """Calls of a step that wait for their answers."""

    step: int
    calls: list[Call]


class Pipeline:
    """The steps that a worker has under way: at most `depth`, so that shards are never flooded.

    An engine begins a step while there is room, makes the calls of its wave, and resumes the step with their answers,
    whichever wave is answered first.
    """

    def __init__(self, worker: Worker, depth: int = 2) -> None:
        self.worker, self.depth = worker, check_count("pipeline", depth)
        if depth > KEPT:  # shards would forget steps before they are applied, and drop their pushes
            raise ConfigError(
                f"pipeline={depth} is more than {KEPT}, the steps that shards keep of a worker; give less"
            )
        self._running: dict[int, Stepping] = {}

    @property
    def room(self) -> bool:
        """Whether another step may begin."""
        return len(self._running) < self.depth

    @property
    def idle(self) -> bool:
        """Whether no step is under way."""
        return not self._running

    def begin(self, number: int) -> Wave:
        """Begin the step of a batch and return its first calls."""
        stepping = self.worker.step(number)
        calls = next(stepping)
        self._running[number] = stepping
        return Wave(number, calls)

    def resume(self, step: int, answers: list[Any]) -> Wave | StepReport:
        """Go on with a step whose calls are answered: return its next calls, or its report."""
        try:
            return Wave(step, self._running[step].send(answers))
        except StopIteration as finished:
            del self._running[step]
            report: StepReport = finished.value
            return report
        except BaseException:
            del self._running[step]
            raise

    def give_up(self, step: int) -> None:
        """Forget a step whose calls will not be answered."""
        self._running.pop(step).close()
