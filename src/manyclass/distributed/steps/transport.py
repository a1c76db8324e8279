"""How a worker and the shards share the work of a step: one interface, two ways.

A step is a generator. It yields calls, to be made at the same time, is sent their answers in the same order, and
returns a `StepOutcome`. Who makes the calls, and how long they take, is the engine's business, or a simulation's.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from manyclass._validation import Ids
from manyclass.distributed.messages import NO_ROW, Applied, AskBest, BestRows, Floats, Outcome, Sender, wire_bytes
from manyclass.distributed.placement import Placement
from manyclass.distributed.positives import Targets
from manyclass.distributed.settings import HeadSettings
from manyclass.errors import DivergedError

T = TypeVar("T")
TRUNK = -1  # the server of the trunk, where shards are numbered from 0 on


class Call(NamedTuple):
    """A method of a server, and what it is called with."""

    server: int
    method: str
    message: Any


@dataclass
class StepOutcome:
    """What a step came to: mean loss, the inputs' gradient (None where a shard lost its part), and what it took."""

    loss: float
    input_gradients: Floats | None
    staleness: list[int] = field(default_factory=list)  # of the pushes to each shard
    classes: int = 0  # that were computed
    sent: int = 0  # bytes
    received: int = 0
    forgotten: int = 0  # pushes that a restarted shard knew nothing of
    repeated: int = 0  # pushes that had been applied already


Calls = Generator[list[Call], list[Any], StepOutcome]


class Identity:
    """Who a worker is: its number, its incarnation, and the sequence of its pushes to each server."""

    def __init__(self, worker: int, incarnation: int) -> None:
        self.worker, self.incarnation = worker, incarnation
        self._sequences: dict[int, int] = {}
        self._tickets = 0

    def sender(self, server: int) -> Sender:
        """Return the name of the next push to a server."""
        sequence = self._sequences.get(server, 0)
        self._sequences[server] = sequence + 1
        return Sender(self.worker, self.incarnation, sequence)

    def ticket(self) -> int:
        """Return the number of the next step, unlike that of any earlier incarnation."""
        self._tickets += 1
        return ((self.incarnation << 28) + self._tickets) & (1 << 62) - 1


class Transport(Protocol):
    """One way of doing a step."""

    def prepare(self) -> Generator[list[Call], list[Any], None]:
        """Get what is needed before the first step."""
        ...

    def step(self, x: Floats, targets: Targets) -> Calls:
        """Compute the loss of activations x (examples, features), and move the classes' rows."""
        ...


def with_x(message: Any, x: Floats | None) -> Any:
    """Return a message with other activations: none, where they travel apart, or those that came."""
    return replace(message, x=x)


def carried_out(steps: Generator[list[Call], list[Any], T], make: Callable[[Call], Any]) -> T:
    """Make all calls of a generator, one after the other, and return what it returns."""
    answers: list[Any] | None = None
    while True:
        try:
            calls = next(steps) if answers is None else steps.send(answers)
        except StopIteration as finished:
            result: T = finished.value
            return result
        answers = [make(call) for call in calls]


def mined_examples(settings: HeadSettings, examples: int, step: int) -> Ids:
    """Return the examples that hard classes are looked up for in a worker's step, places of the batch in turn."""
    count = min(settings.mined_examples, examples)
    if step % settings.mined_every or not count:
        return np.empty(0, np.int64)
    return np.sort((step // settings.mined_every * count + np.arange(count)) % examples)


def count_pushes(outcome: StepOutcome, answers: list[Applied]) -> None:
    """Take down what became of the pushes of a step."""
    for answer in answers:
        outcome.staleness.append(answer.staleness)
        outcome.forgotten += answer.outcome == Outcome.FORGOTTEN
        outcome.repeated += answer.outcome == Outcome.REPEATED


def counted(outcome: StepOutcome, calls: list[Call]) -> Generator[list[Call], list[Any], list[Any]]:
    """Make calls, and return their answers; adds to the bytes."""
    answers = yield calls
    outcome.sent += sum(wire_bytes(call.message) for call in calls)
    outcome.received += sum(wire_bytes(answer) for answer in answers)
    return answers


def checked_loss(total: float, targets: Targets) -> float:
    """Return the mean loss of a batch; one that is not finite moves nothing."""
    loss = total / max(1, int(targets.present.sum()))
    if not np.isfinite(loss):
        raise DivergedError(f"the loss of a step is {loss}; lower the learning rate or look at the batch")
    return loss


def best_classes(
    placement: Placement, x: Floats, k: int, *, exact: bool = False
) -> Generator[list[Call], list[Any], tuple[Ids, Floats]]:
    """Ask all shards, and return the k best classes of each input, best first, -1 where there is none, and logits."""
    answers: list[BestRows] = yield [Call(shard, "best", AskBest(x, k, exact)) for shard in range(placement.shards)]
    rows = [np.where(answer.rows == NO_ROW, -1, answer.rows.astype(np.int64)) for answer in answers]
    ids = np.concatenate([placement.ids(shard, found) for shard, found in enumerate(rows)], 1)
    logits = np.concatenate([answer.logits for answer in answers], 1)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(ids, order, 1), np.take_along_axis(logits, order, 1)
