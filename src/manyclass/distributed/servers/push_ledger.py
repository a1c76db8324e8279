"""Which pushes were applied: a push that comes twice moves the rows once, and one of a replaced worker never.

A push is named by (worker, incarnation, sequence). Incarnations of a worker are numbered by the coordinator, and
sequences by the worker, apart for every server. The ledger is saved in the same file as the weights, so that after a
restart it tells the truth about them.
"""

from typing import Any

from manyclass.distributed.messages import FencedError, Sender

WINDOW = 64  # sequences that may be under way at the same time; a worker has two


class PushLedger:
    """What has been applied, per worker: its incarnation, its highest sequence, and which of the last 64 were seen."""

    def __init__(self) -> None:
        self._workers: dict[int, tuple[int, int, int]] = {}

    def is_applied(self, sender: Sender) -> bool:
        """Return whether this push has been applied; raises FencedError where it must not be any more."""
        incarnation, highest, seen = self._workers.get(sender.worker, (0, -1, 0))
        if sender.incarnation < incarnation:
            raise FencedError(
                f"worker {sender.worker} sends as incarnation {sender.incarnation}, but {incarnation} has taken its "
                "place; join again"
            )
        if sender.incarnation > incarnation:
            return False
        back = highest - sender.sequence
        return back >= WINDOW or (back >= 0 and bool(seen >> back & 1))

    def note(self, sender: Sender) -> None:
        """Take down that a push is being applied."""
        incarnation, highest, seen = self._workers.get(sender.worker, (0, -1, 0))
        if sender.incarnation > incarnation:
            highest, seen = -1, 0
        ahead = sender.sequence - highest
        if ahead > 0:
            highest, seen = sender.sequence, (seen << ahead | 1) & (1 << WINDOW) - 1
        else:
            seen |= 1 << -ahead
        self._workers[sender.worker] = (sender.incarnation, highest, seen)

    def fence(self, worker: int, incarnation: int) -> None:
        """Refuse this worker's incarnations below the given one from now on."""
        if self._workers.get(worker, (0, -1, 0))[0] < incarnation:
            self._workers[worker] = (incarnation, -1, 0)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON keeps it."""
        return {str(worker): list(known) for worker, known in self._workers.items()}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "PushLedger":
        """Return the ledger that `to_json` gave."""
        ledger = cls()
        ledger._workers = {
            int(worker): (int(known[0]), int(known[1]), int(known[2])) for worker, known in saved.items()
        }
        return ledger

    @classmethod
    def after(cls, ledgers: "list[PushLedger]") -> "PushLedger":
        """Return a ledger for parts of several servers: sequences start over, so earlier incarnations are refused."""
        found = cls()
        for ledger in ledgers:
            for worker, (incarnation, _, _) in ledger._workers.items():
                found.fence(worker, incarnation + 1)
        return found
