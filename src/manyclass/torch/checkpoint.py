"""Checkpoints: model, optimizer, heads and random state in one safetensors file that is replaced as a whole.

Tensors of the model keep their state-dict names, so that any safetensors reader finds them; beside them are
"optimizer/<parameter>/<key>", "row_optimizer/<module>/<parameter>/<key>" (of a head that moves its own rows),
"rows/<module>/<key>" (gradients that wait for a step), "head/<module>/<key>" and "rng/torch". Everything else is JSON.
Tied tensors are stored once.

A module with the methods of `HeadState` says itself what it needs beyond its state dict.
"""

import os
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from manyclass._validation import check_count
from manyclass.errors import ConfigError, FileError, InputError, InputTypeError
from manyclass.torch.add_remove_classes import REMOVED
from manyclass.torch.optimizer_state import check_optimizer, load_optimizer, pack_optimizer
from manyclass.torch.row_head import ROW_STATE, RowHead
from manyclass.torch.tensor_file import Tensors, read_settings, read_tensors, write_tensors

__all__ = ["CheckpointInfo", "HeadState", "checkpoint_info", "load_checkpoint", "save_checkpoint"]

KIND = "manyclass checkpoint"
SMALL = 1 << 16
INDEX = "tables."  # how a file begins the names of tensors that can be rebuilt from the weights
OURS = ("optimizer/", "row_optimizer/", "head/", "rows/", "rng/")


@dataclass(frozen=True)
class CheckpointInfo:
    """What a checkpoint says about itself."""

    step: int
    extra: dict[str, Any]
    index: bool  # whether the heads' index was saved; without it they rebuild it from the weights


@runtime_checkable
class HeadState(Protocol):
    """What a head remembers beyond its state dict: settings, cursor, generators, class names and, if wanted, the index.

    Names of tensors that can be rebuilt from the weights start with "tables.". It may also have
    `check_restore(tensors, settings)`, which raises if `restore` would, and changes nothing.
    """

    def extra_tensors(self, index: bool = True) -> dict[str, Tensor]: ...

    def extra_settings(self) -> dict[str, Any]: ...

    def restore(self, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
        """Called when the weights are loaded. Large tensors are a memory map of the file: copy what is kept."""


def save_checkpoint(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    step: int = 0,
    index: bool = True,
    extra: dict[str, Any] | None = None,
) -> None:
    """Replace the file at `path`, all or nothing: killed at any moment, it leaves the old file or the new one.

    path, model: where to, and what; its heads are found. optimizer: to go on training with.
    step: how far training has come.
    index: False leaves out the heads' index: a smaller file, and a run resumed from it starts with a fresh index
        instead of the one it had.
    extra: whatever else must come back, as plain JSON values (no NaN, no tuples).
    """
    for name, head in head_states(model).items():
        shards = getattr(head, "shards", None)
        if shards is not None and shards.ranks > 1:
            raise ConfigError(
                f"head {name!r} has the rows of rank {shards.rank} of {shards.ranks} alone; let every rank call "
                "save_sharded_checkpoint, which saves those of all"
            )
    write_checkpoint(path, model, optimizer, step, index, extra)


def write_checkpoint(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    step: int,
    index: bool,
    extra: dict[str, Any] | None,
) -> None:
    """Write what this process has, as `save_checkpoint` does."""
    state = _model_state(model)
    first: dict[tuple[Any, ...], str] = {}
    aliases = {name: first.setdefault(_identity(name, tensor), name) for name, tensor in state.items()}
    aliases = {name: other for name, other in aliases.items() if name != other}
    tensors = {name: tensor for name, tensor in state.items() if name not in aliases}
    settings: dict[str, Any] = {
        "step": check_count("step", step, low=0),
        "tables": bool(index),
        "extra": {} if extra is None else extra,
        "aliases": aliases,
        "heads": {},
        "optimizers": {},
    }
    for name, head in head_states(model).items():
        settings["heads"][name] = head.extra_settings()
        tensors |= {f"head/{name}/{key}": tensor for key, tensor in head.extra_tensors(index=index).items()}
    for label, moving in _optimizers(model, optimizer).items():
        settings["optimizers"][label], state = pack_optimizer(label, moving, model)
        tensors |= state
    for name, rows in _row_heads(model).items():
        tensors |= {f"rows/{name}/{key}": part for key, part in rows.row_states().items() if ".waiting" in key}
    tensors["rng/torch"] = torch.get_rng_state()
    write_tensors(path, KIND, settings, tensors)


def load_checkpoint(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    index: bool = True,
) -> CheckpointInfo:
    """Bring back what `save_checkpoint` saved, into a model and an optimizer made in the same way.

    With an optimizer (also one that a head has of its own) training goes on, and torch's random state is restored too,
    that of the CPU. Without one, only the model is loaded. index=False: a saved index is left aside, and the heads
    build it from the weights, perhaps with another config.
    A damaged file, or one of another model or optimizer, raises a FileError (CorruptFileError, FileVersionError) before
    anything changes.
    """
    return restore_checkpoint(os.fspath(path), *read_tensors(path, KIND), model, optimizer, index)


def restore_checkpoint(
    where: str,
    settings: dict[str, Any],
    tensors: Tensors,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    index: bool = True,
) -> CheckpointInfo:
    """Bring back what was read from `where`, as `load_checkpoint` does."""
    state = {name: tensor for name, tensor in tensors.items() if not name.startswith(OURS)}
    state |= {name: state[other] for name, other in settings["aliases"].items()}
    _check_model(where, state, model)
    heads = head_states(model)
    if set(heads) != set(settings["heads"]):
        raise FileError(
            f"{where} has heads {sorted(settings['heads'])}, the model {sorted(heads)}; build the same model"
        )
    head_tensors = {name: _under(f"head/{name}/", tensors, index) for name in heads}
    for name, head in heads.items():
        if check := getattr(head, "check_restore", None):
            check(head_tensors[name], settings["heads"][name])
    saved = settings["optimizers"]
    optimizers = _optimizers(model, optimizer)
    if optimizer is None:  # the weights may go to a head that is trained in another way from here on
        optimizers = {label: moving for label, moving in optimizers.items() if label in saved}
    for label, moving in optimizers.items():
        check_optimizer(where, saved.get(label), moving, model)
    if optimizers:
        _check_random_state(where, tensors["rng/torch"])

    model.load_state_dict(state)
    for name, head in heads.items():
        head.restore(head_tensors[name], settings["heads"][name])
    for label, moving in optimizers.items():
        load_optimizer(label, saved[label], tensors, moving, model)
    for name, rows in _row_heads(model).items():
        rows.drop_waiting()
        waiting = _under(f"rows/{name}/", tensors, index)
        if waiting and f"row_optimizer/{name}" in optimizers:
            rows.load_row_states({**rows.row_states(), **waiting})
    if optimizers:
        torch.set_rng_state(tensors["rng/torch"].clone())
    return CheckpointInfo(settings["step"], settings["extra"], settings["tables"])


def checkpoint_info(path: str | os.PathLike[str]) -> CheckpointInfo:
    """Return what a checkpoint says about itself, without reading its tensors."""
    settings = read_settings(path, KIND)
    return CheckpointInfo(settings["step"], settings["extra"], settings["tables"])


def _model_state(model: nn.Module) -> Tensors:
    prefixes = [f"{name}." if name else "" for name in _row_heads(model)]
    own = tuple(f"{prefix}{key}" for prefix in prefixes for key in (ROW_STATE, REMOVED))  # heads save these themselves
    state: Tensors = {name: part for name, part in model.state_dict().items() if not name.startswith(own)}
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise InputTypeError(f"{name!r} in the state dict is a {type(tensor).__name__}; only tensors are stored")
        if tensor.is_meta:
            raise InputError(f"{name!r} is on the meta device and has no values; `model.to_empty(device='cpu')` first")
        if name.startswith(OURS):
            raise InputTypeError(f"{name!r} in the state dict starts like one of {OURS}; rename the module")
    return state


def _identity(name: str, tensor: Tensor) -> tuple[Any, ...]:
    """Return the same for two names of one tensor; a tensor without elements is only itself."""
    if not tensor.numel():
        return (name,)
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())


def head_states(model: nn.Module) -> dict[str, HeadState]:
    """Return the heads of a model that remember more than their state dict, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, HeadState)}


def _row_heads(model: nn.Module) -> dict[str, RowHead]:
    return {name: module for name, module in model.named_modules() if isinstance(module, RowHead)}


def _optimizers(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, torch.optim.Optimizer]:
    """Return the given optimizer and those of heads that move their rows inside backward."""
    own = {f"row_optimizer/{name}": getattr(module, "row_optimizer", None) for name, module in model.named_modules()}
    found = {label: moving for label, moving in own.items() if moving is not None and moving is not optimizer}
    return found if optimizer is None else {"optimizer": optimizer, **found}


def _check_model(where: str, state: Tensors, model: nn.Module) -> None:
    wanted = _model_state(model)
    advice = "build the model as it was when the checkpoint was saved"
    for name in [*wanted, *state]:
        if name not in state or name not in wanted:
            holder, other = ("the model", where) if name in wanted else (where, "the model")
            raise FileError(f"{holder} has {name!r}, {other} does not; {advice}")
        if state[name].shape != wanted[name].shape or state[name].dtype != wanted[name].dtype:
            saved = f"{state[name].dtype} {tuple(state[name].shape)}"
            now = f"{wanted[name].dtype} {tuple(wanted[name].shape)}"
            raise FileError(f"{name!r} is {saved} in {where} and {now} in the model; {advice}")
    saved_as: dict[tuple[Any, ...], Tensor] = {}
    for name, tensor in wanted.items():
        if saved_as.setdefault(_identity(name, tensor), state[name]) is not state[name]:
            raise FileError(f"{name!r} is tied to another tensor in the model but not in {where}; {advice}")


def _check_random_state(where: str, state: Tensor) -> None:
    try:
        torch.Generator().set_state(state.clone())  # a copy: torch crashes if the state is not aligned
    except (RuntimeError, TypeError) as error:
        raise FileError(
            f"{where} holds a random state that this torch cannot use ({error}); load the model alone"
        ) from None


def _under(prefix: str, tensors: Tensors, index: bool) -> Tensors:
    """Return the tensors of one head; small ones as copies, because torch crashes on a random state in a map."""
    found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    return {
        name: tensor.clone() if tensor.nbytes <= SMALL else tensor
        for name, tensor in found.items()
        if index or not name.startswith(INDEX)
    }
