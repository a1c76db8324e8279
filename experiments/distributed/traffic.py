"""Bytes per step and worker of both transports, counted on real steps, beside what the formulas say."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.frame.stages import Run
from manyclass._class_shares import candidates_each
from manyclass.config import HashConfig
from manyclass.distributed import HeadSettings
from manyclass.distributed.placement import Placement
from manyclass.distributed.positives import Targets
from manyclass.distributed.servers.shard import ParameterShard
from manyclass.distributed.steps.activations_transport import ActivationsTransport
from manyclass.distributed.steps.refresh_turns import RefreshTurns
from manyclass.distributed.steps.rows_transport import RowsTransport
from manyclass.distributed.steps.transport import Call, Identity, carried_out

KINDS = ("rows", "activations", "shared sets")
HEAD = HeadSettings(classes=1, features=1)  # for what a layer has that is told nothing else


@dataclass(frozen=True, kw_only=True)
class TrafficSizes:
    """What is counted: one layer, some batch sizes, some numbers of shards."""

    classes: int = 1_000_000
    features: int = 128
    candidates: int = 300
    batches: tuple[int, ...] = (32, 256)
    shards: tuple[int, ...] = (1, 2, 4, 8, 16)


def count_bytes(sizes: TrafficSizes, run: Run) -> None:
    """Take a step of each kind with each batch and number of shards, and record its bytes."""
    wanted = [(count, batch, kind) for count in sizes.shards for batch in sizes.batches for kind in KINDS]
    with run.progress(len(wanted), "steps") as show:
        for number, (count, batch, kind) in enumerate(wanted):
            show(number, f"{count} shards, {kind}")
            key = {"shards": count, "batch": batch, "transport": kind}
            layer = {"classes": sizes.classes, "features": sizes.features, "candidates": sizes.candidates}
            if not run.records.done(stage="bytes", kind="bytes", **key):
                found = _counted(sizes, count, batch, kind)
                run.records.write(stage="bytes", kind="bytes", **layer, **key, **found)


def _counted(sizes: TrafficSizes, count: int, batch: int, kind: str) -> dict[str, Any]:
    """Return the bytes of a step. Inputs are near rows, as those of a trained layer are, each near another."""
    shared = kind == "shared sets"
    settings = HeadSettings(
        classes=sizes.classes, features=sizes.features, shared=shared, candidates=sizes.candidates,
        tail=256 if shared else 0, config=HashConfig.flat_sketch(64, candidates=sizes.candidates),
    )  # fmt: skip
    placement = Placement(sizes.classes, count)
    shards = [ParameterShard(settings, placement, number, threads=2) for number in range(count)]
    generator = np.random.default_rng([count, batch])
    labels = generator.integers(sizes.classes, size=batch)
    owners, rows = placement.locate(labels)
    x = np.stack([shards[owner].rows.weight[row] for owner, row in zip(owners, rows, strict=True)])
    x = x + 0.5 * sizes.features**-0.5 * generator.normal(size=x.shape)
    way: Any = (RowsTransport if kind == "rows" else ActivationsTransport)(settings, placement, Identity(0, 1))

    def call(made: Call) -> Any:
        return getattr(shards[made.server], made.method)(made.message)

    carried_out(way.prepare(), call)
    started = time.perf_counter()
    outcome = carried_out(way.step(x.astype(np.float32), Targets(labels, sizes.classes)), call)
    return {
        "bytes": outcome.sent + outcome.received,
        "computed_classes": outcome.classes,
        "predicted": predicted(sizes, count, batch, kind, outcome.classes),
        "seconds": time.perf_counter() - started,
    }


def predicted(sizes: TrafficSizes, shards: int, batch: int, kind: str, distinct: int) -> float:
    """Return the bytes that the formula says, without the few of headers. distinct: rows that a step touches."""
    row, to_and_fro = 4 * sizes.features, 2 * shards * batch * 4 * sizes.features
    if kind == "rows":  # number, row and bias there, and their gradients back; and the rows whose turn it is
        refreshed = RefreshTurns(sizes.classes, period=HEAD.refresh_steps, limit=HEAD.refresh_limit).turn
        return distinct * (2 * (row + 4) + 8) + refreshed * (row + 8)
    if kind == "activations":  # activations there, their gradients back; candidates' numbers, logits and gradients
        return to_and_fro + batch * shards * candidates_each(sizes.candidates, shards) * 12 + 20 * batch
    return to_and_fro + shards * batch * 12 + 12 * batch  # two sums per example and shard, and one normaliser back
