"""Every exception manyclass raises on purpose; each message names the value, the rule and the way out."""

__all__ = [
    "ConfigError",
    "CorruptFileError",
    "DivergedError",
    "FileError",
    "FileVersionError",
    "InputError",
    "InputTypeError",
    "ManyclassError",
    "MemoryBudgetError",
    "RankError",
]


class ManyclassError(Exception):
    """Base of all errors below, so that one `except` catches everything the library refuses."""


class ConfigError(ManyclassError, ValueError):
    """A setting is outside its limits, or two settings contradict each other."""


class InputError(ManyclassError, ValueError):
    """An argument has the right type but an impossible value or shape."""


class InputTypeError(ManyclassError, TypeError):
    """An argument has a type, or an array an element type, that is not accepted."""


class FileError(ManyclassError):
    """A path does not lead to the file that was asked for (a directory, another kind of file)."""


class CorruptFileError(FileError):
    """A file is damaged, cut short, or was not written by this library."""


class FileVersionError(FileError):
    """A file was written in a newer format than this version of the library reads."""


class DivergedError(ManyclassError, ArithmeticError):
    """A training loss is NaN or infinite; the weights are those of the step before."""


class MemoryBudgetError(ManyclassError, MemoryError):
    """What is about to be made needs more memory than there is; nothing has been taken yet."""


class RankError(ManyclassError, RuntimeError):
    """Another process of the group refused, asked for something else, ended, or did not come in time."""
