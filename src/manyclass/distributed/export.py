"""What a job has learned, as files that need no job: the trunk, the classes' rows in class order, and their index.

trunk.safetensors   the trunk's state dict: trunk.load_state_dict(load_file("trunk.safetensors"))
head.safetensors    weight (classes, features) and bias (classes,) of an nn.Linear
classes.mc          manyclass.ClassIndex over the same rows
"""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from manyclass._section_file import read_sections
from manyclass.distributed.messages import Floats
from manyclass.distributed.placement import Placement
from manyclass.distributed.servers.checkpoints import MANIFEST, SHARD_KIND, TRUNK_KIND, JobFolder
from manyclass.distributed.settings import HeadSettings
from manyclass.errors import CorruptFileError, FileError
from manyclass.index import ClassIndex

__all__ = ["export_job"]

TRUNK, HEAD, INDEX = "trunk.safetensors", "head.safetensors", "classes.mc"


def export_job(folder: str | os.PathLike[str], out: str | os.PathLike[str], *, index: bool = True) -> HeadSettings:
    """Write what the newest checkpoints of a job hold into the folder `out`, and return the job's output layer.

    folder: of a job, which may be running; nothing in it is changed. index: whether to build one, too.
    Memory: all rows at once, and the largest shard.
    """
    import torch

    from manyclass.torch.tensor_file import write_tensors

    source, target = Path(folder), Path(out)
    settings, weight, bias = read_rows(source)
    trunk = read_trunk(source)
    target.mkdir(parents=True, exist_ok=True)
    write_tensors(target / TRUNK, "trunk", {}, {name: torch.from_numpy(part) for name, part in trunk.items()})
    head = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    write_tensors(target / HEAD, "head", {}, {name: torch.from_numpy(part) for name, part in head.items()})
    if index:
        ClassIndex.build(weight, bias=bias).save(target / INDEX)
    return settings


def read_rows(folder: Path) -> tuple[HeadSettings, Floats, Floats | None]:
    """Return a job's output layer, and its rows and biases in the order of the classes."""
    try:
        shards = int(json.loads((folder / MANIFEST).read_text())["shards"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{folder} is not the folder of a job that has saved anything ({MANIFEST}: {error}); give the "
                        "--folder of `manyclass train`") from None  # fmt: skip
    settings = _settings(folder, shards)
    placement = Placement(settings.classes, shards, seed=settings.seed)
    job = JobFolder(folder, settings, placement)
    job.manifest()  # refuses what does not belong together
    weight = np.empty((settings.classes, settings.features), np.float32)
    bias = np.empty(settings.classes, np.float32) if settings.bias else None
    for number in range(shards):
        rows = job.load_rows(number)
        if rows is None:
            raise FileError(f"{folder} has no checkpoint of shard {number} of {shards}; restore it")
        ids = placement.ids(number, np.arange(placement.size(number)))
        weight[ids] = rows.weight
        if bias is not None:
            bias[ids] = rows.bias
    return settings, weight, bias


def read_trunk(folder: Path) -> dict[str, Any]:
    """Return parameters and buffers of a job's trunk by name, from its newest whole checkpoint."""
    for path in sorted(folder.glob("trunk-*.mc"), reverse=True):
        try:
            arrays = read_sections(path, TRUNK_KIND)[1]
        except CorruptFileError as damage:
            warnings.warn(f"{damage}; an older checkpoint is used", RuntimeWarning, stacklevel=2)
            continue
        found = {name.partition(".") for name in arrays}
        return {name: np.array(arrays[kind + dot + name]) for kind, dot, name in found if kind in ("value", "buffer")}
    raise FileError(f"{folder} has no checkpoint of the trunk; restore it")


def _settings(folder: Path, shards: int) -> HeadSettings:
    """Return the output layer as a shard's checkpoint names it: the manifest knows its sizes alone."""
    for path in sorted(folder.glob(f"shard-*-of-{shards}-*.mc"), reverse=True):
        try:
            return HeadSettings.from_json(read_sections(path, SHARD_KIND, mmap=True, verify=False)[0]["settings"])
        except CorruptFileError:
            continue
    raise FileError(f"{folder} has no checkpoint of any of its {shards} shards; restore them")
