"""Files that are whole or not there: a new file takes the old one's place at once, and a reader notices damage.

What the index file and the checkpoint of a head have in common, whatever is inside them.
"""

import contextlib
import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from io import FileIO
from typing import Any

from manyclass.errors import CorruptFileError, FileError, InputTypeError

try:
    import fcntl
except ImportError:  # Windows: saves stay atomic, only the leftovers of killed writers are not cleaned up
    fcntl = None  # type: ignore[assignment]

_TEMP_SUFFIX = ".manyclass-tmp"
_BINARY = getattr(os, "O_BINARY", 0)
_NO_WAITING = getattr(os, "O_NONBLOCK", 0)  # opening a named pipe would otherwise wait for its other end


# Reading -----------------------------------------------------------------------------


class DamageError(Exception):
    """What is wrong with a file; `reported` makes a CorruptFileError of it, which names the path."""


@contextlib.contextmanager
def reported(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn a DamageError of the block into a CorruptFileError that names the file and the way out."""
    try:
        yield
    except DamageError as damage:
        advice = "restore the file from a copy or write it again"
        raise CorruptFileError(f"{os.fspath(path)}: {damage}; {advice}") from None


def open_regular(path: str | os.PathLike[str]) -> FileIO:
    """Return the file opened for reading; anything but a regular file is refused."""
    descriptor = os.open(path, os.O_RDONLY | _BINARY | _NO_WAITING)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileError(f"{os.fspath(path)} is not a regular file; pass the path of a manyclass file")
    return FileIO(descriptor)


def read_exactly(file: FileIO, size: int) -> bytes:
    """Return the next `size` bytes."""
    content = file.read(size)
    if content is None or len(content) != size:
        raise DamageError("it became shorter while it was read")
    return content


# Writing -----------------------------------------------------------------------------


def plain_json(value: Any, name: str) -> str:
    """Return JSON of a value, after refusing one that would come back as something else. name: of the argument."""
    try:
        encoded = json.dumps(value, allow_nan=False)
        unchanged: bool = json.loads(encoded) == value
    except (TypeError, ValueError, RecursionError) as error:
        raise InputTypeError(f"{name} must be plain JSON values, but: {error}") from error
    if not unchanged:  # tuples, integer keys: JSON silently turns them into something else
        raise InputTypeError(f"{name} would not survive JSON unchanged; use only string keys, lists and dicts")
    return encoded


def write_all(file: int, content: bytes) -> None:
    """Write all of it, in as many calls as the system takes."""
    rest = memoryview(content)
    while rest:  # the system may take less than it was given
        rest = rest[os.write(file, rest) :]


def write_at_start(file: int, content: bytes) -> None:
    """Write over the file's first bytes: a header whose checksums are known once the data is written."""
    os.lseek(file, 0, os.SEEK_SET)
    write_all(file, content)


@contextlib.contextmanager
def replacement(target: str) -> Iterator[int]:
    """Yield the descriptor of a new file that takes the place of `target` if the block succeeds."""
    try:
        old_mode = os.stat(target).st_mode
    except FileNotFoundError:
        old_mode = None
    if old_mode is not None and not stat.S_ISREG(old_mode):
        raise FileError(f"{target} is not a regular file and is not replaced; choose another path")
    remove_abandoned(os.path.dirname(target), re.escape(os.path.basename(target)))
    # A private file must not become readable while it is rewritten: its old mode comes back at the end.
    file, temp = _claim_temp(target, 0o666 if old_mode is None else 0o600)
    try:
        yield file
        if old_mode is not None:
            os.chmod(temp, stat.S_IMODE(old_mode))
        os.fsync(file)
        if fcntl is None:  # Windows cannot rename an open file; elsewhere closing would give up the lock
            os.close(file)
        os.replace(temp, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temp)
        raise
    finally:
        if fcntl is not None:
            os.close(file)
    _sync_directory(os.path.dirname(target))


def _claim_temp(target: str, mode: int) -> tuple[int, str]:
    """Create a file beside `target`; it is locked while open, which shows others that its writer lives."""
    folder, name = os.path.split(target)
    while True:
        temp = os.path.join(folder, f".{name}.{secrets.token_hex(8)}{_TEMP_SUFFIX}")
        file = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, mode)
        # Between these lines another writer may take it for abandoned and delete it, hence the second look.
        if _try_lock(file) is not False and os.path.exists(temp):
            return file, temp
        os.close(file)


def remove_abandoned(folder: str | os.PathLike[str], names: str) -> None:
    """Delete the temporary files of killed writers of files with such names, a regex: those nobody holds locked."""
    ours = re.compile(rf"\.{names}\.[0-9a-f]{{16}}{re.escape(_TEMP_SUFFIX)}")
    with contextlib.suppress(OSError):  # tidying up is never a reason not to save
        for temp in [os.path.join(folder, entry) for entry in os.listdir(folder) if ours.fullmatch(entry)]:
            with contextlib.suppress(OSError), FileIO(temp, "r+") as file:
                if _try_lock(file.fileno()):
                    os.unlink(temp)


def _try_lock(file: int) -> bool | None:
    """Return whether the lock was free and is now ours, or None where files cannot be locked."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _sync_directory(folder: str) -> None:
    try:
        directory = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows, or a directory that may be written but not read
        return
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system without this operation
            raise
    finally:
        os.close(directory)
