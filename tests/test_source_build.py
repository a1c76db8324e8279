"""Installing from source where something is missing: a sentence that says what, and the way out."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_no_compiler_is_said_in_a_plain_sentence(tmp_path: Path) -> None:
    tools = {name: shutil.which(name) for name in ("cmake", "ninja", "sh", "uname")}
    if not all(tools.values()):
        pytest.skip("needs cmake and ninja")
    (tmp_path / "bin").mkdir()
    for name, place in tools.items():
        (tmp_path / "bin" / name).symlink_to(str(place))
    hidden = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX")}
    ran = subprocess.run(
        ["cmake", "-S", str(ROOT), "-B", str(tmp_path / "build"), "-G", "Ninja"],
        env={**hidden, "PATH": str(tmp_path / "bin")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode
    said = " ".join(ran.stderr.split())
    assert "manyclass is built from source here and needs a C++20 compiler, but none was found: install one" in said
    assert said.count("CMake Error") == 1
