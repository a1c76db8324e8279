"""The loop of a worker, the same for every engine that waits for answers: deal, begin, resume, report."""

import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from manyclass.distributed.steps.transport import Call
from manyclass.distributed.workers.coordinator import Assignment
from manyclass.distributed.workers.worker import Pipeline, StepReport, Wave, Worker


class Caller(Protocol):
    """Makes calls for an engine."""

    def start(self, calls: list[Call]) -> Any:
        """Start calls, and return what stands for them."""
        ...

    def first(self, started: list[Any]) -> int:
        """Wait until one of these is answered, and return which."""
        ...

    def answers(self, started: Any) -> list[Any]:
        """Return the answers; a call that failed raises here."""
        ...


def prepare(worker: Worker, caller: Caller) -> None:
    """Get what a worker needs before its first step."""
    preparing = worker.prepare()
    calls = next(preparing)
    with contextlib.suppress(StopIteration):
        while True:
            calls = preparing.send(caller.answers(caller.start(calls)))


class _UnderWay(NamedTuple):
    wave: Wave
    started: Any
    began: float


def work(
    pipeline: Pipeline,
    caller: Caller,
    deal: Callable[[list[int], list[int]], Assignment],
    report: Callable[[StepReport], None],
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Work until there is nothing left. deal: tells which batches are finished, and which under way; gets others."""
    todo: deque[int] = deque()
    finished: list[int] = []
    under_way: list[_UnderWay] = []
    over = False
    while not (over and not under_way) and not stopped():
        if not todo and not over and pipeline.room:
            dealt = deal(finished, [one.wave.step for one in under_way])
            finished, over = [], dealt.stop
            todo.extend(dealt.numbers)
            if not todo and not under_way and dealt.wait:
                time.sleep(dealt.wait)
        if todo and pipeline.room:
            began = time.perf_counter()
            wave = pipeline.begin(todo.popleft())
            under_way.append(_UnderWay(wave, caller.start(wave.calls), began))
            continue
        if not under_way:
            continue
        wave, started, began = under_way.pop(caller.first([one.started for one in under_way]))
        found = pipeline.resume(wave.step, caller.answers(started))
        if isinstance(found, StepReport):
            found.seconds = time.perf_counter() - began
            finished.append(found.number)
            report(found)
        else:
            under_way.append(_UnderWay(found, caller.start(found.calls), began))


class InlineCaller:
    """Makes calls of objects in this process, one after the other, when they are started."""

    def __init__(self, make: Callable[[Call], Any]) -> None:
        self.make = make

    def start(self, calls: list[Call]) -> list[Any]:
        return [self.make(call) for call in calls]

    def first(self, started: list[Any]) -> int:
        return 0

    def answers(self, started: list[Any]) -> list[Any]:
        return started
