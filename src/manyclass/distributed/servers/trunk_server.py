"""The server of the trunk: dense parameters under the same rules as rows; fetched and pushed every few steps.

Parameters go by their names, as arrays: no torch here either.
"""

import threading
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass.distributed.messages import Arrays, Exchange, Floats, TrunkValues, wire_bytes
from manyclass.distributed.row_rules import ServerRule, move_all
from manyclass.distributed.servers.push_faults import fault_of_trunk
from manyclass.distributed.servers.push_ledger import PushLedger
from manyclass.distributed.servers.shard_stats import ShardStats
from manyclass.distributed.staleness import Staleness
from manyclass.errors import InputError


class TrunkServer:
    """Owns the trunk. values: parameters by name; buffers: running means and the like.

    buffer_share: how far a worker's buffers pull those here: one over the number of workers makes a running mean of all
    of them. Whole numbers, counters of batches for instance, become the largest that was seen.
    """

    def __init__(
        self,
        values: dict[str, Floats],
        buffers: Arrays | None = None,
        *,
        rule: ServerRule | None = None,
        staleness: Staleness | None = None,
        buffer_share: float = 1.0,
    ) -> None:
        self.rule, self.staleness = rule or ServerRule(), staleness or Staleness()
        self.buffer_share = buffer_share
        self.values = {name: np.array(part, np.float32, order="C") for name, part in values.items()}
        self.buffers: Arrays = {name: np.array(part) for name, part in (buffers or {}).items()}
        self.states = {name: self.rule.new_state(part, rows=False) for name, part in self.values.items()}
        self.version = 0
        self.ledger = PushLedger()
        self.stats = ShardStats()
        self._lock = threading.Lock()

    def exchange(self, asked: Exchange) -> TrunkValues:
        """Apply a gradient, once however often it comes, and return the values if they are wanted.

        One that does not fit, or is not finite, is refused and changes nothing.
        """
        with self._lock:
            staleness = 0
            if asked.gradients is not None and not self.ledger.is_applied(asked.sender):
                fault = fault_of_trunk(self.values, self.buffers, asked.gradients, asked.buffers)
                if fault is not None:
                    raise fault
                staleness = max(0, self.version - asked.version)
                self._move(asked, self.staleness.scale(staleness))
                self.stats.moved(staleness)
            values = {name: part.copy() for name, part in self.values.items()} if asked.fetch else {}
            buffers = {name: part.copy() for name, part in self.buffers.items()} if asked.fetch else {}
            return TrunkValues(self.version, staleness, values, buffers)

    def fence(self, worker: int, incarnation: int) -> None:
        """Refuse a worker's incarnations below the given one from now on."""
        with self._lock:
            self.ledger.fence(worker, incarnation)

    def report(self) -> dict[str, Any]:
        """Return how the server is doing, as JSON would."""
        return {"version": self.version, "bytes": wire_bytes(self.values), **self.stats.report()}

    def saved(self) -> tuple[dict[str, Any], Arrays]:
        """Return what a checkpoint keeps, of one moment: plain values, and arrays by name."""
        with self._lock:
            arrays: Arrays = {f"value.{name}": part.copy() for name, part in self.values.items()}
            arrays |= {f"buffer.{name}": part.copy() for name, part in self.buffers.items()}
            arrays |= {f"state.{name}": part.copy() for name, part in self.states.items() if part is not None}
            return {"version": self.version, "ledger": self.ledger.to_json(), "rule": self.rule.to_json()}, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """Take over what `saved` gave; a trunk of another shape is refused before anything changes.

        States of another kind of rule than this one's begin anew, with a warning.
        """
        for name, part in self.values.items():
            found = arrays.get(f"value.{name}")
            if found is None or found.shape != part.shape:
                shape = "missing" if found is None else f"of shape {found.shape}"
                raise InputError(f"the saved trunk's {name!r} is {shape}, the job's {part.shape}; use the job's own "
                                 "checkpoints or another folder")  # fmt: skip
        self.values = {name: np.array(arrays[f"value.{name}"], np.float32) for name in self.values}
        self.buffers = {name: np.array(arrays.get(f"buffer.{name}", part)) for name, part in self.buffers.items()}
        self.states = {name: self.rule.new_state(part, rows=False) for name, part in self.values.items()}
        if not self.rule.continues(saved := ServerRule.from_json(meta["rule"])):
            warnings.warn(f"the trunk, saved under {saved.kind!r}, goes on under {self.rule.kind!r}: the optimizer's "
                          "states begin anew", RuntimeWarning, stacklevel=2)  # fmt: skip
        else:
            self.states |= {
                name: np.array(arrays[f"state.{name}"], np.float32)
                for name, state in self.states.items()
                if state is not None and f"state.{name}" in arrays
            }
        self.version, self.ledger = int(meta["version"]), PushLedger.from_json(meta["ledger"])

    def _move(self, asked: Exchange, scale: float) -> None:
        assert asked.gradients is not None
        rule = self.rule.at(self.version, scale, rows=False)
        for name, gradient in asked.gradients.items():
            move_all(rule, self.values[name], self.states[name], np.ascontiguousarray(gradient, np.float32))
        for name, given in asked.buffers.items():
            self.buffers[name] = _pulled(self.buffers[name], given, self.buffer_share)
        self.ledger.note(asked.sender)
        self.version += 1


def _pulled(own: npt.NDArray[Any], given: npt.NDArray[Any], share: float) -> npt.NDArray[Any]:
    """Return a buffer after a worker's has pulled it; what is equal stays, masks of infinities for instance."""
    if not np.issubdtype(given.dtype, np.inexact):
        return np.asarray(np.maximum(own, given))
    with np.errstate(invalid="ignore"):
        return np.where(own == given, own, own + share * (given - own)).astype(own.dtype)
