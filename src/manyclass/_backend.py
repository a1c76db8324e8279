"""Which implementation runs: the native core, or the NumPy reference (`MANYCLASS_BACKEND=reference`)."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from manyclass.errors import ConfigError


@dataclass(frozen=True)
class BackendInfo:
    """What runs: `backend` native or reference; `simd` in use; `available_simd` on this CPU; default `threads`."""

    backend: str
    simd: str
    available_simd: tuple[str, ...]
    threads: int


def default_threads() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def index_class() -> Any:
    """Return the class that holds an index's state: the native one, or its NumPy twin."""
    if _wanted_backend() == "reference":
        from manyclass._reference.index import ReferenceIndex

        return ReferenceIndex
    _check_simd()
    import manyclass._native as _native

    return _native.Index


def pairs_class() -> Any:
    """Return the class that multiplies examples with chosen rows: the native one, or its NumPy twin."""
    if _wanted_backend() == "reference":
        from manyclass._reference.row_products import ReferencePairs

        return ReferencePairs
    _check_simd()
    import manyclass._native as _native

    return _native.PairList


def tree_class() -> Any:
    """Return the class of the tree behind hierarchical softmax: the native one, or its NumPy twin."""
    if _wanted_backend() == "reference":
        from manyclass._reference.class_tree import ReferenceTree

        return ReferenceTree
    _check_simd()
    import manyclass._native as _native

    return _native.ClassTree


def row_updater() -> Callable[..., None]:
    """Return `update_rows(rule, weight, first, second, ids, gradient, threads)`: native, or its NumPy twin."""
    if _wanted_backend() == "reference":
        from manyclass._reference.row_update import update_rows

        return update_rows
    _check_simd()
    import manyclass._native as _native

    return _native.update_rows


def backend_info() -> BackendInfo:
    """Return which backend, instruction set and thread count are in use."""
    if _wanted_backend() == "reference":
        return BackendInfo("reference", "numpy", ("numpy",), 1)
    _check_simd()
    import manyclass._native as _native

    return BackendInfo("native", _native.simd(), tuple(_native.available_simd()), default_threads())


def _wanted_backend() -> str:
    wanted = os.environ.get("MANYCLASS_BACKEND", "native")
    if wanted not in ("native", "reference"):
        raise ConfigError(f"MANYCLASS_BACKEND={wanted!r} is unknown; set it to 'native' or 'reference'")
    return wanted


def _check_simd() -> None:
    import manyclass._native as _native

    wanted = os.environ.get("MANYCLASS_SIMD")
    if wanted and wanted not in _native.available_simd():
        runnable = ", ".join(_native.available_simd())
        raise ConfigError(f"MANYCLASS_SIMD={wanted!r} cannot run here; unset it or choose from: {runnable}")
