"""Softmax over millions of classes: hash the class rows, look up the few that matter, score those exactly."""

from manyclass._backend import backend_info
from manyclass._topk import TopK
from manyclass.config import HashConfig
from manyclass.errors import (
    ConfigError,
    CorruptFileError,
    DivergedError,
    FileError,
    FileVersionError,
    InputError,
    InputTypeError,
    ManyclassError,
    RankError,
)
from manyclass.index import ClassIndex
from manyclass.quality import Quality
from manyclass.report import Report
from manyclass.sharded_index import ShardedIndex
from manyclass.tuning import Tuned, tune


def __getattr__(name: str) -> str:
    if name == "__version__":  # looked up when asked for: reading package metadata takes longer than the import itself
        from importlib.metadata import version

        return version("manyclass")
    raise AttributeError(f"module 'manyclass' has no attribute {name!r}")


__all__ = [
    "ClassIndex",
    "ConfigError",
    "CorruptFileError",
    "DivergedError",
    "FileError",
    "FileVersionError",
    "HashConfig",
    "InputError",
    "InputTypeError",
    "ManyclassError",
    "Quality",
    "RankError",
    "Report",
    "ShardedIndex",
    "TopK",
    "Tuned",
    "backend_info",
    "tune",
]
