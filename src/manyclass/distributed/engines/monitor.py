"""What a run looks like while it goes on: speed of the workers, staleness, bytes, load of shards, age of tables."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from manyclass.distributed.workers.worker import StepReport

FADING = 0.05  # share of a new step in running means


@dataclass
class WorkerProgress:
    """What one worker has done. Examples per second are those since it began, waiting included."""

    began: float
    steps: int = 0
    examples: int = 0
    loss: float | None = None  # running mean
    seen: float = 0.0

    def rate(self) -> float:
        return self.examples / max(self.seen - self.began, 1e-9)


@dataclass(frozen=True)
class Summary:
    """A look at a run, as JSON would keep it.

    seconds: from when the first worker was ready to the last step. examples_per_second: from when all were, so that
    workers that start late, by importing torch say, do not make a run look slower than it is.
    """

    seconds: float
    steps: int
    examples: int
    loss: float | None
    examples_per_second: float
    workers: dict[str, float]  # examples per second of each
    staleness: dict[str, int]  # pushes by staleness
    trunk_staleness: dict[str, int]
    bytes_per_step: float
    classes_per_step: float
    forgotten: int
    repeated: int
    shards: list[dict[str, Any]] = field(default_factory=list)


class Monitor:
    """Adds up the reports of all workers; many threads may report. workers: how many there will be."""

    def __init__(self, workers: int = 1) -> None:
        self._lock = threading.Lock()
        self._expected = workers
        self._began = self._all_began = self._seen = time.monotonic()
        self._examples_before = 0  # all were there
        self._workers: dict[int, WorkerProgress] = {}
        self._staleness: Counter[int] = Counter()
        self._trunk_staleness: Counter[int] = Counter()
        self._steps = self._examples = self._bytes = self._classes = self._forgotten = self._repeated = 0
        self._loss: float | None = None

    def started(self, worker: int) -> None:
        """Note that a worker begins, or begins anew."""
        with self._lock:
            now, known = time.monotonic(), len(self._workers)
            self._workers[worker] = WorkerProgress(now)
            if not known:  # what came before is the start of the engine
                self._began = self._all_began = self._seen = now
            if known < len(self._workers) == self._expected:
                self._all_began, self._examples_before = now, self._examples

    def note(self, worker: int, report: StepReport) -> None:
        """Add a finished step."""
        outcome = report.outcome
        with self._lock:
            progress = self._workers.setdefault(worker, WorkerProgress(time.monotonic()))
            progress.steps, progress.examples = progress.steps + 1, progress.examples + report.examples
            progress.seen = self._seen = time.monotonic()
            progress.loss = _faded(progress.loss, outcome.loss)
            self._loss = _faded(self._loss, outcome.loss)
            self._steps, self._examples = self._steps + 1, self._examples + report.examples
            self._bytes += outcome.sent + outcome.received
            self._classes += outcome.classes
            self._forgotten, self._repeated = self._forgotten + outcome.forgotten, self._repeated + outcome.repeated
            self._staleness.update(outcome.staleness)
            if report.trunk_staleness is not None:
                self._trunk_staleness[report.trunk_staleness] += 1

    def summary(self, shards: list[dict[str, Any]] | None = None) -> Summary:
        """Return how the run is now. shards: their own reports."""
        with self._lock:
            seconds = max(self._seen - self._began, 1e-9)
            since, examples = self._seen - self._all_began, self._examples - self._examples_before
            return Summary(
                seconds=seconds,
                steps=self._steps,
                examples=self._examples,
                loss=self._loss,
                examples_per_second=examples / since if since > 0 < examples else self._examples / seconds,
                workers={str(worker): progress.rate() for worker, progress in sorted(self._workers.items())},
                staleness=_as_json(self._staleness),
                trunk_staleness=_as_json(self._trunk_staleness),
                bytes_per_step=self._bytes / max(1, self._steps),
                classes_per_step=self._classes / max(1, self._steps),
                forgotten=self._forgotten,
                repeated=self._repeated,
                shards=shards or [],
            )


def _faded(mean: float | None, value: float) -> float:
    return value if mean is None else mean + FADING * (value - mean)


def _as_json(counted: Counter[int]) -> dict[str, int]:
    return {str(key): counted[key] for key in sorted(counted)}
