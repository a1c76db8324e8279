"""The state of an optimizer by the names of the model's parameters: tensors apart, all else as JSON."""

from typing import Any

import torch
from torch import Tensor, nn

from manyclass.errors import FileError, InputError, InputTypeError
from manyclass.torch.tensor_file import Tensors

Settings = dict[str, Any]
PLAIN = bool | int | float | str | None


def pack_optimizer(label: str, optimizer: torch.optim.Optimizer, model: nn.Module) -> tuple[Settings, Tensors]:
    """Return what JSON can hold of an optimizer, and its tensors as "<label>/<parameter or group>/<key>"."""
    names = _names(optimizer, model)
    state_dict = optimizer.state_dict()
    tensors: Tensors = {}
    groups = []
    for number, group in enumerate(state_dict["param_groups"]):
        values = {key: value for key, value in group.items() if key != "params"}
        parameters = [names[index] for index in group["params"]]
        groups.append({"params": parameters, "values": _split(values, f"{label}/group {number}", tensors)})
    state = {
        names[index]: _split(entry, f"{label}/{names[index]}", tensors) for index, entry in state_dict["state"].items()
    }
    return {"class": type(optimizer).__name__, "groups": groups, "state": state}, tensors


def check_optimizer(where: str, saved: Settings | None, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Raise unless the saved state is one of this kind of optimizer over the same parameters in the same groups."""
    if saved is None:
        raise FileError(f"{where} holds no state of this {type(optimizer).__name__}; load the model without optimizer")
    if saved["class"] != type(optimizer).__name__:
        raise FileError(f"{where} holds the state of {saved['class']}, not of {type(optimizer).__name__}; use the same")
    names = iter(_names(optimizer, model))
    groups = [[next(names) for _ in group["params"]] for group in optimizer.param_groups]
    if [sorted(group["params"]) for group in saved["groups"]] != [sorted(group) for group in groups]:
        raise FileError(f"{where} has other parameter groups than the optimizer; make the groups as when it was saved")


def load_optimizer(
    label: str, saved: Settings, tensors: Tensors, optimizer: torch.optim.Optimizer, model: nn.Module
) -> None:
    """Put a checked state into the optimizer. The tensors are copied once."""
    names = _names(optimizer, model)
    numbers = {name: number for number, name in enumerate(names)}
    in_order = iter(names)
    joined = {name: _join(entry, f"{label}/{name}", tensors) for name, entry in saved["state"].items()}
    groups = []
    for number, (group, now) in enumerate(zip(saved["groups"], optimizer.param_groups, strict=True)):
        values = _join(group["values"], f"{label}/group {number}", tensors)
        for key, value in values.items():  # JSON has no tuples
            values[key] = tuple(value) if isinstance(now.get(key), tuple) else value
        groups.append(values | {"params": [numbers[next(in_order)] for _ in now["params"]]})
    optimizer.load_state_dict(
        {"state": {numbers[name]: entry for name, entry in joined.items()}, "param_groups": groups}
    )
    parameters = dict(model.named_parameters())
    for name, entry in joined.items():  # torch has cast every state to the parameter's dtype and mangled strings
        state = optimizer.state[parameters[name]]
        for key, value in entry.items():
            if not isinstance(value, Tensor):
                state[key] = value
            elif state[key].dtype != value.dtype:
                state[key] = value.to(state[key].device)


def _names(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[str]:
    """Return the names of the optimizer's parameters in the order in which its state dict numbers them."""
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    names: list[str] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in known:
                raise InputError(
                    f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is not in the model; "
                    "pass a module that holds everything the optimizer moves"
                )
            names.append(known[id(parameter)])
    return names


def _split(values: Settings, owner: str, tensors: Tensors) -> Settings:
    """Return the plain values and the keys of the tensors, which go to `tensors`."""
    plain: Settings = {}
    held: list[str] = []
    for key, value in values.items():
        if isinstance(value, Tensor):
            tensors[f"{owner}/{key}"] = value
            held.append(key)
        elif isinstance(value, PLAIN) or (isinstance(value, list | tuple) and all(isinstance(v, PLAIN) for v in value)):
            plain[key] = list(value) if isinstance(value, tuple) else value
        else:
            kept = "only tensors and plain values are stored"
            raise InputTypeError(f"{key!r} of {owner!r} is a {type(value).__name__}; {kept}")
    return {"plain": plain, "tensors": held}


def _join(saved: Settings, owner: str, tensors: Tensors) -> Settings:
    copies = {key: tensors[f"{owner}/{key}"].clone() for key in saved["tensors"]}
    return {**saved["plain"], **copies}
