"""A data set that takes minutes to make is made once per machine and then read from the disk."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.frame.whole_folder import whole_folder

Arrays = Mapping[str, npt.NDArray[Any]]


def cache_folder() -> Path:
    """Return the folder of cached arrays: `MANYCLASS_CACHE`, or `~/.cache/manyclass`."""
    return Path(os.environ.get("MANYCLASS_CACHE") or Path.home() / ".cache" / "manyclass")


def cached_arrays(name: str, make: Callable[[], Arrays]) -> dict[str, npt.NDArray[Any]]:
    """Return arrays by name as read-only memory maps of `<cache>/<name>/*.npy`, made and kept if they are absent."""
    folder = cache_folder() / name
    if not folder.exists():
        arrays = make()
        with whole_folder(folder) as unfinished:
            for part, array in arrays.items():
                np.save(unfinished / f"{part}.npy", array)
    return {file.stem: np.load(file, mmap_mode="r") for file in sorted(folder.glob("*.npy"))}
