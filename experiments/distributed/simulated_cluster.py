"""Downpour in simulated time: the workers, transports, shards, trunk server and coordinator of a real run.

All they do is done, in this process; only time is simulated: each piece of work takes what was measured for it, on a
core, and messages take their bytes over a network. A shard is read when it begins with a call, written when it ends.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from experiments.distributed.simulated_time import Card, Events, Link, Servers, transfer
from experiments.distributed.step_costs import Costs
from manyclass.distributed.messages import wire_bytes
from manyclass.distributed.steps.transport import TRUNK, Call
from manyclass.distributed.workers.coordinator import Coordinator
from manyclass.distributed.workers.worker import Pipeline, StepReport, Wave
from manyclass.errors import DivergedError

WRITES = ("apply_shared", "apply_own", "push", "exchange")


@dataclass(frozen=True)
class Machines:
    """Where things run. link: between machines, each worker and server has its own; None: all on one machine.

    cores: of that one machine; where each has its own, one core is all that a thread of Python can use. sequential: a
    worker makes the calls of a step itself, one after the other, as the engine of threads does. slowdown: of all work,
    where several threads share a process.
    """

    link: Link | None = None
    cores: int = 1
    sequential: bool = False
    slowdown: float = 1.0


@dataclass
class SimulatedRun:
    """What a simulated run came to; times are simulated."""

    seconds: float = 0.0
    steps: int = 0
    examples: int = 0
    sent: int = 0
    staleness: Counter[int] = field(default_factory=Counter)
    losses: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)  # when steps were finished
    by_worker: dict[int, tuple[int, float]] = field(default_factory=dict)  # examples, and when the last were finished
    busiest_shard: float = 0.0  # share of the time that it works
    diverged: bool = False  # at the end of it, the loss was not finite

    @property
    def examples_per_second(self) -> float:
        """The sum of the workers' speeds, each until its last step, as the monitor of a real run has them."""
        return sum(examples / max(end, 1e-12) for examples, end in self.by_worker.values())

    @property
    def steady_examples_per_second(self) -> float:
        """The speed of the middle half: neither the start, nor the end where some workers have nothing left."""
        first, last = self.steps // 4, self.steps * 3 // 4
        seconds = self.ends[last] - self.ends[first] if last > first else self.seconds
        return (last - first or self.steps) * self.examples / self.steps / max(seconds, 1e-12)

    @property
    def mean_staleness(self) -> float:
        pushes = sum(self.staleness.values())
        return sum(late * count for late, count in self.staleness.items()) / max(1, pushes)


class SimulatedServer:
    """A shard or the trunk's server: what answers, where it computes, its network card; it does one thing at a time."""

    def __init__(self, answers: Any, cores: Servers, card: Card) -> None:
        self.answers, self.cores, self.card, self.turn = answers, cores, card, Servers(1)


class SimulatedWorker:
    """A worker's thread: takes one thing after the other, as `worker_loop.work` does."""

    def __init__(
        self, cluster: "SimulatedCluster", number: int, pipeline: Pipeline, cores: Servers, card: Card
    ) -> None:
        self.cluster, self.number, self.pipeline, self.cores, self.card = cluster, number, pipeline, cores, card
        self.incarnation = cluster.coordinator.join(number, cluster.events.now)
        self.todo: list[int] = []
        self.finished: list[int] = []
        self.answered: list[tuple[Wave, list[Any]]] = []
        self.under_way, self.at_work, self.over = 0, False, False

    def look(self) -> None:
        """Begin whatever there is to do next; nothing while the thread is at work."""
        if self.at_work:
            return
        wait = self._deal() if not self.todo and not self.over and self.pipeline.room else 0.0
        costs = self.cluster.costs
        if self.todo and self.pipeline.room:
            self.under_way += 1
            self._work(costs.forward + costs.loop, partial(self.pipeline.begin, self.todo.pop(0)), self._send)
        elif self.answered:
            wave, answers = self.answered.pop(0)
            seconds = costs.after(wave.calls[0].method)
            self._work(seconds, partial(self.pipeline.resume, wave.step, answers), self._go_on)
        elif wait and not self.under_way:
            self.cluster.events.at(self.cluster.events.now + wait, self.look)

    def _deal(self) -> float:
        dealt = self.cluster.coordinator.next(self.number, self.incarnation, self.finished, self.cluster.events.now)
        self.finished, self.over = [], dealt.stop
        self.todo.extend(dealt.numbers)
        return dealt.wait

    def _work(self, seconds: float, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Let the thread do some work, which is done when it gets a core, and look for more at its end."""
        self.at_work = True
        events, results = self.cluster.events, list[Any]()
        begin, end = self.cores.take(events.now, events.strayed(seconds * self.cluster.machines.slowdown))

        def done() -> None:
            self.at_work = False
            then(results[0])
            self.look()

        events.at(begin, lambda: results.append(work()))
        events.at(end, done)

    def _go_on(self, found: Wave | StepReport) -> None:
        if isinstance(found, StepReport):
            self.under_way -= 1
            self.finished.append(found.number)
            self.cluster.note(self.number, found)
        else:
            self._send(found)

    def _send(self, wave: Wave) -> None:
        if self.cluster.machines.sequential:
            self._call_in_turn(wave, [])
            return
        answers: list[Any] = [None] * len(wave.calls)
        missing = set(range(len(wave.calls)))

        def came(place: int, answer: Any) -> None:
            answers[place] = answer
            missing.discard(place)
            if not missing:
                self.answered.append((wave, answers))
                self.look()

        def submit(_: Any) -> None:
            for place, call in enumerate(wave.calls):
                self.cluster.call(self.number, self.card, call, partial(came, place))

        self._work(self.cluster.costs.call * len(wave.calls), lambda: None, submit)

    def _call_in_turn(self, wave: Wave, answers: list[Any]) -> None:
        """Make the calls on this thread, which does nothing else meanwhile."""
        if len(answers) == len(wave.calls):
            self.answered.append((wave, answers))
            return
        call = wave.calls[len(answers)]
        make = partial(self.cluster.answered, call)
        reads, seconds = call.method not in WRITES, self.cluster.seconds_of(self.number, call)

        def done(answer: Any) -> None:
            self._call_in_turn(wave, [*answers, answer if reads else make()])

        self._work(seconds, make if reads else lambda: None, done)


class SimulatedCluster:
    """Workers and servers on machines.

    make_pipeline: number → what runs a worker's steps, already prepared. shards, trunk: what answers calls.
    rows: of a shard. seed, noise: of the durations.
    """

    def __init__(
        self,
        make_pipeline: Callable[[int], Pipeline],
        workers: int,
        shards: Sequence[Any],
        trunk: Any,
        coordinator: Coordinator,
        costs: Costs,
        machines: Machines,
        *,
        rows: int,
        seed: int = 0,
        noise: float = 0.0,
    ) -> None:
        self.coordinator, self.costs, self.machines, self.rows = coordinator, costs, machines, rows
        self.events, self.run_so_far = Events(seed, noise), SimulatedRun()
        self._classes: dict[tuple[int, int, int], int] = {}  # of a step at a server, until it is pushed
        shared, card = Servers(machines.cores), Card()  # of the one machine, if there is but one
        alone = machines.link is not None
        self.servers = [
            SimulatedServer(answers, Servers(1) if alone else shared, Card() if alone else card)
            for answers in [*shards, trunk]
        ]
        self.workers = [
            SimulatedWorker(self, number, make_pipeline(number), Servers(1) if alone else shared,
                            Card() if alone else card)
            for number in range(workers)
        ]  # fmt: skip

    def run(self) -> SimulatedRun:
        """Let all workers work until every batch is finished."""
        for worker in self.workers:
            self.events.at(0.0, worker.look)
        run = self.run_so_far
        try:
            self.events.run(lambda: run.steps >= self.coordinator.batches)
        except DivergedError:  # so many workers may overshoot until nothing is finite: an outcome, too
            run.diverged = True
        run.seconds = self.events.now
        run.busiest_shard = max(server.turn.busy for server in self.servers[:-1]) / max(run.seconds, 1e-12)
        return run

    def answered(self, call: Call) -> Any:
        """Make a call, now."""
        return getattr(self._server(call).answers, call.method)(call.message)

    def seconds_of(self, worker: int, call: Call) -> float:
        """Return what a call takes a server's core; a push as many classes as its step was scored with."""
        message, key = call.message, (call.server, worker)
        if call.method == "score_shared":
            found = len(message.mined) * message.wanted
            self._classes[*key, message.ticket] = len(message.positives.rows) + found + message.tail
        classes = self._classes.get((*key, getattr(message, "ticket", -1)), 0)
        return self.costs.service(call.method, self.rows, classes, len(getattr(message, "mined", ())))

    def _server(self, call: Call) -> SimulatedServer:
        return self.servers[-1] if call.server == TRUNK else self.servers[call.server]

    def call(self, worker: int, card: Card, call: Call, came: Callable[[Any], None]) -> None:
        """Make a call over the network, and hand on its answer when that arrives."""
        server, link, events = self._server(call), self.machines.link, self.events

        def served() -> None:
            seconds = events.strayed(self.seconds_of(worker, call) + self.costs.serve)
            begin, end = server.turn.take(events.now, seconds, server.cores)
            if call.method in WRITES:
                events.at(end, lambda: reply(self.answered(call)))
            else:
                events.at(begin, lambda: read(end))

        def read(end: float) -> None:
            answer = self.answered(call)
            events.at(end, lambda: reply(answer))

        def reply(answer: Any) -> None:
            transfer(events, link, server.card, card, wire_bytes(answer), lambda: came(answer))

        transfer(events, link, card, server.card, wire_bytes(call.message), served)

    def note(self, worker: int, report: StepReport) -> None:
        """Take down a finished step."""
        run, outcome = self.run_so_far, report.outcome
        run.steps, run.examples = run.steps + 1, run.examples + report.examples
        run.sent += outcome.sent + outcome.received
        run.staleness.update(outcome.staleness)
        run.losses.append(outcome.loss)
        run.ends.append(self.events.now)
        run.by_worker[worker] = run.by_worker.get(worker, (0, 0.0))[0] + report.examples, self.events.now
