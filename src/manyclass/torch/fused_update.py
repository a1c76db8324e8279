"""Rows that move without a .grad: inside backward, or when the optimizer of the rest of the network takes its step."""

import copy
from typing import Any

import torch
from torch import Tensor

from manyclass.errors import ConfigError, InputError
from manyclass.torch.row_gradients import sparse_rows
from manyclass.torch.weight_watch import call_after_step

MOST_WAITING = 1024  # backward passes without a step


class FusedUpdate:
    """Hands row gradients to a row optimizer.

    at_step: not inside backward, but summed up when any optimizer that holds the parameter has taken a step: then
    rows and network move together, whatever a trainer accumulates, and however early it steps.
    """

    renumbered = False  # rows have other numbers than the steps know that hold this one

    def __init__(self, optimizer: Any, at_step: bool) -> None:
        self.optimizer = optimizer
        self.at_step = at_step
        self.waiting: dict[Tensor, Tensor] = {}  # by parameter: the sum of sparse gradients since the last step
        self.passes: dict[Tensor, int] = {}  # of which the sums are

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go on after a pickle: whom a step tells is no part of it."""
        self.__dict__.update(state)
        self._listen()

    def __deepcopy__(self, memo: dict[int, Any]) -> "FusedUpdate":
        other = memo[id(self)] = FusedUpdate(copy.deepcopy(self.optimizer, memo), self.at_step)
        other.waiting, other.passes = copy.deepcopy((self.waiting, self.passes), memo)
        other._listen()
        return other

    def _listen(self) -> None:
        for parameter in self.waiting:
            call_after_step(parameter, self)

    def after_renumbering(self) -> "FusedUpdate":
        """Return what takes the place of this one: steps that began before the rows got other numbers are refused."""
        self.forget()
        self.renumbered = True
        return FusedUpdate(self.optimizer, self.at_step)

    def forget(self) -> None:
        """Drop the gradients that wait."""
        self.waiting.clear()
        self.passes.clear()

    def begin_step(self, parameter: Tensor) -> Any:
        """Return rule and states for native code that moves the rows itself; None where gradients wait for a step."""
        self.check_numbers()
        return None if self.at_step else self.optimizer.begin_step(parameter)

    def update_rows(self, parameter: Tensor, ids: Tensor, gradient: Tensor) -> None:
        """Apply the gradient, or keep it until the step."""
        self.check_numbers()
        if not self.at_step:
            self.optimizer.update_rows(parameter, ids, gradient)
            return
        if self.passes.get(parameter, 0) >= MOST_WAITING:
            raise ConfigError(
                f"{MOST_WAITING} backward passes and no step of an optimizer that holds the head's rows; give it all "
                "parameters of the model, or use row_update='fused'"
            )
        added = sparse_rows(ids, gradient, parameter)
        # Summed as they come, two at a time: more at once would be added in no order, and a resumed run differ.
        self.waiting[parameter] = summed(self.waiting[parameter], added) if parameter in self.waiting else added
        self.passes[parameter] = self.passes.get(parameter, 0) + 1
        call_after_step(parameter, self)

    def check_numbers(self) -> None:
        """Refuse a step that knows the rows by other numbers."""
        if self.renumbered:
            raise ConfigError(
                "compact() gave the rows other numbers between this loss and its backward; call backward first, or "
                "compute the loss again"
            )

    def after_step(self, parameter: Tensor) -> None:
        """Move the rows of a parameter by the sum of the gradients that wait."""
        total = self.waiting.pop(parameter, None)
        self.passes.pop(parameter, None)
        if total is not None:
            self.optimizer.update_rows(parameter, total.indices()[0], total.values())

    def saved(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what moving the rows needs to go on: states, gradients that wait, rates; by name."""
        rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        tensors = {"rates": torch.tensor(rates, dtype=torch.float64)}
        for name, parameter in parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    tensors[f"{name}.{key}"] = value
            if (total := self.waiting.get(parameter)) is not None:
                tensors |= {f"{name}.waiting_ids": total.indices()[0], f"{name}.waiting": total.values()}
        return tensors

    def restore(self, parameters: dict[str, Tensor], tensors: dict[str, Tensor]) -> None:
        """Take over what `saved` gave; states of another shape, or of another optimizer, are refused beforehand."""
        states: dict[str, dict[str, Tensor]] = {name: {} for name in parameters}
        for full_name, tensor in tensors.items():
            name, _, key = full_name.partition(".")
            if name in parameters and not key.startswith("waiting"):
                if tensor.dim() and tensor.shape != parameters[name].shape:
                    expected = tuple(parameters[name].shape)
                    raise InputError(f"row state {full_name} has shape {tuple(tensor.shape)}; expected {expected}")
                states[name][key] = tensor.detach().clone()
        for name in parameters:
            if states[name] and not self.optimizer.takes_states(set(states[name])):
                raise InputError(
                    f"row states of {name} are {', '.join(sorted(states[name]))}, which are not those of a "
                    f"{type(self.optimizer).__name__}: load them into a head with the same row_optimizer, or leave "
                    "them out of the state dict"
                )
        for group, rate in zip(
            self.optimizer.param_groups, tensors.get("rates", torch.empty(0)).tolist(), strict=False
        ):
            group["lr"] = rate
        self.forget()
        for name, parameter in parameters.items():
            self.optimizer.state.pop(parameter, None)
            if states[name]:
                self.optimizer.state[parameter] = states[name]
            if f"{name}.waiting" in tensors:
                ids, values = tensors[f"{name}.waiting_ids"].clone(), tensors[f"{name}.waiting"].clone()
                self.update_rows(parameter, ids, values)


def summed(one: Tensor, other: Tensor) -> Tensor:
    """Return the sum of two coalesced sparse gradients, coalesced."""
    ids = torch.cat([one.indices(), other.indices()], 1)
    values = torch.cat([one.values(), other.values()])
    return torch.sparse_coo_tensor(ids, values, one.shape, check_invariants=False).coalesce()
