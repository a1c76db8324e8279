"""Noticing that a weight is no longer what an index was built from.

Who moves rows by a known gradient announces them here: our row optimizers, and a hook on the step of every other
optimizer. Whatever else changes a weight is noticed when the index is next asked: by another place in memory, by
torch's version counter, or, because edits through `.data` leave no trace there, by a sample of elements.
"""

import weakref
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

SAMPLED = 128  # an edit of 5% of the rows misses all of them once in 700 times


class Watcher(Protocol):
    """What wants to know when a known gradient moves rows of a parameter: before, and then which ones.

    ids: the rows, ascending; None: any of them.
    """

    def rows_about_to_move(self, parameter: Tensor) -> None: ...

    def rows_moved(self, parameter: Tensor, ids: Tensor | None) -> None: ...


Listeners = dict[int, "weakref.WeakSet[Any]"]  # by id of a parameter
_WATCHERS: Listeners = {}


class _Sampled:
    """One parameter: where it is, its version, and a few of its elements."""

    def __init__(self, parameter: Tensor, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> None:
        self.parameter = parameter
        self.memory = _memory(parameter)
        self.version = _version(parameter)
        kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[parameter.element_size()]  # so that NaN equals itself
        self.flat: npt.NDArray[Any] = parameter.detach().contiguous().view(kind).reshape(-1).numpy()
        width = self.flat.size // max(1, len(parameter))
        self.places = rows * width + columns % max(1, width) if self.flat.size else rows[:0]
        self.elements = self.flat.take(self.places)
        self.seen = self.elements.tobytes()

    def untouched(self, parameter: Tensor) -> bool:
        """Return whether nothing at all has happened to the parameter; quick, because every query asks."""
        return (
            parameter is self.parameter
            and parameter.data_ptr() == self.memory[0]
            and _version(parameter) == self.version
            and self.flat.take(self.places).tobytes() == self.seen
        )

    def in_step(self, parameter: Tensor, may_differ: npt.NDArray[np.bool_]) -> bool:
        """Return whether only rows that may differ do; they are seen anew."""
        if _memory(parameter) != self.memory or _version(parameter) != self.version:
            return False
        now = self.flat.take(self.places)
        same = now == self.elements
        self.elements, self.seen = now, now.tobytes()
        return bool((same | may_differ[: len(same)]).all())


class WeightWatch:
    """What a weight and a bias looked like when an index was last in step with them."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        random = np.random.default_rng(0)
        self._rows = random.integers(max(1, len(weight)), size=SAMPLED)
        columns = random.integers(2**31, size=SAMPLED)
        self._weight = _Sampled(weight, self._rows, columns)
        self._bias = None if bias is None else _Sampled(bias, self._rows, columns)
        self._may_differ = np.zeros(SAMPLED, np.bool_)
        self._changed = False  # whether something else was seen to have changed them

    @property
    def _parts(self) -> list[_Sampled]:
        return [self._weight] if self._bias is None else [self._weight, self._bias]

    def announce_to(self, watcher: Watcher) -> None:
        """Tell the watcher from now on which rows are moved by a known gradient."""
        for part in self._parts:
            _listen(_WATCHERS, part.parameter, watcher)

    def holds(self, parameter: Tensor) -> bool:
        """Return whether this is one of the parameters watched, and not another with the same id."""
        return any(part.parameter is parameter for part in self._parts)

    def look_before_move(self, parameter: Tensor) -> None:
        """See whether anything else has changed the parameter, before a known gradient writes over the traces."""
        for part in self._parts:
            if part.parameter is parameter and part.version != _version(parameter):
                self._changed = True

    def expect_moved(self, parameter: Tensor, ids: Tensor | None) -> None:
        """Take note that these rows, ascending, were moved by a known gradient; None: any of them."""
        for part in self._parts:
            if part.parameter is parameter:
                part.version = _version(parameter)
        if ids is None:
            self._may_differ[:] = True
        elif len(ids):
            known = ids.numpy()
            places = np.minimum(np.searchsorted(known, self._rows), len(known) - 1)
            self._may_differ |= known[places] == self._rows

    def same_memory(self, weight: Tensor, bias: Tensor | None) -> bool:
        """Return whether these parameters are where the watched ones are."""
        now = [_memory(parameter) for parameter in (weight, bias) if parameter is not None]
        return now == [part.memory for part in self._parts]

    def is_copied_by(self, rows: npt.NDArray[Any]) -> bool:
        """Return whether an index has rows of its own instead of a view of the weight."""
        return bool(rows.__array_interface__["data"][0] != self._weight.memory[0])

    def in_step(self, weight: Tensor, bias: Tensor | None) -> bool:
        """Return whether nothing but known gradients has changed these parameters."""
        if self._changed or (bias is None) != (self._bias is None):
            return False
        if self._weight.untouched(weight) and (bias is None or self._bias is None or self._bias.untouched(bias)):
            return True
        known = self._weight.in_step(weight, self._may_differ)
        if bias is not None and self._bias is not None:
            known &= self._bias.in_step(bias, self._may_differ)
        self._may_differ = np.zeros(SAMPLED, np.bool_)
        return known


def announce_moving(parameter: Tensor) -> None:
    """Tell those who watch a parameter that a known gradient is about to move some of its rows."""
    for watcher in list(_WATCHERS.get(id(parameter), ())):
        watcher.rows_about_to_move(parameter)


def announce_moved(parameter: Tensor, ids: Tensor | None) -> None:
    """Tell those who watch a parameter that a known gradient has just moved these rows; None: any of them."""
    for watcher in list(_WATCHERS.get(id(parameter), ())):
        watcher.rows_moved(parameter, ids)


class AfterStep(Protocol):
    """What wants to know when an optimizer that holds a parameter has taken a step."""

    def after_step(self, parameter: Tensor) -> None: ...


_AFTER_STEP: Listeners = {}


def call_after_step(parameter: Tensor, listener: AfterStep) -> None:
    """Call the listener's `after_step` whenever an optimizer that holds the parameter has taken a step."""
    _listen(_AFTER_STEP, parameter, listener)


def _listen(listeners: Listeners, parameter: Tensor, listener: Any) -> None:
    """Add a listener; the entry goes with its parameter."""
    if id(parameter) not in listeners:
        listeners[id(parameter)] = weakref.WeakSet()
        weakref.finalize(parameter, listeners.pop, id(parameter), None)
    listeners[id(parameter)].add(listener)


def _before_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Announce what any optimizer is about to move: also what has no gradient yet, which a closure may give it."""
    if not _WATCHERS:
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            announce_moving(parameter)


def _after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Announce what any optimizer has moved."""
    if not _WATCHERS and not _AFTER_STEP:
        return
    ours = hasattr(optimizer, "update_rows")  # announces the rows of sparse gradients itself
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) in _WATCHERS and parameter.grad is not None:
                if not parameter.grad.is_sparse:
                    announce_moved(parameter, None)
                elif not ours:
                    announce_moved(parameter, parameter.grad._indices()[0].unique())
            for listener in list(_AFTER_STEP.get(id(parameter), ())):  # they move it in turn, by what waits
                listener.after_step(parameter)


register_optimizer_step_pre_hook(_before_step)
register_optimizer_step_post_hook(_after_step)


def _version(parameter: Tensor) -> int:
    return 0 if parameter.is_inference() else parameter._version


def _memory(parameter: Tensor) -> tuple[Any, ...]:
    return parameter.data_ptr(), parameter.shape, parameter.dtype
