"""Softmax over millions of classes: hash the class rows, look up the few that matter, score those exactly."""

from manyclass._backend import backend_info
from manyclass.config import HashConfig
from manyclass.errors import (
    ConfigError,
    CorruptFileError,
    FileError,
    FileVersionError,
    InputError,
    InputTypeError,
    ManyclassError,
)
from manyclass.index import TopK, WTAIndex

__all__ = [
    "ConfigError",
    "CorruptFileError",
    "FileError",
    "FileVersionError",
    "HashConfig",
    "InputError",
    "InputTypeError",
    "ManyclassError",
    "TopK",
    "WTAIndex",
    "backend_info",
]
