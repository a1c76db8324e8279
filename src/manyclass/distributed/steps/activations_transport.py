"""Activations go to the shards: they find the classes, they have the rows, and only sums or logits come back.

With shared classes a shard returns two numbers per example, and later its part of the inputs' gradient. With own
candidates it returns their logits, of which the worker keeps the best of all shards, and it gets their gradients.
"""

from typing import Any

import numpy as np

from manyclass._class_shares import candidates_each
from manyclass.distributed.messages import (
    Applied,
    ApplyOwn,
    ApplyShared,
    Floats,
    OwnScores,
    Positives,
    ScoreOwn,
    ScoreShared,
    SharedScores,
)
from manyclass.distributed.placement import Placement
from manyclass.distributed.positives import Targets, as_table
from manyclass.distributed.settings import HeadSettings
from manyclass.distributed.steps.class_choice import share_of_tail
from manyclass.distributed.steps.step_math import log_sum_exp, own_softmax
from manyclass.distributed.steps.transport import (
    Call,
    Calls,
    Identity,
    StepOutcome,
    checked_loss,
    count_pushes,
    counted,
    mined_examples,
)


class ActivationsTransport:
    """The transport for many classes: its bytes do not depend on how many rows a step touches."""

    def __init__(self, settings: HeadSettings, placement: Placement, identity: Identity) -> None:
        self.settings, self.placement, self.identity = settings, placement, identity
        self._steps = 0

    def prepare(self) -> Any:
        """Nothing is needed before the first step."""
        yield from ()

    def step(self, x: Floats, targets: Targets) -> Calls:
        """Return the outcome of a step, after two rounds of calls."""
        return self._shared(x, targets) if self.settings.shared else self._own(x, targets)

    def _shared(self, x: Floats, targets: Targets) -> Calls:
        settings, shards, outcome = self.settings, self.placement.shards, StepOutcome(0.0, None)
        ticket, mined = self.identity.ticket(), mined_examples(settings, len(x), self._steps).astype(np.uint32)
        self._steps += 1
        wanted = -(-settings.mined_candidates // shards)
        scores: list[SharedScores] = yield from counted(outcome, [
            Call(shard, "score_shared", ScoreShared(self.identity.worker, ticket, x, part, mined, wanted,
                                                    share_of_tail(settings.tail, shard, shards)))
            for shard, part in enumerate(targets.split(self.placement))
        ])  # fmt: skip
        normalizers = log_sum_exp(np.stack([score.log_sums for score in scores], 1))
        of_targets = np.sum([score.target_logits for score in scores], 0)
        outcome.loss = checked_loss(float((normalizers - of_targets)[targets.present].sum()), targets)
        outcome.classes = sum(score.classes for score in scores)
        normalizers = np.where(targets.present, normalizers, np.inf).astype(np.float32)
        scale = 1 / max(1, int(targets.present.sum()))
        applied: list[Applied] = yield from counted(outcome, [
            Call(shard, "apply_shared", ApplyShared(self.identity.sender(shard), ticket, normalizers, scale))
            for shard in range(shards)
        ])  # fmt: skip
        return _finished(outcome, applied)

    def _own(self, x: Floats, targets: Targets) -> Calls:
        settings, shards, outcome = self.settings, self.placement.shards, StepOutcome(0.0, None)
        ticket, parts = self.identity.ticket(), targets.split(self.placement)
        wanted = candidates_each(settings.candidates, shards)
        scores: list[OwnScores] = yield from counted(outcome, [
            Call(shard, "score_own", ScoreOwn(self.identity.worker, ticket, x, part, wanted))
            for shard, part in enumerate(parts)
        ])  # fmt: skip
        logits = best_of_all(np.concatenate([score.logits for score in scores], 1), settings.candidates)
        loss, gradients, of_positives = _own_gradients(logits, parts, scores, targets)
        outcome.loss = checked_loss(loss, targets)
        outcome.classes = int(np.isfinite(logits).sum()) + len(targets.classes)
        widths = np.cumsum([score.logits.shape[1] for score in scores])[:-1]
        counts = np.cumsum([len(part.examples) for part in parts])[:-1]
        applied: list[Applied] = yield from counted(outcome, [
            Call(shard, "apply_own", ApplyOwn(self.identity.sender(shard), ticket, np.ascontiguousarray(mine), own))
            for shard, (mine, own) in enumerate(zip(np.split(gradients, widths, 1), np.split(of_positives, counts),
                                                    strict=True))
        ])  # fmt: skip
        return _finished(outcome, applied)


def best_of_all(logits: Floats, count: int) -> Floats:
    """Return logits (examples, n) with -inf for all but each example's `count` largest."""
    if logits.shape[1] <= count:
        return logits
    order = np.argpartition(-logits, count - 1, axis=1)[:, :count]
    kept = np.full_like(logits, -np.inf)
    np.put_along_axis(kept, order, np.take_along_axis(logits, order, 1), 1)
    return kept


def _own_gradients(
    logits: Floats, parts: list[Positives], scores: list[OwnScores], targets: Targets
) -> tuple[float, Floats, Floats]:
    """Return the summed loss, and the gradients of candidates' and of positives' logits."""
    examples = np.concatenate([part.examples for part in parts]).astype(np.int64)
    values = np.concatenate([score.positive_logits for score in scores])
    shares = np.concatenate([part.shares for part in parts])
    _, places = as_table(examples, np.zeros(len(examples), np.int64), len(logits))
    width = int(places[1].max(initial=-1)) + 1
    table, wanted = np.full((len(logits), width), -np.inf, np.float32), np.zeros((len(logits), width), np.float32)
    table[places], wanted[places] = values, shares
    both = np.concatenate([np.where(targets.present[:, None], logits, -np.inf), table], 1)
    of_targets = np.concatenate([np.zeros_like(logits), wanted], 1)
    loss, gradients = own_softmax(both, of_targets, 1 / max(1, int(targets.present.sum())))
    return loss, gradients[:, : logits.shape[1]], gradients[:, logits.shape[1] :][places]


def _finished(outcome: StepOutcome, applied: list[Applied]) -> StepOutcome:
    count_pushes(outcome, applied)
    parts = [answer.input_gradients for answer in applied if answer.input_gradients is not None]
    if len(parts) == len(applied):
        outcome.input_gradients = np.sum(parts, 0)
    return outcome
