"""What a shard keeps between two calls of a worker: steps that were scored, and answers that may have got lost."""

import threading
from collections import OrderedDict
from dataclasses import dataclass

from manyclass._validation import Ids
from manyclass.distributed.messages import Applied, Positives, Sender
from manyclass.distributed.steps.step_math import OwnLogits, SharedLogits

KEPT = 4  # steps that a worker may have under way
PLACES = 2 * KEPT  # of each kind and worker: calls that were repeated, and come late, take places too


@dataclass(frozen=True)
class Scored:
    """A step that was scored and may still be applied: rows of the shard, ascending, and their logits."""

    version: int
    rows: Ids
    part: SharedLogits | OwnLogits
    positives: Positives


class WorkerMemory:
    """The last few scored steps and answers of every worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scored: dict[int, OrderedDict[int, Scored]] = {}
        self._answers: dict[int, OrderedDict[Sender, Applied]] = {}

    def keep(self, worker: int, ticket: int, scored: Scored) -> None:
        """Keep a step until it is applied, or many others have come."""
        with self._lock:
            kept = self._scored.setdefault(worker, OrderedDict())
            kept[ticket] = scored
            while len(kept) > PLACES:
                kept.popitem(last=False)

    def scored(self, worker: int, ticket: int) -> Scored | None:
        """Return a step that is still kept."""
        with self._lock:
            return self._scored.get(worker, OrderedDict()).get(ticket)

    def drop(self, worker: int, ticket: int) -> None:
        """Forget a step: it was applied."""
        with self._lock:
            self._scored.get(worker, OrderedDict()).pop(ticket, None)

    def remember(self, sender: Sender, answer: Applied) -> None:
        """Keep what a push was answered with: the answer may get lost, and the push comes again."""
        with self._lock:
            answers = self._answers.setdefault(sender.worker, OrderedDict())
            answers[sender] = answer
            while len(answers) > PLACES:
                answers.popitem(last=False)

    def answer(self, sender: Sender) -> Applied | None:
        """Return what this very push was answered with, if that is known."""
        with self._lock:
            return self._answers.get(sender.worker, OrderedDict()).get(sender)
