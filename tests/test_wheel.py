"""What a user installs: the library alone, nothing that measures it, and it works without the clone."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cases import ROOT

pytestmark = pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler to build the wheel")
CLONE_ONLY = ("experiments", "tests", "docs", "examples")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as `make wheel` does."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    settings = ["--config-settings", f"build-dir={folder / 'build'}"]  # not beside an editable install's
    subprocess.run([*command, *settings, "--wheel-dir", str(folder), str(ROOT)], check=True, env=_with_tools())
    (built,) = folder.glob("manyclass-*.whl")
    return built


def _with_tools() -> dict[str, str]:
    return os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def test_it_holds_the_library_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"manyclass"}
    shipped = {name for name in names if name.startswith("manyclass/") and name.endswith((".py", ".pyi", ".typed"))}
    here = (path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".pyi", ".typed"))
    assert shipped == {path.relative_to(ROOT / "src").as_posix() for path in here}
    assert any(name.startswith("manyclass/_native") and name.endswith((".so", ".pyd")) for name in names)
    words = {part for name in names for part in Path(name).parts}
    assert not words & {*CLONE_ONLY, "peers", "demo", "report"}


def test_it_works_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "fresh", with_pip=False, symlinks=True)
    python = tmp_path / "fresh" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True)
    site = next((tmp_path / "fresh").glob("lib/python*/site-packages"))
    (site / "numpy.pth").write_text(str(Path(np.__file__).parents[1]))  # its one dependency, without a download
    program = """
import importlib.util, sys
import manyclass as mc, numpy as np
assert mc.__file__.startswith(sys.prefix), mc.__file__
rows = np.random.default_rng(0).normal(size=(3_000, 32)).astype(np.float32)
assert (mc.ClassIndex.build(rows).search(rows[:5], k=1).classes[:, 0] == range(5)).all()
assert importlib.util.find_spec("experiments") is None
assert importlib.util.find_spec("manyclass.experiments") is None
"""
    subprocess.run([str(python), "-I", "-c", program], check=True, cwd=tmp_path)
    command = [str(python), "-I", "-m", "manyclass.cli"]
    said = subprocess.run([*command, "doctor"], check=True, cwd=tmp_path, capture_output=True, text=True).stdout
    assert "backend native" in said
    version = subprocess.run([*command, "--version"], check=True, cwd=tmp_path, capture_output=True, text=True).stdout
    assert version.startswith("manyclass 0.")
