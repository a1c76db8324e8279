"""What tests on Ray share: a program with a cluster of its own, in a process of its own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 300  # seconds; a machine that does nothing else needs a tenth


def run_with_ray(*command: str, folder: Path) -> list[str]:
    """Return the lines that a Python program prints. Nothing of Ray in this process's environment reaches it.

    Ray keeps its files, also the address of a running cluster, in a folder that is made for this run: what else runs on
    the machine is not joined. Not under `folder`: paths of sockets must be short.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short:
        ran = subprocess.run(
            [sys.executable, *command],
            env=environment | {"RAY_TMPDIR": short, "PYTHONPATH": str(Path(__file__).parent)},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()
