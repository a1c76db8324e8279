"""The error of a data set that cannot be made on this machine."""

from manyclass.errors import FileError


class MissingDataError(FileError):
    """What a data set is made from is not on this machine; install says how to get it."""

    def __init__(self, reason: str, install: str) -> None:
        super().__init__(f"{reason}; {install}")
        self.reason, self.install = reason, install
