"""Data sets that cost minutes to make are made once and then memory-mapped from disk."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.frame.whole_folder import whole_folder


def cache_folder() -> Path:
    """Return the folder of cached arrays: `MANYCLASS_CACHE`, or `~/.cache/manyclass`."""
    folder = Path(os.environ.get("MANYCLASS_CACHE") or Path.home() / ".cache" / "manyclass")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def cached_arrays(name: str, fill: Callable[[Path], None]) -> dict[str, np.ndarray]:
    """Return the arrays of `<cache>/<name>/*.npy` as read-only memory maps, made by `fill` if absent.

    `fill(folder)` must leave one `.npy` file per array in the folder it is given.
    """
    target = cache_folder() / name
    if not target.exists():
        with whole_folder(target) as unfinished:
            fill(unfinished)
    return {file.stem: np.load(file, mmap_mode="r") for file in sorted(target.glob("*.npy"))}


def create_array(folder: Path, name: str, shape: tuple[int, ...], dtype: type = np.float32) -> np.memmap:
    """Return a writable memory map of a new `.npy` file, for arrays filled chunk by chunk."""
    return np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=dtype, shape=shape)
