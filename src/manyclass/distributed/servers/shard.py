"""A parameter shard: its rows, their optimizer's state and their part of the index; it scores, it moves, it remembers.

Nothing here knows of threads, processes or networks: an engine calls the methods, from as many threads as it likes,
and a simulation may as well. Rows are read and moved under one lock per shard, so that nobody ever sees half a row;
shards are what different threads work on at the same time.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from manyclass._validation import Ids
from manyclass.distributed.messages import (
    NO_ROW,
    Applied,
    ApplyOwn,
    ApplyShared,
    AskBest,
    BestRows,
    Floats,
    Outcome,
    OwnScores,
    Pull,
    PulledRows,
    Push,
    ScoreOwn,
    ScoreShared,
    Sender,
    SharedScores,
    wire_bytes,
)
from manyclass.distributed.placement import Placement
from manyclass.distributed.positives import as_table, without
from manyclass.distributed.servers.push_faults import fault_of_rows, fault_of_shape
from manyclass.distributed.servers.push_log import PushLog
from manyclass.distributed.servers.shard_rows import ShardRows
from manyclass.distributed.servers.shard_stats import ShardStats
from manyclass.distributed.servers.shared_lock import SharedLock
from manyclass.distributed.servers.worker_memory import Scored, WorkerMemory
from manyclass.distributed.settings import HeadSettings
from manyclass.distributed.staleness import Staleness
from manyclass.distributed.steps.class_choice import tail_seed, with_tail
from manyclass.distributed.steps.exact_search import best_rows
from manyclass.distributed.steps.shard_index import ShardIndex
from manyclass.distributed.steps.step_math import OwnLogits, SharedLogits
from manyclass.errors import ManyclassError


class ParameterShard:
    """One shard of the output layer.

    number: which one of `placement`'s shards. rows: what it owns, new or from a checkpoint. log: where pushes are
    written down before they are acknowledged, if anywhere.
    """

    def __init__(
        self,
        settings: HeadSettings,
        placement: Placement,
        number: int,
        *,
        rows: ShardRows | None = None,
        staleness: Staleness | None = None,
        log: PushLog | None = None,
        threads: int = 1,
    ) -> None:
        self.settings, self.placement, self.number, self.threads = settings, placement, number, threads
        self.rows = ShardRows.new(settings, placement, number) if rows is None else rows
        self.staleness = staleness or Staleness()
        self.log = log
        self.stats = ShardStats()
        self.index = ShardIndex(settings, self.rows.weight, self.rows.bias, threads)
        self._lock = SharedLock()
        self._memory = WorkerMemory()

    # What workers ask for -------------------------------------------------------------

    def score_shared(self, asked: ScoreShared) -> SharedScores:
        """Choose this shard's part of the classes of a step, and return the sums over it."""
        started = time.perf_counter()
        members = asked.positives.rows.astype(np.int64)
        with self._lock.reading():
            if len(asked.mined):
                self.index.refresh()
                found = self.index.shortlist(asked.x[asked.mined.astype(np.int64)], asked.wanted)
                members = np.concatenate([members, found.reshape(-1)])
            seed = tail_seed(self.settings.seed, asked.worker, self.number)
            rows, log_weights = with_tail(members, len(self.rows.weight), asked.tail, seed, asked.ticket)
            weight, bias, version = self._copied(rows)
        columns = np.searchsorted(rows, asked.positives.rows.astype(np.int64))
        part = SharedLogits(asked.x, weight, bias, log_weights, asked.positives.examples.astype(np.int64), columns,
                            asked.positives.shares)  # fmt: skip
        answer = SharedScores(version, len(rows), part.log_sums(), part.target_logits)
        self._memory.keep(asked.worker, asked.ticket, Scored(version, rows, part, asked.positives))
        self.stats.served(started, wire_bytes(asked), wire_bytes(answer))
        return answer

    def score_own(self, asked: ScoreOwn) -> OwnScores:
        """Find candidates for each example and return their logits, and those of its positives."""
        started = time.perf_counter()
        with self._lock.reading():
            self.index.refresh()
            found = self.index.shortlist(asked.x, asked.wanted)
            positives, examples = asked.positives.rows.astype(np.int64), asked.positives.examples.astype(np.int64)
            found = without(found, as_table(examples, positives, len(found), absent=-2)[0])
            rows = np.unique(np.concatenate([found[found >= 0], positives]))
            weight, bias, version = self._copied(rows)
        columns = np.where(found >= 0, np.searchsorted(rows, np.maximum(found, 0)), -1)
        own, places = as_table(examples, np.searchsorted(rows, positives), len(asked.x))
        part = OwnLogits(asked.x, weight, bias, np.concatenate([columns, own], 1), self.threads)
        width = found.shape[1]
        rows_of = np.where(found >= 0, found, int(NO_ROW)).astype(np.uint32)
        answer = OwnScores(version, rows_of, part.logits[:, :width], part.logits[:, width:][places])
        self._memory.keep(asked.worker, asked.ticket, Scored(version, rows, part, asked.positives))
        self.stats.served(started, wire_bytes(asked), wire_bytes(answer))
        return answer

    def apply_shared(self, push: ApplyShared) -> Applied:
        """Move the rows of a step that was scored here; return this shard's part of the inputs' gradient."""
        scored = self._memory.scored(push.sender.worker, push.ticket)
        if scored is None:
            return self._forgotten(push.sender)
        assert isinstance(scored.part, SharedLogits)
        self._refuse(push.sender, fault_of_shape(
            "normalizers", self.number, push.log_normalizers, (len(scored.part.x),)))  # fmt: skip
        gradients = scored.part.gradients(push.log_normalizers, push.scale)
        return self._applied_part(push, scored, scored.rows, gradients)

    def apply_own(self, push: ApplyOwn) -> Applied:
        """Move the rows of a step whose candidates were found here; return the inputs' gradient."""
        scored = self._memory.scored(push.sender.worker, push.ticket)
        if scored is None:
            return self._forgotten(push.sender)
        assert isinstance(scored.part, OwnLogits)
        logits, positives = scored.part.logits, scored.positives
        table, places = as_table(positives.examples.astype(np.int64), positives.rows.astype(np.int64), len(logits))
        width = logits.shape[1] - table.shape[1]
        for fault in (
            fault_of_shape("gradients", self.number, push.gradients, (len(logits), width)),
            fault_of_shape("gradients of positives", self.number, push.positive_gradients, positives.rows.shape),
        ):
            self._refuse(push.sender, fault)
        gradients = np.zeros(logits.shape, np.float32)
        gradients[:, :width] = push.gradients
        gradients[:, width:][places] = push.positive_gradients
        return self._applied_part(push, scored, scored.rows[scored.part.columns], gradients)

    def pull(self, asked: Pull) -> PulledRows:
        """Return rows as they are now."""
        started = time.perf_counter()
        with self._lock.reading():
            weight, bias, version = self._copied(asked.rows.astype(np.int64))
        answer = PulledRows(version, weight, bias)
        self.stats.served(started, wire_bytes(asked), wire_bytes(answer))
        return answer

    def push(self, push: Push) -> Applied:
        """Move rows by the gradients that a worker computed."""
        started = time.perf_counter()
        rows = push.rows.astype(np.int64)
        answer = self._move(push.sender, push.version, rows, push.gradients, push.bias_gradients)
        self.stats.served(started, wire_bytes(push), wire_bytes(answer))
        return answer

    def best(self, asked: AskBest) -> BestRows:
        """Return the best rows of each input: by the index, or by looking at all."""
        with self._lock.reading():
            if asked.exact:
                found, logits = best_rows(self.rows.weight, self.rows.bias, asked.x, asked.k)
            else:
                index, k = self.index.index(), min(asked.k, len(self.rows.weight))
                answer = index.search(asked.x, k, candidates=max(k, index.config.candidates), threads=self.threads)
                assert answer.logits is not None
                found, logits = answer.classes, answer.logits
        return BestRows(np.where(found < 0, int(NO_ROW), found).astype(np.uint32), logits)

    # What the coordinator asks for ----------------------------------------------------

    def fence(self, worker: int, incarnation: int) -> None:
        """Refuse a worker's incarnations below the given one from now on."""
        with self._lock.writing():
            self.rows.ledger.fence(worker, incarnation)

    def snapshot(self, new_log: Callable[[int], PushLog] | None = None) -> ShardRows:
        """Return a copy of rows, states, ledger and version, all of the same moment: what a checkpoint holds.

        new_log: makes the log of the pushes that come after this version; the old one is closed.
        """
        with self._lock.writing():
            copy, old = self.rows.copy(), self.log
            if new_log is not None:
                self.log = new_log(copy.version)
        if new_log is not None and old is not None:
            old.close()
        return copy

    def report(self) -> dict[str, Any]:
        """Return how this shard is doing, as JSON would."""
        age = self.index.age()
        return {
            "shard": self.number,
            "version": self.rows.version,
            "classes": len(self.rows.weight),
            "table_age": age.mean,
            "oldest_entry": age.largest,
            **self.stats.report(),
        }

    # Moving rows -----------------------------------------------------------------------

    def _applied_part(self, push: ApplyShared | ApplyOwn, scored: Scored, rows: Ids, gradients: Floats) -> Applied:
        started = time.perf_counter()
        weight, bias = scored.part.row_gradients(gradients)
        inputs = scored.part.input_gradients(gradients)
        answer = self._move(push.sender, scored.version, rows, weight, bias, inputs)
        self._memory.drop(push.sender.worker, push.ticket)
        self.stats.served(started, wire_bytes(push), wire_bytes(answer))
        return answer

    def _move(
        self,
        sender: Sender,
        read_at: int,
        rows: Ids,
        gradients: Floats,
        bias_gradients: Floats | None,
        inputs: Floats | None = None,
    ) -> Applied:
        """Apply a push once, however often it comes, and return what it is answered with.

        With a log, neither the first answer nor a repeated one leaves before the push is on the disk. A push that does
        not fit is refused before it gets there: a log that holds one could not be replayed.
        """
        fault = fault_of_rows(self.number, self.rows, rows, gradients, bias_gradients)  # outside: others need not wait
        with self._lock.writing():
            log, written = self.log, 0
            staleness = max(0, self.rows.version - read_at)
            if repeated := self.rows.ledger.is_applied(sender):
                answer = self._repeated(sender)
                written = 0 if log is None else log.written
            elif fault is not None:
                raise fault
            else:
                scale = self.staleness.scale(staleness)
                if log is not None:  # before the rows move: what cannot be written down is not done
                    written = log.append(sender, scale, rows, gradients, bias_gradients)
                self.rows.move(sender, scale, rows, gradients, bias_gradients, self.threads)
                answer = Applied(self.rows.version, Outcome.APPLIED, staleness, inputs)
                self._memory.remember(sender, answer)
        if log is not None:  # outside of the lock: pushes of many workers share one trip to the disk
            log.wait_for(written)
        if not repeated:
            self.index.note_moved(rows, gradients)
            self.stats.moved(staleness)
        return answer

    def _refuse(self, sender: Sender, fault: ManyclassError | None) -> None:
        """Raise a fault; a worker that was given up hears that instead."""
        if fault is not None:
            with self._lock.reading():
                self.rows.ledger.is_applied(sender)
            raise fault

    def _copied(self, rows: Ids) -> tuple[Floats, Floats | None, int]:
        bias = self.rows.bias
        return self.rows.weight[rows], None if bias is None else bias[rows], self.rows.version

    def _repeated(self, sender: Sender) -> Applied:
        known = self._memory.answer(sender)
        return Applied(self.rows.version, Outcome.REPEATED, 0, None if known is None else known.input_gradients)

    def _forgotten(self, sender: Sender) -> Applied:
        """Return the answer to a push of a step that is not kept: it was applied, or this shard was restarted since."""
        with self._lock.reading():
            if self.rows.ledger.is_applied(sender):
                return self._repeated(sender)
            return Applied(self.rows.version, Outcome.FORGOTTEN)
