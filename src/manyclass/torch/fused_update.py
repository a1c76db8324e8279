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

    def __init__(self, optimizer: Any, at_step: bool) -> None:
        self.optimizer = optimizer
        self.at_step = at_step
        self.waiting: dict[Tensor, list[Tensor]] = {}  # by parameter: sparse gradients of passes since the last step

    def __deepcopy__(self, memo: dict[int, Any]) -> "FusedUpdate":
        other = memo[id(self)] = FusedUpdate(copy.deepcopy(self.optimizer, memo), self.at_step)
        other.waiting = copy.deepcopy(self.waiting, memo)
        for parameter in other.waiting:
            call_after_step(parameter, other)
        return other

    def forget(self) -> None:
        """Drop the gradients that wait."""
        self.waiting.clear()

    def begin_step(self, parameter: Tensor) -> Any:
        """Return rule and states for native code that moves the rows itself; None where gradients wait for a step."""
        return None if self.at_step else self.optimizer.begin_step(parameter)

    def update_rows(self, parameter: Tensor, ids: Tensor, gradient: Tensor) -> None:
        """Apply the gradient, or keep it until the step."""
        if not self.at_step:
            self.optimizer.update_rows(parameter, ids, gradient)
            return
        waiting = self.waiting.setdefault(parameter, [])
        if len(waiting) >= MOST_WAITING:
            raise ConfigError(
                f"{MOST_WAITING} backward passes and no step of an optimizer that holds the head's rows; give it all "
                "parameters of the model, or use row_update='fused'"
            )
        waiting.append(sparse_rows(ids, gradient, parameter))
        call_after_step(parameter, self)

    def after_step(self, parameter: Tensor) -> None:
        """Move the rows of a parameter by the sum of the gradients that wait."""
        waiting = self.waiting.pop(parameter, [])
        if waiting:
            total = summed(waiting)
            self.optimizer.update_rows(parameter, total.indices()[0], total.values())

    def saved(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what moving the rows needs to go on: states, gradients that wait, rates; by name."""
        rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        tensors = {"rates": torch.tensor(rates, dtype=torch.float64)}
        for name, parameter in parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    tensors[f"{name}.{key}"] = value
            if waiting := self.waiting.get(parameter):
                total = summed(waiting)
                tensors |= {f"{name}.waiting_ids": total.indices()[0], f"{name}.waiting": total.values()}
        return tensors

    def restore(self, parameters: dict[str, Tensor], tensors: dict[str, Tensor]) -> None:
        """Take over what `saved` gave; a state of another shape is refused before anything changes."""
        states: dict[str, dict[str, Tensor]] = {name: {} for name in parameters}
        for full_name, tensor in tensors.items():
            name, _, key = full_name.partition(".")
            if name in parameters and not key.startswith("waiting"):
                if tensor.dim() and tensor.shape != parameters[name].shape:
                    expected = tuple(parameters[name].shape)
                    raise InputError(f"row state {full_name} has shape {tuple(tensor.shape)}; expected {expected}")
                states[name][key] = tensor.detach().clone()
        for group, rate in zip(
            self.optimizer.param_groups, tensors.get("rates", torch.empty(0)).tolist(), strict=False
        ):
            group["lr"] = rate
        self.waiting.clear()
        for name, parameter in parameters.items():
            self.optimizer.state.pop(parameter, None)
            if states[name]:
                self.optimizer.state[parameter] = states[name]
            if f"{name}.waiting" in tensors:
                ids, values = tensors[f"{name}.waiting_ids"].clone(), tensors[f"{name}.waiting"].clone()
                self.update_rows(parameter, ids, values)


def summed(parts: list[Tensor]) -> Tensor:
    """Return the sum of coalesced sparse gradients, coalesced."""
    if len(parts) == 1:
        return parts[0]
    ids = torch.cat([part.indices() for part in parts], 1)
    values = torch.cat([part.values() for part in parts])
    return torch.sparse_coo_tensor(ids, values, parts[0].shape, check_invariants=False).coalesce()
