"""Calls of actors: activations are put into shared memory once for all shards, and what gets lost is sent again.

A call that Ray calls lost, because its actor died or a message did not arrive, is made again until its deadline:
servers apply a push once, however often it comes, so that nobody has to know whether the request or only the answer was
lost. One that merely takes its time is waited for: made again, it would stand in the server's queue twice.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import ray
from ray import exceptions

from manyclass.distributed.steps.transport import TRUNK, Call, with_x
from manyclass.errors import ManyclassError

PAUSE = 0.2  # seconds between a failure and the next try
APART = 100 << 10  # bytes from which on activations travel by shared memory: Ray's own limit for messages
LOST = (exceptions.RayActorError, exceptions.ObjectLostError, exceptions.NodeDiedError, exceptions.WorkerCrashedError)


def asked(send: Callable[[], Any], name: str, deadline: float, *, restarts: bool = False) -> Any:
    """Return the answer to a call that may be made again: it is, until it is answered. Errors of it are raised.

    restarts: whether the actor is started again when it dies; one that is not need not be waited for.
    """
    until = time.monotonic() + deadline
    while True:
        try:
            return ray.get(send(), timeout=max(0.0, until - time.monotonic()))
        except exceptions.RayTaskError as error:
            raise getattr(error, "cause", None) or error from None
        except (*LOST, exceptions.GetTimeoutError) as error:
            if isinstance(error, exceptions.ActorDiedError) and not restarts:
                raise UnavailableError(f"{name} has died; the same command goes on from the last checkpoint") from None
            if time.monotonic() > until - PAUSE:
                raise unavailable(name, deadline, error) from None
        time.sleep(PAUSE)


class UnavailableError(ManyclassError):
    """A server has not answered for as long as a call is tried."""


def unavailable(name: str, deadline: float, why: Exception | None = None) -> UnavailableError:
    """Return the error that says so."""
    reason = "" if why is None else f" ({type(why).__name__})"
    return UnavailableError(f"{name} has not answered for {deadline:.0f} s{reason}; is its machine alive?")


class _Made(NamedTuple):
    call: Call
    message: Any
    x: Any
    answer: Any


class RayCaller:
    """Makes calls of shards and trunk, given their handles. deadline: seconds that a call is tried for."""

    def __init__(self, shards: list[Any], trunk: Any, deadline: float) -> None:
        self.shards, self.trunk, self.deadline = shards, trunk, deadline
        self.repeated = 0  # calls that were made again

    def start(self, calls: list[Call]) -> list[_Made]:
        """Start calls; those with the same activations share one copy of them."""
        shared: dict[int, Any] = {}
        made = []
        for call in calls:
            x, message = getattr(call.message, "x", None), call.message
            reference = None
            if isinstance(x, np.ndarray) and x.nbytes > APART and len(calls) > 1:
                if id(x) not in shared:
                    shared[id(x)] = ray.put(x)
                reference, message = shared[id(x)], with_x(message, None)
            made.append(_Made(call, message, reference, self._send(call, message, reference)))
        return made

    def first(self, started: list[list[_Made]]) -> int:
        """Wait until all calls of one of these are answered, or failed, and return which."""
        until, known = time.monotonic() + self.deadline, 0
        everything = [one.answer for made in started for one in made]
        while True:  # woken by each answer that comes, never in between: on a busy machine others need the core
            ready, missing = ray.wait(everything, num_returns=known + 1, timeout=max(0.0, until - time.monotonic()))
            here = set(ready)
            for number, made in enumerate(started):
                if all(one.answer in here for one in made):
                    return number
            if len(ready) == known:
                late = next((one for one in started[0] if one.answer in missing), started[0][0])
                raise unavailable(_name(late.call), self.deadline)
            known = len(ready)

    def answers(self, started: list[_Made]) -> list[Any]:
        """Return the answers; errors of a server are raised as they are, losses are made good until the deadline."""
        until = time.monotonic() + self.deadline
        return [self._answer(made, until) for made in started]

    def _answer(self, made: _Made, until: float) -> Any:
        answer = made.answer
        while True:
            try:
                return ray.get(answer, timeout=max(0.0, until - time.monotonic()))
            except exceptions.RayTaskError as error:
                raise getattr(error, "cause", None) or error from None
            except (*LOST, exceptions.GetTimeoutError) as error:
                if time.monotonic() > until - PAUSE:
                    raise unavailable(_name(made.call), self.deadline, error) from None
            self.repeated += 1
            time.sleep(PAUSE)
            answer = self._send(made.call, made.message, made.x)

    def _send(self, call: Call, message: Any, x: Any) -> Any:
        handle = self.trunk if call.server == TRUNK else self.shards[call.server]
        return handle.call.remote(call.method, message, x)


def _name(call: Call) -> str:
    return "the trunk's server" if call.server == TRUNK else f"shard {call.server}"
