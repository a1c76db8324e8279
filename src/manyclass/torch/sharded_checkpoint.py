"""Checkpoints of models with sharded heads: a folder with one file per rank, readable at another number of ranks.

Each rank writes what `save_checkpoint` writes, beside the others; when all files are on the disk a small manifest that
names them takes the place of the old one. Killed at any moment, the folder holds the old checkpoint or the new one.

At another number of ranks, rows and their optimizer states are dealt out anew, bit for bit. All else is the same on
every rank and comes from one file: the network below, counts, lists, generators. The index is built anew.
"""

import json
import os
import secrets
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyclass._atomic_file import open_regular, plain_json, read_exactly, remove_abandoned, replacement, write_all
from manyclass.errors import ConfigError, CorruptFileError, FileError
from manyclass.torch.checkpoint import INDEX, KIND, CheckpointInfo, restore_checkpoint, write_checkpoint
from manyclass.torch.class_shards import ClassShards
from manyclass.torch.ranks import Ranks
from manyclass.torch.sharded_softmax import ShardedSoftmax
from manyclass.torch.tensor_file import Tensors, read_tensors

__all__ = ["load_sharded_checkpoint", "save_sharded_checkpoint"]

MANIFEST = "manifest.json"
FORMAT = "manyclass sharded checkpoint"
LARGEST_MANIFEST = 1 << 24


def save_sharded_checkpoint(
    folder: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    step: int = 0,
    index: bool = True,
    extra: dict[str, Any] | None = None,
) -> None:
    """Replace the checkpoint in `folder`, all or nothing; every rank calls it. Arguments as for `save_checkpoint`.

    The folder must be one that all ranks see.
    """
    ranks, path = _ranks(model), Path(folder)
    name = ""

    def begin() -> None:
        nonlocal name
        path.mkdir(parents=True, exist_ok=True)
        name = secrets.token_hex(8)

    ranks.together("save", begin)
    name = ranks.same_text(name)  # that of rank 0
    files = [f"rank-{rank:05d}-of-{ranks.count:05d}-{name}.safetensors" for rank in range(ranks.count)]
    kept = {"extra": {} if extra is None else extra, "name": name, "rank": ranks.rank}
    ranks.together("save", lambda: write_checkpoint(path / files[ranks.rank], model, optimizer, step, index, kept))

    def finish() -> None:
        if ranks.rank == 0:
            content = plain_json({"kind": FORMAT, "version": 1, "name": name, "files": files}, "manifest")
            with replacement(os.path.realpath(path / MANIFEST)) as file:
                write_all(file, content.encode())
            for old in set(path.glob("rank-*-of-*.safetensors")) - {path / file for file in files}:
                old.unlink(missing_ok=True)
            remove_abandoned(path, r"rank-\d+-of-\d+-[0-9a-f]+\.safetensors")  # each save has other names

    ranks.together("save", finish)


def load_sharded_checkpoint(
    folder: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    index: bool = True,
) -> CheckpointInfo:
    """Bring back what `save_sharded_checkpoint` saved, at this or another number of ranks; every rank calls it.

    index=False, or another number of ranks: the heads build their index from the rows. A damaged file, or one of
    another model, raises on all ranks before anything changes on the rank that has found it.
    """
    ranks, path = _ranks(model), Path(folder)
    found: list[CheckpointInfo] = []

    def load() -> None:
        settings, tensors = _read(path, model, ranks)
        info = restore_checkpoint(os.fspath(path), settings, tensors, model, optimizer, index)
        found.append(CheckpointInfo(info.step, info.extra["extra"], info.index))

    ranks.together("load", load)
    return found[0]


def _sharded_heads(model: nn.Module) -> dict[str, ShardedSoftmax]:
    return {name: module for name, module in model.named_modules() if isinstance(module, ShardedSoftmax)}


def _ranks(model: nn.Module) -> Ranks:
    heads = list(_sharded_heads(model).values())
    if not heads:
        raise ConfigError("the model has no ShardedSoftmax; use save_checkpoint and load_checkpoint")
    return heads[0].ranks


def _read(folder: Path, model: nn.Module, ranks: Ranks) -> tuple[dict[str, Any], Tensors]:
    """Return settings and tensors as a checkpoint of this rank alone would have them."""
    name, files = _manifest(folder / MANIFEST)
    if len(files) == ranks.count:
        return _read_file(folder, files, name, ranks.rank)
    # One file has all that is the same on every rank; rows come from those that have some of this rank's classes.
    settings, tensors = _read_file(folder, files, name, ranks.rank % len(files))
    parts = {ranks.rank % len(files): tensors}
    settings = {**settings, "tables": False, "heads": dict(settings["heads"])}
    for prefix, head in _sharded_heads(model).items():
        saved = settings["heads"].get(prefix, {}).get("shard")
        if saved is None or saved[0] != head.num_classes:
            raise FileError(
                f"{folder} has {saved and saved[0]} classes in {prefix!r}, the model {head.num_classes}; build the same"
            )
        for source in range(len(files)):
            if _some_in_common(source, len(files), ranks) and source not in parts:
                parts[source] = _read_file(folder, files, name, source)[1]
        settings["heads"][prefix] = _moved_settings(settings["heads"][prefix], head.shards)
        tensors = _dealt_anew(folder, tensors, parts, prefix, head.shards, len(files))
    return settings, tensors


def _manifest(path: Path) -> tuple[str, list[str]]:
    """Return the name of a checkpoint and its files."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_MANIFEST:
            raise CorruptFileError(f"{path} takes {size} bytes, too many for a manifest; restore it from a copy")
        content = read_exactly(file, size)
    try:
        manifest = json.loads(content)
        name, files = manifest["name"], manifest["files"]
        known = manifest["kind"] == FORMAT and manifest["version"] == 1 and isinstance(name, str)
        if not known or not files or any(type(file) is not str or os.path.basename(file) != file for file in files):
            raise ValueError("not one that was written here")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} is damaged ({error!r:.100}); restore it from a copy") from None
    return name, files


def _read_file(folder: Path, files: list[str], name: str, rank: int) -> tuple[dict[str, Any], Tensors]:
    path = folder / files[rank]
    if not path.exists():
        raise FileError(f"{path} is missing; copy the whole folder, and let all ranks see it")
    settings, tensors = read_tensors(path, KIND)
    if (settings["extra"].get("name"), settings["extra"].get("rank")) != (name, rank):
        raise CorruptFileError(f"{path} is not the file of rank {rank} that {MANIFEST} means; restore it from a copy")
    return settings, tensors


def _some_in_common(source: int, sources: int, ranks: Ranks) -> bool:
    """Return whether the file of a rank has classes of this one: ids equal modulo both numbers of ranks."""
    return any(source == number % sources for number in range(ranks.rank, sources * ranks.count, ranks.count))


def _moved_settings(settings: dict[str, Any], shards: ClassShards) -> dict[str, Any]:
    tables = {**settings["tables"], "cursor": 0, "index": None}
    return {**settings, "shard": list(shards), "tables": tables}


def _dealt_anew(
    folder: Path, tensors: Tensors, parts: dict[int, Tensors], head: str, shards: ClassShards, sources: int
) -> Tensors:
    """Return the tensors with the rows of one head, and of states that are as long, dealt out to this rank."""
    dot = f"{head}." if head else ""
    rows = {f"{dot}weight", f"{dot}bias"}
    dealt: Tensors = {}
    for name, tensor in tensors.items():
        if name.startswith(f"rows/{head}/"):
            raise FileError(f"{folder} has gradients of {head!r} that wait for a step; load it at {sources} ranks")
        if name.startswith(f"head/{head}/{INDEX}"):
            continue
        of_rows = name in rows or (name.startswith(("optimizer/", "row_optimizer/")) and name.split("/")[-2] in rows)
        dealt[name] = _rows_dealt(name, parts, shards, sources) if of_rows and tensor.dim() else tensor
    return dealt


def _rows_dealt(name: str, parts: dict[int, Tensors], shards: ClassShards, sources: int) -> Tensor:
    """Return one tensor's rows for this rank, of files that each have those of another."""
    like = next(iter(parts.values()))[name]
    rows = like.new_empty((shards.rows, *like.shape[1:]))
    ids = torch.arange(shards.rank, shards.classes, shards.ranks)
    for source, tensors in parts.items():
        there = ids % sources == source
        rows[there] = tensors[name][ids[there] // sources]
    return rows
