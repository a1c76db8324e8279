"""What the row optimizers share: sparse gradients go to the native row rules, dense ones to torch's own optimizer."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyclass._backend import core
from manyclass._row_rule import ADAGRAD, ADAM, RowRule
from manyclass._windows_and_signs import random_words
from manyclass.errors import ConfigError, InputError, InputTypeError
from manyclass.torch.memory_budget import check_state
from manyclass.torch.row_arrays import is_native, view
from manyclass.torch.weight_watch import announce_moved, announce_moving

Group = dict[str, Any]


class RowStep(NamedTuple):
    """One step on some rows of a parameter: the rule, and the states it needs (None where it needs none)."""

    rule: RowRule
    first: Tensor | None
    second: Tensor | None


class RowSteps(torch.optim.Optimizer):
    """Mixed in before a torch optimizer: touched rows only where the gradient is sparse, torch's step elsewhere."""

    refused_settings = ("amsgrad", "capturable", "differentiable")
    row_states: frozenset[str] = frozenset()  # what is kept for each row, once it is there

    def takes_states(self, names: set[str]) -> bool:
        """Return whether states of these names are this optimizer's; steps are counted for any rows of 16 bits."""
        return names - {"step"} == self.row_states

    def _add_setting(self, name: str, value: Any) -> None:
        """Give every group a setting that the torch optimizer behind this one does not know."""
        self.defaults[name] = value
        for group in self.param_groups:
            group.setdefault(name, value)

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with settings of their own, as any torch optimizer does."""
        if isinstance(param_group, dict):
            settings = {**self.defaults, **param_group}
            for name in self.refused_settings:
                if settings.get(name):
                    raise ConfigError(
                        f"{name}={settings[name]} does not work with row updates; leave it off, or give the dense "
                        f"parameters to an optimizer of torch.optim"
                    )
        super().add_param_group(param_group)

    @torch.no_grad()
    def update_rows(self, parameter: Tensor, ids: Tensor, gradient: Tensor) -> None:
        """Take one step now on rows `ids` of a parameter, with the settings of its group; `.grad` is not looked at.

        ids: int64 (n,), strictly ascending. gradient: (n, *parameter.shape[1:]), of the parameter's dtype, or float32.
        Each call counts as one step of this parameter (Adam's bias correction, Adagrad's lr_decay).
        """
        group = self._group_of(parameter)
        _check_parameter(parameter)
        _check_rows(parameter, ids, gradient)
        self._update(group, parameter, ids, gradient)
        self._opt_called = True  # torch's schedulers look here, and warn if nobody called step()

    @torch.no_grad()
    def begin_step(self, parameter: Tensor) -> RowStep:
        """Return rule and states for native code that applies the rule itself; counts as one step."""
        group = self._group_of(parameter)
        _check_parameter(parameter)
        step = self._checked_step(group, parameter)
        announce_moving(parameter)
        self._count(parameter)
        self._opt_called = True  # torch's schedulers look here, and warn if nobody called step()
        return step

    def state_bytes(self) -> int:
        """Return the bytes of all states. States of large sparse parameters take memory only once a row is touched."""
        states = (value for state in self.state.values() for value in state.values())
        return sum(value.numel() * value.element_size() for value in states if isinstance(value, Tensor))

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """False, whatever the parent sets for fused=True: GradScaler then unscales sparse gradients itself."""
        return False

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value: bool) -> None:
        pass

    def _row_step(self, group: Group, parameter: Tensor) -> RowStep:
        """Return the next step; makes missing states, counts nothing."""
        raise NotImplementedError

    def _checked_step(self, group: Group, parameter: Tensor) -> RowStep:
        self._narrow_states(parameter)
        step = self._row_step(group, parameter)
        for state in (step.first, step.second):
            if state is not None and state.shape != parameter.shape:
                raise InputError(
                    f"the optimizer's state has shape {tuple(state.shape)}, its parameter {tuple(parameter.shape)}; "
                    "when rows are added or removed, do the same to the state or delete optimizer.state[parameter]"
                )
        if parameter.dtype != torch.bfloat16:
            return step
        taken = self.state[parameter].setdefault("step", torch.tensor(0))  # `step` is what torch loads as it was saved
        noise = random_words(group.get("seed", self.defaults["seed"]), int(taken), 1)[0]
        return step._replace(rule=step.rule._replace(noise=int(noise)))

    def _narrow_states(self, parameter: Tensor) -> None:
        """Bring states to the type of native rows, as after `.double()` and `.float()`, or loaded from such a head."""
        state = self.state.get(parameter)
        if state and is_native(parameter):
            for key, value in state.items():
                if isinstance(value, Tensor) and value.dim() and value.dtype in (torch.float64, torch.float16):
                    state[key] = value.to(parameter.dtype)

    def _count(self, parameter: Tensor) -> None:
        state = self.state.get(parameter, {})
        if "step" in state:
            state["step"] += 1

    def _update(self, group: Group, parameter: Tensor, ids: Tensor, gradient: Tensor) -> None:
        step = self._checked_step(group, parameter)
        if gradient.numel():
            announce_moving(parameter)
            apply_step(step, parameter, ids, gradient)
            announce_moved(parameter, ids)
        self._count(parameter)

    # torch's step() collects the parameters of each group through this method. Overriding it, and not step(), leaves
    # closures, hooks, profiling and schedulers to torch.
    def _init_group(self, group: Group, *lists: list[Any]) -> Any:
        if group is self.param_groups[0]:
            self._sparse = self._checked_sparse_gradients()
        dense = []
        for parameter in group["params"]:
            if parameter in self._sparse:
                self._update(group, parameter, *self._sparse.pop(parameter))
            else:
                dense.append(parameter)
        return super()._init_group({**group, "params": dense}, *lists)  # type: ignore[misc]

    def _checked_sparse_gradients(self) -> dict[Tensor, tuple[Tensor, Tensor]]:
        """Return ids and values of every sparse gradient; refuses a bad one while all weights are unchanged."""
        found = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    _check_parameter(parameter)
                    gradient = parameter.grad
                    if gradient.sparse_dim() != 1:
                        raise InputError(
                            f"a sparse gradient of shape {tuple(gradient.shape)} has {gradient.sparse_dim()} sparse "
                            "dimensions; rows need exactly one: build it with indices of shape (1, n)"
                        )
                    ids, values = _distinct_rows(gradient)
                    _check_rows(parameter, ids, values, ordered=True)
                    found[parameter] = (ids, values)
        return found

    def _group_of(self, parameter: Tensor) -> Group:
        for group in self.param_groups:
            if any(known is parameter for known in group["params"]):
                return group
        raise InputError(
            f"a parameter of shape {tuple(parameter.shape)} is not in this optimizer; "
            "pass it at construction or with add_param_group"
        )


def untouched_zeros(like: Tensor, fill: float = 0.0) -> Tensor:
    """Return a contiguous state for a parameter; zeros cost no memory until written (torch.zeros writes them)."""
    if fill or not like.numel():
        return torch.full(like.shape, fill, dtype=like.dtype)
    check_state(like.numel() * like.element_size())
    zeros = torch.from_numpy(np.zeros(like.numel() * like.element_size(), np.uint8))
    return zeros.view(like.dtype).view(like.shape)


def apply_step(step: RowStep, parameter: Tensor, ids: Tensor, gradient: Tensor) -> None:
    """Apply a step to checked rows: natively for contiguous float32 and bfloat16, else with torch operations."""
    tensors = [tensor for tensor in (parameter, step.first, step.second) if tensor is not None]
    if is_native(*tensors) and all(tensor.is_contiguous() for tensor in tensors):
        as_rows = _matrix_of(len(parameter))
        core().update_rows(
            step.rule,
            as_rows(parameter),
            None if step.first is None else as_rows(step.first),
            None if step.second is None else as_rows(step.second),
            ids.contiguous().numpy(),
            _matrix_of(len(ids))(gradient.float().contiguous()),
            torch.get_num_threads(),
        )
        # The write went past autograd: a backward that still needs the old values must fail, as after torch's own step.
        torch.autograd.graph.increment_version(tensors)
    else:
        _apply_with_torch(step, parameter, ids, gradient)


def _matrix_of(rows: int) -> Callable[[Tensor], Any]:
    return lambda tensor: view(tensor.reshape(rows, -1))


def _apply_with_torch(step: RowStep, parameter: Tensor, ids: Tensor, gradient: Tensor) -> None:
    """The formulas of cpp/row_update.h on gathered rows, in float64, or in float32 for float16."""
    rule, exact = step.rule, torch.float64 if parameter.dtype == torch.float64 else torch.float32
    weight, g = parameter[ids].to(exact), rule.scale * gradient.to(exact)
    first = None if step.first is None else step.first[ids].to(exact)
    second = None if step.second is None else step.second[ids].to(exact)
    if rule.weight_decay:
        g = g + rule.weight_decay * weight
    if rule.kind == ADAM and first is not None and second is not None:
        first = rule.first_decay * first + rule.first_share * g
        second = rule.second_decay * second + rule.second_share * g * g
        weight = rule.keep * weight - rule.step * first / (second.sqrt() / rule.correction + rule.eps)
    elif rule.kind == ADAGRAD and first is not None:
        first = first + g * g
        weight = weight - rule.step * g / (first.sqrt() + rule.eps)
    else:
        if first is not None:
            first = rule.first_decay * first + rule.first_share * g
            g = g + rule.first_decay * first if rule.nesterov else first
        weight = weight - rule.step * g
    for target, rows in ((parameter, weight), (step.first, first), (step.second, second)):
        if target is not None and rows is not None:
            target.index_copy_(0, ids, rows.to(target.dtype))


def _check_parameter(parameter: Tensor) -> None:
    if parameter.device.type != "cpu":
        raise InputError(
            f"a parameter with row updates is on {parameter.device}; rows are updated on the CPU only: keep the head "
            "there (.cpu()) and move its input"
        )
    if not parameter.is_floating_point() or parameter.ndim < 1:
        raise InputTypeError(
            f"a parameter of dtype {parameter.dtype} and shape {tuple(parameter.shape)} has no rows to update; "
            "rows are floats, one per entry of the first dimension"
        )
    if parameter.dtype == torch.bfloat16 and not parameter.is_contiguous():  # torch would round it to nearest
        raise InputError(
            f"a bfloat16 parameter has strides {parameter.stride()}; rows of bfloat16 are contiguous: make a parameter "
            "of parameter.contiguous()"
        )


def _check_rows(parameter: Tensor, ids: Tensor, gradient: Tensor, ordered: bool = False) -> None:
    if ids.dtype != torch.int64 or ids.ndim != 1:
        raise InputTypeError(f"ids are {ids.dtype} of shape {tuple(ids.shape)}; row ids are torch.int64 of shape (n,)")
    if gradient.dtype not in (parameter.dtype, torch.float32):
        raise InputTypeError(
            f"gradient has dtype {gradient.dtype}, the parameter {parameter.dtype}; convert with .to(parameter.dtype), "
            "or .float()"
        )
    if gradient.is_sparse or ids.device.type != "cpu" or gradient.device.type != "cpu":
        raise InputError(
            f"ids on {ids.device} and gradient ({gradient.layout}) on {gradient.device}: both are plain CPU tensors"
        )
    expected = (len(ids), *parameter.shape[1:])
    if gradient.shape != expected:
        raise InputError(f"gradient has shape {tuple(gradient.shape)}; expected {expected}: one row per id")
    if not len(ids):
        return
    if not ordered and (ids[1:] <= ids[:-1]).any():
        raise InputError("ids are not strictly ascending; sort them and add up the gradients of equal ids first")
    low, high = int(ids[0]), int(ids[-1])
    if low < 0 or high >= len(parameter):
        wrong = low if low < 0 else high
        raise InputError(f"ids hold {wrong}; rows of this parameter are from 0 to {len(parameter) - 1}")


def _distinct_rows(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return ids and values of a sparse gradient, coalesced; ours are in order already, but autograd drops the flag."""
    if not gradient.is_coalesced():
        ids = gradient._indices()[0]
        if len(ids) > 1 and not bool((ids[1:] > ids[:-1]).all()):
            gradient = gradient.coalesce()
    return gradient._indices()[0], gradient._values()
