"""Builds of the native core for tests: kept under build/, a minute each the first time."""

import shutil
import subprocess
import sys
from pathlib import Path

from cases import ROOT


def tool(name: str) -> str:
    """Return the path of a build tool that pip installed beside this Python, or the system's."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is missing; `make test` installs it"
    return found


def build(name: str, target: str, *options: str) -> Path:
    """Build a target with these options of CMake in build/name, and return the folder it is in."""
    folder = ROOT / "build" / name
    configure = [tool("cmake"), "-S", str(ROOT), "-B", str(folder), "-G", "Ninja"]
    configure += [f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", "-DMANYCLASS_TESTS=ON"]
    for command in ([*configure, *options], [tool("ninja"), "-C", str(folder), target]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder
