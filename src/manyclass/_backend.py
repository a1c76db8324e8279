"""Which implementation runs: the native core, or the NumPy reference (`MANYCLASS_BACKEND=reference`)."""

import os
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


def core() -> Any:
    """Return the module that computes: `_native`, or `_reference`, which has the same classes and functions."""
    wanted = os.environ.get("MANYCLASS_BACKEND", "native")
    if wanted == "reference":
        from manyclass import _reference

        return _reference
    if wanted != "native":
        raise ConfigError(f"MANYCLASS_BACKEND={wanted!r} is unknown; set it to 'native' or 'reference'")
    import manyclass._native as _native

    simd = os.environ.get("MANYCLASS_SIMD")
    if simd and simd not in _native.available_simd():
        runnable = ", ".join(_native.available_simd())
        raise ConfigError(f"MANYCLASS_SIMD={simd!r} cannot run here; unset it or choose from: {runnable}")
    return _native


def backend_info() -> BackendInfo:
    """Return which backend, instruction set and thread count are in use."""
    computing = core()
    if computing.__name__ == "manyclass._reference":
        return BackendInfo("reference", "numpy", ("numpy",), 1)
    return BackendInfo("native", computing.simd(), tuple(computing.available_simd()), default_threads())
