"""What workers and servers say to each other: small frozen records of arrays, as they go over a wire.

Rows are numbers within a shard, 32 bits. `wire_bytes` counts what a message weighs; names and lengths are left out.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manyclass.errors import ManyclassError

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.uint32]
Arrays = dict[str, npt.NDArray[Any]]

NO_ROW = np.uint32(0xFFFFFFFF)  # stands for no row


def wire_bytes(message: Any) -> int:
    """Return the bytes of a message: those of its arrays, and eight for every number."""
    if message is None or isinstance(message, str):
        return 0
    if isinstance(message, np.ndarray):
        return message.nbytes
    if isinstance(message, dict):
        return sum(wire_bytes(part) for part in message.values())
    if isinstance(message, tuple | list):
        return sum(wire_bytes(part) for part in message)
    if isinstance(message, int | float | np.generic):
        return 8
    return sum(wire_bytes(getattr(message, part.name)) for part in fields(message))


class FencedError(ManyclassError):
    """A worker that was given up, or replaced, still sends; it has to join anew."""


class Sender(NamedTuple):
    """Who pushes, and which of its pushes this is."""

    worker: int
    incarnation: int
    sequence: int


class Outcome(StrEnum):
    """What became of a push."""

    APPLIED = "applied"
    REPEATED = "repeated"  # it had been applied before
    FORGOTTEN = "forgotten"  # the shard was restarted since it scored this step, and has applied nothing of it


@dataclass(frozen=True)
class Positives:
    """Classes that examples should be given: pairs of an example and a row, and the share of the target it gets."""

    examples: Numbers
    rows: Numbers
    shares: Floats


@dataclass(frozen=True)
class ScoreShared:
    """Asks a shard to choose its part of the classes that all examples share, and to sum up their logits.

    ticket: what the step is called until it is applied. mined: examples to look up hard classes for. wanted: how many
    for each. tail: random classes of this shard.
    """

    worker: int
    ticket: int
    x: Floats  # (examples, features)
    positives: Positives
    mined: Numbers
    wanted: int
    tail: int


@dataclass(frozen=True)
class SharedScores:
    """The sums of a shard: log of the sum of e^logit, and the logits of the targets, per example."""

    version: int
    classes: int
    log_sums: Floats
    target_logits: Floats


@dataclass(frozen=True)
class ApplyShared:
    """The sums of all shards together, with which this shard knows its gradients; scale: of the loss."""

    sender: Sender
    ticket: int
    log_normalizers: Floats
    scale: float


@dataclass(frozen=True)
class ScoreOwn:
    """Asks a shard for candidates of each example, and for logits of these and of its positives."""

    worker: int
    ticket: int
    x: Floats
    positives: Positives
    wanted: int


@dataclass(frozen=True)
class OwnScores:
    """Rows (examples, wanted), NO_ROW where there is none, and logits, -inf there."""

    version: int
    rows: Numbers
    logits: Floats
    positive_logits: Floats


@dataclass(frozen=True)
class ApplyOwn:
    """Gradients of those logits, zero where a candidate was not among the best of all shards."""

    sender: Sender
    ticket: int
    gradients: Floats
    positive_gradients: Floats


@dataclass(frozen=True)
class Pull:
    """Asks a shard for rows."""

    rows: Numbers


@dataclass(frozen=True)
class PulledRows:
    """Rows and biases as they are at a version."""

    version: int
    weight: Floats
    bias: Floats | None


@dataclass(frozen=True)
class Push:
    """Gradients of rows, ascending, that were pulled at a version."""

    sender: Sender
    version: int
    rows: Numbers
    gradients: Floats
    bias_gradients: Floats | None


@dataclass(frozen=True)
class Applied:
    """What became of a push, how stale it was, and the inputs' part of the gradient where the shard has that."""

    version: int
    outcome: Outcome
    staleness: int = 0
    input_gradients: Floats | None = None


@dataclass(frozen=True)
class Exchange:
    """A worker's gradient of the trunk, its sum over some steps, or none; and whether it wants the newest values.

    buffers: running means and the like, as the worker has them.
    """

    sender: Sender
    version: int
    gradients: dict[str, Floats] | None
    buffers: Arrays
    fetch: bool


@dataclass(frozen=True)
class TrunkValues:
    """The trunk at a version; `values` and `buffers` are empty where nobody asked for them."""

    version: int
    staleness: int
    values: dict[str, Floats]
    buffers: Arrays


@dataclass(frozen=True)
class AskBest:
    """Asks a shard for its best classes of each input."""

    x: Floats
    k: int
    exact: bool = False


@dataclass(frozen=True)
class BestRows:
    """Rows (examples, k), best first, and their logits."""

    rows: Numbers
    logits: Floats
