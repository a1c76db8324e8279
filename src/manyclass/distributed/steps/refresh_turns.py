"""Which rows a look-up hashes anew: a slice of all in turn (paper, round robin), and those that moved farthest.

The rule of `manyclass.torch`'s RefreshSchedule, for servers: gradients come from many workers, and there is no torch.
"""

import numpy as np
import numpy.typing as npt

from manyclass._validation import Ids
from manyclass.distributed.messages import Floats

MOST_KEPT = 32  # moves that are kept apart


class RefreshTurns:
    """Whose turn it is. rows: how many there are; period: look-ups in which each has its turn once.

    limit: at most so many at a time. Those that moved have at least half of it, if there are that many: where
    2·rows/limit is more than `period`, a round takes that many look-ups.
    """

    def __init__(self, rows: int, *, period: int, limit: int) -> None:
        self.rows, self.limit = rows, limit
        self.turn = min(-(-rows // period), -(-limit // 2), rows)
        self.cursor = 0
        self._far: Floats = np.zeros(rows, np.float32)  # how far each has moved since it was hashed
        self._waiting: list[Ids] = []

    def next_turn(self) -> Ids:
        """Return the rows whose turn it is, ascending, and pass the turn on."""
        rows = (self.cursor + np.arange(self.turn)) % self.rows
        self.cursor = int((self.cursor + self.turn) % self.rows)
        return np.sort(rows)

    def moved(self, rows: Ids, far: npt.NDArray[np.floating]) -> None:
        """Take note that distinct rows have moved, and how far."""
        self._far[rows] += far
        self._waiting.append(rows)
        if len(self._waiting) > MOST_KEPT:  # where nobody looks up, they must not pile up
            self._waiting = [np.unique(np.concatenate(self._waiting))]

    def with_moved(self, turn: Ids) -> Ids:
        """Return the rows of a turn and those that moved farthest, ascending; others that moved wait, up to the limit.

        All that is returned counts as hashed.
        """
        self._far[turn] = 0
        if not self._waiting:
            return turn
        waiting = np.unique(np.concatenate(self._waiting))
        waiting = waiting[self._far[waiting] > 0]
        waiting = waiting[np.argsort(-self._far[waiting], kind="stable")]
        room = max(0, self.limit - len(turn))
        chosen, later = waiting[:room], waiting[room : room + self.limit]
        self._far[chosen] = 0
        self._waiting = [later]
        return np.union1d(turn, chosen)

    def all_hashed(self) -> None:
        """Take note that every row was hashed now."""
        self._far[:] = 0
        self._waiting = []
