"""Every kernel by itself, on every instruction set: the same bits as baseline code, also where this CPU must be played.

The cases are those of tests/cpp/kernel_cases.h; the driver runs them on all that the CPU has.
"""

import shutil
import subprocess

import pytest
from cases import ROOT
from native_build import build

from manyclass import _native

ARM = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++"]


def run(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
def test_every_instruction_set_of_this_cpu_gives_the_same_bits() -> None:
    printed = run(build("release", "kernel_driver") / "kernel_driver")
    assert printed.split(" cases on ")[1].split() == _native.available_simd()


@pytest.mark.parametrize("name", _native.compiled_simd())
def test_what_is_compiled_can_be_run(name: str, simd: None) -> None:
    if name not in _native.available_simd():
        assert not _native.use_simd(name)
        pytest.skip(f"this CPU lacks what {name} needs: it is compiled, and nothing here has run it")
    assert _native.use_simd(name)
    assert _native.simd() == name


@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-g++"), reason="NEON is not compiled: no aarch64-linux-gnu-g++")
def test_neon_gives_the_same_bits_on_a_played_arm64() -> None:
    driver = build("aarch64", "kernel_driver", *ARM) / "kernel_driver"
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if not emulator:
        pytest.skip("NEON is compiled, but nothing here runs it: no qemu-aarch64")
    assert "cases on neon scalar" in run(emulator, "-L", "/usr/aarch64-linux-gnu", driver)


def test_every_kernel_of_the_table_has_a_case() -> None:
    table = (ROOT / "cpp/kernels.h").read_text().split("struct Kernels {")[1].split("};")[0]
    kernels = [part.split(")")[0] for part in table.split("(*")[1:]]
    cases = (ROOT / "tests/cpp/kernel_cases.h").read_text()
    assert len(kernels) > 15
    assert [name for name in kernels if f"k.{name}(" not in cases] == []
