"""A clock that jumps from event to event, and things that only so many can use at a time: cores, network cards.

Equal times are taken in the order in which they were asked for, and chance comes from one seeded generator: the same
seed gives the same bits.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


class Events:
    """What happens when. noise: how far durations stray, as the standard deviation of their logarithm."""

    def __init__(self, seed: int, noise: float = 0.0) -> None:
        self.now = 0.0
        self.noise = noise
        self._chance = np.random.default_rng(seed)
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Let something happen at a time, not before now."""
        self._count += 1
        heapq.heappush(self._waiting, (max(time, self.now), self._count, action))

    def strayed(self, seconds: float) -> float:
        """Return a duration as it may turn out; in the mean it is the one given."""
        if not self.noise:
            return seconds
        return seconds * float(np.exp(self._chance.normal(-(self.noise**2) / 2, self.noise)))

    def run(self, stopped: Callable[[], bool]) -> None:
        """Let happen what waits, in order of time, until nothing does or somebody says stop."""
        while self._waiting and not stopped():
            self.now, _, action = heapq.heappop(self._waiting)
            action()


class Servers:
    """Some alike servers with one queue: first come, first served."""

    def __init__(self, count: int) -> None:
        self._free = [0.0] * count
        self.busy = 0.0  # seconds of work that were taken on

    def take(self, now: float, seconds: float, *others: "Servers") -> tuple[float, float]:
        """Return when work that comes now begins and ends. others: of each it needs one at the same time."""
        all_of_them = (self, *others)
        begin = max(now, *(servers._free[0] for servers in all_of_them))
        for servers in all_of_them:
            heapq.heapreplace(servers._free, begin + seconds)
            servers.busy += seconds
        return begin, begin + seconds


@dataclass(frozen=True)
class Link:
    """A network: bytes per second of every card in either direction, and seconds until the first byte arrives."""

    bandwidth: float = 1.25e9  # 10 GbE
    latency: float = 50e-6


class Card:
    """The network card of a machine."""

    def __init__(self) -> None:
        self.out, self.into = Servers(1), Servers(1)


def transfer(
    events: Events, link: Link | None, source: Card, target: Card, size: int, arrived: Callable[[], None]
) -> None:
    """Send bytes from one card to another; both are taken for as long as the bytes take. No link: within a machine."""
    if link is None or source is target:
        events.at(events.now, arrived)
        return
    seconds = size / link.bandwidth
    begin, end = source.out.take(events.now, seconds)

    def reached() -> None:
        _, received = target.into.take(events.now, seconds)
        events.at(max(received, end + link.latency), arrived)

    events.at(begin + link.latency, reached)
