"""A shard's files belong to one process at a time: a second one waits until the first is gone, however it goes."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pytest
from downpour_cases import head

from manyclass.distributed.placement import Placement
from manyclass.distributed.servers.checkpoints import JobFolder

fcntl = pytest.importorskip("fcntl")

HOLDER = """
import fcntl, sys, time
lock = open(sys.argv[1], "ab")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_a_shard_waits_until_the_process_that_has_its_files_is_killed(tmp_path: Path) -> None:
    settings = head()
    folder = JobFolder(tmp_path, settings, Placement(settings.classes, 2, seed=settings.seed))
    folder.own_shard(0).close()
    (path,) = tmp_path.glob("*.lock")
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        folder.own_shard(1).close()  # another shard does not wait
        owned: list[IO[bytes]] = []
        waiting = threading.Thread(target=lambda: owned.append(folder.own_shard(0)))
        waiting.start()
        waiting.join(0.3)
        assert not owned
        holder.kill()
        waiting.join(30)
    (lock,) = owned
    lock.close()
