"""Small jobs for the tests of distributed training, without torch: shards, a trunk of one matrix, and workers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from manyclass.distributed.messages import Arrays, Push, Sender
from manyclass.distributed.placement import Placement
from manyclass.distributed.row_rules import ServerRule
from manyclass.distributed.servers.shard import ParameterShard
from manyclass.distributed.servers.trunk_server import TrunkServer
from manyclass.distributed.settings import HeadSettings
from manyclass.distributed.steps.activations_transport import ActivationsTransport
from manyclass.distributed.steps.rows_transport import RowsTransport
from manyclass.distributed.steps.transport import TRUNK, Call, Identity, Transport
from manyclass.distributed.workers.worker import Forward

TRANSPORTS = {"activations": ActivationsTransport, "rows": RowsTransport}


def head(**changes: Any) -> HeadSettings:
    """Return a small layer."""
    return HeadSettings(**{"classes": 50, "features": 8, "rule": ServerRule(lr=0.5), "seed": 3} | changes)


def exhaustive(shared: bool, **changes: Any) -> HeadSettings:
    """Return a layer whose steps compute all classes: nothing is left to chance."""
    many = {"mined_candidates": 50 * 8, "mined_every": 1, "tail": 0} if shared else {"candidates": 50, "tail": 0}
    return head(shared=shared, **many | changes)


def shards_of(settings: HeadSettings, count: int, **parts: Any) -> list[ParameterShard]:
    """Return all shards of a layer."""
    placement = Placement(settings.classes, count, seed=settings.seed)
    return [ParameterShard(settings, placement, number, **parts) for number in range(count)]


def transport(kind: str, shards: list[ParameterShard], worker: int = 0, incarnation: int = 1) -> Transport:
    """Return a worker's transport to these shards."""
    made = TRANSPORTS[kind](shards[0].settings, shards[0].placement, Identity(worker, incarnation))
    return made  # type: ignore[return-value]


def calling(shards: list[ParameterShard], trunk: TrunkServer | None = None) -> Callable[[Call], Any]:
    """Return what makes calls of shards that are in this process."""
    return lambda call: getattr(trunk if call.server == TRUNK else shards[call.server], call.method)(call.message)


def all_rows(shards: list[ParameterShard]) -> tuple[np.ndarray, np.ndarray]:
    """Return weight and bias of all shards in the order of class ids."""
    settings, placement = shards[0].settings, shards[0].placement
    weight, bias = np.empty((settings.classes, settings.features), np.float32), np.zeros(settings.classes, np.float32)
    for shard in shards:
        ids = placement.ids(shard.number, np.arange(placement.size(shard.number)))
        weight[ids] = shard.rows.weight
        if shard.rows.bias is not None:
            bias[ids] = shard.rows.bias
    return weight, bias


def plus_one(sender: Sender, rows: list[int], features: int = 8, version: int = 0) -> Push:
    """Return a push that adds exactly 1 to all of some rows, under SGD of rate 1."""
    gradients = np.full((len(rows), features), -1, np.float32)
    return Push(sender, version, np.array(rows, np.uint32), gradients, np.full(len(rows), -1, np.float32))


class LinearReplica:
    """A trunk of one matrix, on examples that are made of their classes: enough to learn something."""

    def __init__(self, classes: int, inputs: int, features: int, batch: int = 32, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.centres = generator.normal(size=(classes, inputs)).astype(np.float32)
        self.first = {"matrix": generator.normal(size=(inputs, features), scale=inputs**-0.5).astype(np.float32)}
        self.batch, self.values, self.loads = batch, dict(self.first), 0

    def examples(self, number: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng([1, number])
        labels = generator.integers(len(self.centres), size=count)
        noise = generator.normal(size=(count, self.centres.shape[1]), scale=0.3)
        return (self.centres[labels] + noise).astype(np.float32), labels

    def forward(self, number: int) -> Forward:
        input, labels = self.examples(number, self.batch)
        return Forward(input @ self.values["matrix"], labels, input)

    def backward(self, forward: Forward, gradient: np.ndarray) -> dict[str, np.ndarray]:
        return {"matrix": forward.kept.T @ gradient}

    def load(self, values: dict[str, np.ndarray], buffers: Arrays) -> None:
        self.values, self.loads = dict(values), self.loads + 1

    def buffers(self) -> Arrays:
        return {}
