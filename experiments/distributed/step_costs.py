"""What each part of a Downpour step costs on this machine: timed one by one, on the classes that a real run uses."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

import numpy as np

from manyclass._training_config import SCANNED_CLASSES, training_config
from manyclass.distributed.job import Job
from manyclass.distributed.messages import ApplyShared, Exchange, ScoreShared, Sender
from manyclass.distributed.placement import Placement
from manyclass.distributed.positives import Targets
from manyclass.distributed.servers.shard import ParameterShard
from manyclass.distributed.servers.trunk_server import TrunkServer
from manyclass.distributed.settings import HeadSettings

LOOKED_UP = 32  # examples at a time while look-ups are timed


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds, for batches of one size over layers of one width.

    forward, backward: of the network below. loop: of all else that a worker does in a step. call, serve: what an
    engine takes of the caller and of the server for one call. merge, take: after the shards' sums, and after the
    trunk's new values, have come. score, apply: of a shard's call, and per class in it. look_up: of finding candidates,
    and per row that is scanned for an example. exchange: of the trunk's server.
    """

    forward: float
    backward: float
    exchange: float
    score: float
    score_class: float
    apply: float
    apply_class: float
    look_up: float
    look_up_row: float
    features: int
    loop: float = 0.0
    call: float = 0.0
    serve: float = 0.0
    merge: float = 0.0
    take: float = 0.0

    def after(self, method: str) -> float:
        """Return what a worker does when the answers to these calls have come."""
        return {"score_shared": self.merge, "apply_shared": self.backward, "exchange": self.take}[method]

    def service(self, method: str, rows: int, classes: int, looked_up: int) -> float:
        """Return what a call costs a server with so many rows: for a step over so many of its classes."""
        if method == "exchange":
            return self.exchange
        if method == "apply_shared":
            return self.apply + self.apply_class * classes
        scanned = rows if not training_config(rows, self.features, 16).cells else min(rows, SCANNED_CLASSES)
        found = (self.look_up + self.look_up_row * looked_up * scanned) if looked_up else 0.0
        return self.score + self.score_class * classes + found

    def drawn(self, errors: dict[str, float], seed: int) -> Self:
        """Return costs as they may be, given how uncertain each is: the standard deviation of its logarithm."""
        chance = np.random.default_rng(seed)
        factors = {part.name: float(np.exp(chance.normal(0, errors.get(part.name, 0.0)))) for part in fields(self)}
        return replace(self, **{name: getattr(self, name) * factors[name] for name in errors})

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def seconds(work: Callable[[], Any], repeats: int) -> list[float]:
    """Return how long some work takes, time after time; the first, which warms up, does not count."""
    found = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return found[1:]


def measured(
    job: Job, replica: Any, trunk: TrunkServer, shards: int, repeats: int, rows: tuple[int, int]
) -> tuple[Costs, dict[str, float]]:
    """Return the costs of a job's parts, and how uncertain each is; all on one thread.

    rows: sizes of two shards by which the cost of looking candidates up is told from that of its rows.
    """
    forward = replica.forward(0)
    gradient = np.ones_like(forward.x)
    moved = replica.backward(forward, gradient)
    numbers = iter(range(10**9))

    def exchange() -> None:
        trunk.exchange(Exchange(Sender(0, 1, next(numbers)), 0, moved, {}, True))

    timed = {
        "forward": seconds(lambda: replica.forward(1), repeats),
        "backward": seconds(lambda: replica.backward(replica.forward(1), gradient), repeats),
        "exchange": seconds(exchange, repeats),
        "take": seconds(lambda: replica.load(trunk.values, trunk.buffers), repeats),
    }
    timed["backward"] = [max(1e-9, both - np.median(timed["forward"])) for both in timed["backward"]]
    found = {name: float(np.median(values)) for name, values in timed.items()}
    errors = {name: spread_of_logarithm(values) for name, values in timed.items()}
    of_shards, uncertain = _of_shards(job.head, forward.x, forward.targets, shards, repeats, rows)
    return Costs(**found, **of_shards, features=job.head.features), errors | uncertain


def _of_shards(
    head: HeadSettings, x: Any, targets: Any, shards: int, repeats: int, rows: tuple[int, int]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the costs of a shard's calls, by two sizes of each, and their uncertainty."""
    small, large = 32, 512  # random classes of a shard
    times: dict[str, list[float]] = {}
    sizes: dict[str, float] = {}
    whole = Placement(head.classes, shards, seed=head.seed)
    cases = {"few": (small, head, whole, 0), "many": (large, head, whole, 0)}
    for name, size in zip(("scan less", "scan"), rows, strict=True):
        cases[name] = small, replace(head, classes=size), Placement(size, 1), LOOKED_UP
    for name, (tail, layer, placement, mined) in cases.items():
        shard = ParameterShard(layer, placement, 0)
        part = Targets(targets % layer.classes, layer.classes).split(placement)[0]
        tickets = iter(range(10**9))
        scored, applied = _timed_calls(shard, x, part, tail, mined, layer, tickets, repeats)
        times[f"score {name}"], times[f"apply {name}"] = scored, applied
        sizes[name] = len(part.rows) + tail
        sizes[f"rows {name}"] = len(shard.rows.weight)
    middle = {name: float(np.median(values)) for name, values in times.items()}
    more = sizes["many"] - sizes["few"]
    found: dict[str, float] = {}
    for call in ("score", "apply"):
        each = max(0.0, (middle[f"{call} many"] - middle[f"{call} few"]) / more)
        found |= {f"{call}_class": each, call: max(0.0, middle[f"{call} few"] - each * sizes["few"])}
    scans = {name: middle[f"score {name}"] - found["score"] - found["score_class"] * sizes[name]
             for name in ("scan", "scan less")}  # fmt: skip
    scanned = LOOKED_UP * (sizes["rows scan"] - sizes["rows scan less"])
    found["look_up_row"] = max(0.0, (scans["scan"] - scans["scan less"]) / scanned)
    found["look_up"] = max(0.0, scans["scan less"] - found["look_up_row"] * LOOKED_UP * sizes["rows scan less"])
    error = float(np.mean([spread_of_logarithm(values) for values in times.values()]))
    return found, dict.fromkeys(found, error)


def _timed_calls(
    shard: ParameterShard, x: Any, part: Any, tail: int, mined: int, head: HeadSettings, tickets: Any, repeats: int
) -> tuple[list[float], list[float]]:
    """Return the seconds of scoring, and of applying what was scored."""
    looked_up = np.arange(mined, dtype=np.uint32)
    scored, applied = [], []
    for repeat in range(repeats + 1):
        ticket = next(tickets)
        started = time.perf_counter()
        sums = shard.score_shared(ScoreShared(0, ticket, x, part, looked_up, head.mined_candidates, tail))
        middle = time.perf_counter()
        shard.apply_shared(ApplyShared(Sender(0, 1, ticket), ticket, sums.log_sums + 1, 1 / len(x)))
        if repeat:
            scored.append(middle - started)
            applied.append(time.perf_counter() - middle)
    return scored, applied


def spread_of_logarithm(values: list[float]) -> float:
    """Return how uncertain the median of some times is: the standard error of the logarithm's mean."""
    return float(np.std(np.log(np.maximum(values, 1e-12))) / max(1, len(values)) ** 0.5)
