"""Where the gradients of rows go: into a sparse gradient, a dense one, or at once into the rows."""

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from manyclass.torch.row_arrays import view
from manyclass.torch.weight_watch import announce_moved


def asked_for(node: Any, tensor: int) -> bool:
    """Return whether this backward wants a gradient: not where `autograd.grad` asks for those of other tensors only.

    `needs_input_grad` says whether anybody ever may. node: the context of a torch Function in its backward. tensor:
    its number among the tensors that the Function was applied to.
    """
    receiver = node.next_functions[tensor][0]
    if receiver is None:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(receiver))
    except RuntimeError:  # what torch says of a leaf whose gradient `autograd.grad` returns
        return True


def rows_wanted(node: Any, argument: int, tensor: int, update: "RowUpdate | None") -> tuple[bool, bool]:
    """Return whether gradients of weight and bias are wanted; rows that move by them must really be asked for.

    argument, tensor: number of the weight, which the bias follows, among all arguments and among the tensors.
    """
    of_weight, of_bias = node.needs_input_grad[argument : argument + 2]
    if update is None:
        return of_weight, of_bias
    return of_weight and asked_for(node, tensor), of_bias and asked_for(node, tensor + 1)


class RowUpdate(Protocol):
    """What changes rows inside backward, in place of a gradient: a row optimizer."""

    def update_rows(self, parameter: Tensor, ids: Tensor, gradient: Tensor) -> None:
        """Apply one step to rows `ids`, distinct and ascending; gradient: one entry of the parameter per id.

        The gradient may be float32 where the parameter is a shorter type.
        """

    def check_numbers(self) -> None:
        """Raise where the rows have had other numbers since the step began; `update_rows` does so, too."""


class RowReceiver(NamedTuple):
    """The rows of a weight and a bias that get gradients.

    update: what moves them inside backward; None: they get gradients, sparse ones unless `dense`, for which all rows
    must be wanted.
    """

    weight: Tensor
    bias: Tensor | None
    update: RowUpdate | None
    dense: bool

    def receive(
        self, native: Any, ids: Tensor, gradient: Any, input: Any, wanted: tuple[bool, bool]
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return gradients of weight and bias where they are wanted, or move the rows and return none.

        native: what computes them, with `row_gradients` and `update_rows`. ids: the rows, distinct and ascending.
        """
        if not any(wanted):
            return None, None
        sums = np.empty(len(ids), np.float32)
        moved = self._move_at_once(native, ids, gradient, input, sums) if wanted[0] else False
        rows = None
        if not moved:
            into = np.empty((len(ids), input.shape[1]), np.float32)
            native.row_gradients(gradient, input, into, sums, torch.get_num_threads())
            rows = torch.from_numpy(into)
        of_bias = torch.from_numpy(sums)
        if self.update is not None:
            if wanted[0] and rows is not None:
                self.update.update_rows(self.weight, ids, rows)
            if wanted[1] and self.bias is not None:
                self.update.update_rows(self.bias, ids, of_bias)
            return None, None
        rows = None if rows is None else rows.to(self.weight.dtype)
        if self.dense:
            return rows, None if self.bias is None else of_bias
        return (
            sparse_rows(ids, rows, self.weight) if wanted[0] and rows is not None else None,
            sparse_rows(ids, of_bias, self.bias) if wanted[1] and self.bias is not None else None,
        )

    def _move_at_once(self, native: Any, ids: Tensor, gradient: Any, input: Any, sums: Any) -> bool:
        """Move the rows natively, no array of their gradients between, if the update is one that can say how."""
        begin = getattr(self.update, "begin_step", None)
        if begin is None or not self.weight.is_contiguous():
            return False
        step = begin(self.weight)
        if step is None:
            return False
        states = [None if state is None else view(state) for state in (step.first, step.second)]
        native.update_rows(gradient, input, step.rule, view(self.weight), *states, sums, torch.get_num_threads())
        changed = [part for part in (self.weight, step.first, step.second) if part is not None]
        torch.autograd.graph.increment_version(changed)
        announce_moved(self.weight, ids)
        return True


def sparse_rows(ids: Tensor, values: Tensor, like: Tensor) -> Tensor:
    """Return a coalesced sparse tensor of `like`'s shape: `values` at rows `ids`."""
    return torch.sparse_coo_tensor(
        ids[None], values, tuple(like.shape), is_coalesced=True, check_invariants=False, requires_grad=False
    )
