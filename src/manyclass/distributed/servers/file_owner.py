"""Whose files these are: a lock that goes with the process that has it, however that ends.

A machine that counts as dead may live on, with a shard that still answers: were another started beside it, both would
write the same log. Storage that many machines see has to support file locks for that.
"""

import time
import warnings
from pathlib import Path
from typing import IO

from manyclass.errors import FileError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PATIENCE = 120.0  # seconds that somebody else may still have a shard's files
LOOK_AGAIN = 0.05


def owned(path: Path, what: str, patience: float = PATIENCE) -> IO[bytes]:
    """Return what stands for some files being this process's alone; keep it for as long, and close it then.

    path: of the lock. what: whose files they are, for the sentence where somebody else has them all the while.
    """
    lock = open(path, "ab")  # noqa: SIM115
    until = time.monotonic() + patience
    while fcntl is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                lock.close()
                raise FileError(f"{path} is held by another process, so {what} may still be written to; end that "
                                "process, or use another folder") from None  # fmt: skip
            time.sleep(LOOK_AGAIN)
        except OSError as error:
            warnings.warn(f"{path} cannot be locked ({error}): two processes might write {what} at the same time, "
                          "where a machine is cut off and lives on", RuntimeWarning, stacklevel=2)  # fmt: skip
            break
    return lock
