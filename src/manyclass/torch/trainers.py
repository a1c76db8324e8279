"""Heads under trainers: what a checkpoint of Hugging Face's Trainer or of Lightning lacks to go on bit by bit.

Their checkpoints hold the model's state dict, and with it what rows that move by themselves need. What they do not hold
is the head's index as it is, which lags behind the rows, where the round of re-hashing stands, and the random tail. A
run resumed without goes on as well, with an index that is built anew; with one of these callbacks it computes the same
bits as one that was never interrupted.

Neither library is imported before a callback of it is made.
"""

import hashlib
import os
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from manyclass.errors import FileError
from manyclass.torch.approximation_meter import ApproximationWarning
from manyclass.torch.checkpoint import HeadState, head_states
from manyclass.torch.row_arrays import array
from manyclass.torch.tensor_file import read_tensors, write_tensors

KIND = "manyclass heads"
FILE = "manyclass_heads.safetensors"
MARKED = 4096  # numbers of a weight that tell it from that of another run, or of another step


def save_heads(path: str | os.PathLike[str], model: nn.Module) -> None:
    """Write what the heads of a model remember beyond its state dict to one file, all or nothing."""
    settings, tensors = _packed(model)
    write_tensors(path, KIND, settings, tensors)


def load_heads(path: str | os.PathLike[str], model: nn.Module) -> None:
    """Bring back what `save_heads` saved, after the model's state dict was loaded; checked before anything changes.

    Raises FileError where the heads have other names, or other weights than when they were saved.
    """
    _unpack(model, *read_tensors(path, KIND))


def _packed(model: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    heads = head_states(model)
    settings = {name: {**head.extra_settings(), "weight_mark": _mark(head)} for name, head in heads.items()}
    tensors = {f"{name}/{key}": part for name, head in heads.items() for key, part in head.extra_tensors().items()}
    return settings, tensors


def _unpack(model: nn.Module, settings: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    heads = head_states(model)
    if set(heads) != set(settings):
        raise FileError(f"saved are heads {sorted(settings)}, the model has {sorted(heads)}; build the same model")
    for name, head in heads.items():
        mark = settings[name].get("weight_mark")  # older files have none
        if mark is not None and mark != _mark(head):
            raise FileError(
                f"head {name!r} has not the weight that it was saved with; load the model's state dict of the same "
                "checkpoint first"
            )
    found: dict[str, tuple[HeadState, dict[str, Tensor]]] = {}
    for name, head in heads.items():
        begin = f"{name}/"
        own = {key.removeprefix(begin): part.clone() for key, part in tensors.items() if key.startswith(begin)}
        if check := getattr(head, "check_restore", None):
            check(own, settings[name])
        found[name] = head, own
    for name, (head, own) in found.items():
        head.restore(own, settings[name])


def _mark(head: HeadState) -> str:
    """Return what tells the weight of a head from any other: a digest of its shape and of some of its numbers."""
    weight: Tensor = head.weight.detach()  # type: ignore[attr-defined]  # every head has one
    flat = weight.reshape(-1)
    digest = hashlib.blake2b(repr((tuple(weight.shape), str(weight.dtype))).encode(), digest_size=16)
    digest.update(array(flat[:: max(1, len(flat) // MARKED)]).tobytes())
    return digest.hexdigest()


def _warn_of_new_index(error: Exception, instead: str) -> None:
    warnings.warn(
        f"resumed with an index that is built anew, and other random classes ({error}); for the same bits, {instead}",
        ApproximationWarning,
        stacklevel=3,
    )


def hugging_face_callback() -> Any:
    """Return a callback for `transformers.Trainer(callbacks=[...])`: a file beside each of its checkpoints."""
    TrainerCallback: Any = import_module("transformers").TrainerCallback  # noqa: N806

    class KeepHeads(TrainerCallback):  # type: ignore[misc]
        """Saves the heads with every checkpoint, and brings them back when a run is resumed."""

        def on_save(self, args: Any, state: Any, control: Any, model: nn.Module, **_: Any) -> None:
            save_heads(_folder(args, state) / FILE, model)

        def on_train_begin(self, args: Any, state: Any, control: Any, model: nn.Module, **_: Any) -> None:
            if not state.global_step:
                return
            saved = _folder(args, state) / FILE  # of a folder that `train` is given, a callback is not told
            try:
                load_heads(saved, model)
            except (FileError, OSError) as error:
                _warn_of_new_index(
                    error, f"resume from a checkpoint within output_dir={args.output_dir!r} that holds a {FILE}"
                )

    def _folder(args: Any, state: Any) -> Path:
        return Path(args.output_dir) / f"checkpoint-{state.global_step}"

    return KeepHeads()


def lightning_callback() -> Any:
    """Return a callback for Lightning's `Trainer(callbacks=[...])`: part of each of its checkpoints."""
    try:
        Callback: Any = import_module("lightning.pytorch").Callback  # noqa: N806
    except ModuleNotFoundError:
        Callback = import_module("pytorch_lightning").Callback  # noqa: N806

    class KeepHeads(Callback):  # type: ignore[misc]
        """Saves the heads with every checkpoint, and brings them back when a run is resumed."""

        def on_save_checkpoint(self, trainer: Any, pl_module: nn.Module, checkpoint: dict[str, Any]) -> None:
            settings, tensors = _packed(pl_module)
            checkpoint[KIND] = {"settings": settings, "tensors": tensors}

        def on_load_checkpoint(self, trainer: Any, pl_module: nn.Module, checkpoint: dict[str, Any]) -> None:
            if not (saved := checkpoint.get(KIND)):
                return
            try:
                _unpack(pl_module, saved["settings"], saved["tensors"])
            except FileError as error:  # as where WeightAveraging has put its means into the checkpoint
                _warn_of_new_index(error, "resume from a checkpoint that holds the weights of the heads as they were")

    return KeepHeads()
