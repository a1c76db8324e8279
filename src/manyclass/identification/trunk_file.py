"""A network of plain layers in one safetensors file: what the layers are in JSON, their tensors beside it, no pickle.

Only the layers named here are known, so that a file can say what to build and nothing in it is executed.
"""

import os
from typing import Any

from torch import nn

from manyclass.errors import CorruptFileError, InputTypeError
from manyclass.torch.tensor_file import read_tensors, write_tensors

KIND = "manyclass trunk"
LAYERS: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {  # name → class and its settings
    "Conv2d": (
        nn.Conv2d,
        ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias"),
    ),
    "Linear": (nn.Linear, ("in_features", "out_features", "bias")),
    "BatchNorm1d": (nn.BatchNorm1d, ("num_features", "eps", "momentum", "affine")),
    "BatchNorm2d": (nn.BatchNorm2d, ("num_features", "eps", "momentum", "affine")),
    "MaxPool2d": (nn.MaxPool2d, ("kernel_size", "stride", "padding")),
    "AvgPool2d": (nn.AvgPool2d, ("kernel_size", "stride", "padding")),
    "Flatten": (nn.Flatten, ("start_dim", "end_dim")),
    "ReLU": (nn.ReLU, ()),
    "Identity": (nn.Identity, ()),
}


def described(network: nn.Module) -> list[Any]:
    """Return the layers of an nn.Sequential (or of one inside another) in JSON's terms."""
    if not isinstance(network, nn.Sequential):
        raise InputTypeError(f"trunk is a {type(network).__name__}; give an nn.Sequential of plain layers")
    return [described(part) if isinstance(part, nn.Sequential) else _settings(part) for part in network]


def built(description: list[Any]) -> nn.Sequential:
    """Return the network of a description, without memory for its tensors (on the device `meta`)."""
    parts: list[nn.Module] = []
    for entry in description:
        if isinstance(entry, list):
            parts.append(built(entry))
            continue
        made, names = LAYERS[entry["type"]]
        settings = {name: _from_json(entry[name]) for name in names}
        device = {"device": "meta"} if issubclass(made, nn.Conv2d | nn.Linear | nn.BatchNorm1d | nn.BatchNorm2d) else {}
        parts.append(made(**settings, **device))
    return nn.Sequential(*parts)


def save_trunk(path: str | os.PathLike[str], network: nn.Module) -> None:
    """Write a network to one file, all or nothing."""
    write_tensors(path, KIND, {"layers": described(network)}, dict(network.state_dict()))


def load_trunk(path: str | os.PathLike[str]) -> nn.Sequential:
    """Return the network in a file, in evaluation mode; what does not fit together is a CorruptFileError."""
    settings, tensors = read_tensors(path, KIND)
    try:
        network = built(settings["layers"])
        wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if wanted != found:
            raise ValueError("its tensors are not those of its layers")
        network.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    except (KeyError, TypeError, ValueError, RuntimeError, RecursionError) as problem:
        advice = "restore the file from a copy or save the model again"
        raise CorruptFileError(
            f"{os.fspath(path)}: not a network that was written here ({problem}); {advice}"
        ) from None
    return network.eval()


def _settings(layer: nn.Module) -> dict[str, Any]:
    name = type(layer).__name__
    if name not in LAYERS or type(layer) is not LAYERS[name][0]:
        raise InputTypeError(f"trunk has a {name}; layers that can be saved are {', '.join(LAYERS)}")
    values = {setting: getattr(layer, setting) for setting in LAYERS[name][1]}
    if "bias" in values:  # there or not
        values["bias"] = values["bias"] is not None
    return {"type": name} | {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _from_json(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
