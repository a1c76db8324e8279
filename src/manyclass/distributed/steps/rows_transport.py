"""Rows come to the worker, as in the paper: it has an index of its own, pulls what a step needs, pushes gradients.

The index is over a copy of all rows, as they were when last pulled: that is the price of finding candidates without
asking. Every step also pulls the rows whose turn it is, so that the copy follows the shards.
"""

from collections.abc import Generator
from typing import Any

import numpy as np

from manyclass._validation import Ids
from manyclass.distributed.messages import Applied, Floats, Pull, PulledRows, Push
from manyclass.distributed.placement import Placement
from manyclass.distributed.positives import Targets, as_table, without
from manyclass.distributed.settings import HeadSettings
from manyclass.distributed.steps.class_choice import share_of_tail, tail_seed, with_tail
from manyclass.distributed.steps.shard_index import ShardIndex
from manyclass.distributed.steps.step_math import OwnLogits, SharedLogits, log_sum_exp, own_softmax
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

SLICE = 65_536  # rows per call when all are pulled


class RowsTransport:
    """The paper's transport. Positions are those of the shuffled order: shards follow each other in it."""

    def __init__(self, settings: HeadSettings, placement: Placement, identity: Identity, threads: int = 1) -> None:
        self.settings, self.placement, self.identity, self.threads = settings, placement, identity, threads
        shape = settings.classes, settings.features
        bias = np.zeros(settings.classes, np.float32) if settings.bias else None
        self.index = ShardIndex(settings, np.zeros(shape, np.float32), bias, threads)
        self._steps = 0

    def prepare(self) -> Generator[list[Call], list[Any], None]:
        """Pull all rows, a slice of each shard at a time."""
        most = max(self.placement.size(shard) for shard in range(self.placement.shards))
        for begin in range(0, most, SLICE):
            sizes = [min(SLICE, self.placement.size(shard) - begin) for shard in range(self.placement.shards)]
            wanted = [begin + np.arange(max(0, size), dtype=np.uint32) for size in sizes]
            answers: list[PulledRows] = yield [Call(shard, "pull", Pull(rows)) for shard, rows in enumerate(wanted)]
            for shard, (rows, answer) in enumerate(zip(wanted, answers, strict=True)):
                self.index.store(rows.astype(np.int64) + self.placement.starts[shard], answer.weight, answer.bias)

    def step(self, x: Floats, targets: Targets) -> Calls:
        """Return the outcome of a step, after two rounds of calls: one that pulls, one that pushes."""
        outcome, positives = StepOutcome(0.0, None), self.placement.positions(targets.classes)
        chosen, log_weights, own = self._chosen(x, targets, positives)
        turn = self.index.turn()
        wanted = np.union1d(chosen, turn)
        cuts = np.searchsorted(wanted, self.placement.starts[1:-1])
        parts = [part - start for part, start in zip(np.split(wanted, cuts), self.placement.starts, strict=False)]
        pulled: list[PulledRows] = yield from counted(
            outcome, [Call(shard, "pull", Pull(rows.astype(np.uint32))) for shard, rows in enumerate(parts)]
        )
        weight = np.concatenate([answer.weight for answer in pulled])
        bias = np.concatenate([a.bias for a in pulled if a.bias is not None]) if self.settings.bias else None
        self.index.store(wanted, weight, bias)
        self.index.rehash(turn)
        places = np.searchsorted(wanted, chosen)
        rows, biases = weight[places], None if bias is None else bias[places]
        found = self._gradients(x, targets, positives, chosen, log_weights, own, rows, biases, outcome)
        outcome.classes = len(chosen)
        pushed: list[Applied] = yield from counted(outcome, self._pushes(chosen, *found, pulled))
        count_pushes(outcome, pushed)
        return outcome

    def _chosen(self, x: Floats, targets: Targets, positives: Ids) -> tuple[Ids, Any, Ids]:
        """Return the positions that a step computes, ascending, their log weights, and each example's own ones."""
        settings, none = self.settings, np.empty((len(x), 0), np.int64)
        if not settings.shared:
            found = self.index.shortlist(x, settings.candidates)
            own = as_table(targets.examples, positives, len(x), absent=-2)[0]
            found = without(found, own)
            return np.unique(np.concatenate([found[found >= 0], positives])), None, found
        mined, ticket = mined_examples(settings, len(x), self._steps), self.identity.ticket()
        self._steps += 1
        members = positives
        if len(mined):
            found = self.index.shortlist(x[mined], settings.mined_candidates).reshape(-1)
            members = np.unique(np.concatenate([positives, found[found >= 0]]))
        rows, log_weights = [], []
        for shard in range(self.placement.shards):
            start, end = self.placement.starts[shard : shard + 2]
            here = members[(members >= start) & (members < end)] - start
            seed = tail_seed(settings.seed, self.identity.worker, shard)
            tail = share_of_tail(settings.tail, shard, self.placement.shards)
            chosen = with_tail(here, int(end - start), tail, seed, ticket)
            rows.append(chosen.rows + start)
            log_weights.append(chosen.log_weights)
        return np.concatenate(rows), np.concatenate(log_weights), none

    def _gradients(
        self,
        x: Floats,
        targets: Targets,
        positives: Ids,
        chosen: Ids,
        log_weights: Any,
        own: Ids,
        weight: Floats,
        bias: Floats | None,
        outcome: StepOutcome,
    ) -> tuple[Floats, Floats]:
        """Return the gradients of the chosen rows and biases; writes loss and the inputs' gradient."""
        columns, scale = np.searchsorted(chosen, positives), 1 / max(1, int(targets.present.sum()))
        part: SharedLogits | OwnLogits
        if self.settings.shared:
            part = SharedLogits(x, weight, bias, log_weights, targets.examples, columns, targets.shares)
            normalizers = log_sum_exp(part.logits)
            total = float((normalizers - part.target_logits)[targets.present].sum())
            gradients = part.gradients(np.where(targets.present, normalizers, np.inf).astype(np.float32), scale)
        else:
            table, places = as_table(targets.examples, columns, len(x))
            candidates = np.where(own >= 0, np.searchsorted(chosen, np.maximum(own, 0)), -1)
            part = OwnLogits(x, weight, bias, np.concatenate([candidates, table], 1), self.threads)
            shares = np.zeros(part.logits.shape, np.float32)
            shares[:, own.shape[1] :][places] = targets.shares
            logits = np.where(targets.present[:, None], part.logits, -np.inf)
            total, gradients = own_softmax(logits, shares, scale)
        outcome.loss = checked_loss(total, targets)
        outcome.input_gradients = part.input_gradients(gradients)
        return part.row_gradients(gradients)

    def _pushes(self, chosen: Ids, weight: Floats, bias: Floats, pulled: list[PulledRows]) -> list[Call]:
        cuts = np.searchsorted(chosen, self.placement.starts[1:-1])
        calls = []
        for shard, (rows, gradients, sums) in enumerate(
            zip(np.split(chosen, cuts), np.split(weight, cuts), np.split(bias, cuts), strict=True)
        ):
            local = (rows - self.placement.starts[shard]).astype(np.uint32)
            sender = self.identity.sender(shard)
            push = Push(sender, pulled[shard].version, local, gradients, sums if self.settings.bias else None)
            calls.append(Call(shard, "push", push))
        return calls
