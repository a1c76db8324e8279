"""The native core under the sanitizers: threads from a C++ driver, hostile files through Python.

Builds are kept under build/ and cost about a minute each the first time. A Python that is not itself instrumented
would give ThreadSanitizer false reports, hence the driver; the address sanitizer has no such trouble.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases import PIPELINES, ROOT, problem
from native_build import build

from manyclass import ClassIndex

FUZZ_CASES = int(os.environ.get("MANYCLASS_FUZZ_CASES", "400"))
ROUNDS = os.environ.get("MANYCLASS_DRIVER_ROUNDS", "60")

pytestmark = [
    pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler to build with sanitizers"),
    pytest.mark.skipif(sys.platform != "linux", reason="sanitizers are set up for Linux only"),
]


def sanitized_build(sanitizers: str, target: str, *options: str) -> Path:
    """Build a target with these sanitizers and return the folder it is in."""
    return build(sanitizers.replace(",", "-"), target, f"-DMANYCLASS_SANITIZE={sanitizers}", *options)


def run(command: list[str | Path], **environment: str) -> str:
    """Run a command that must succeed without any sanitizer report, and return what it printed."""
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=600, check=False
    )
    report = done.stdout[-4000:] + done.stderr[-8000:]
    assert done.returncode == 0, report
    assert "runtime error" not in done.stderr, report
    return done.stdout


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("sanitizers", ["thread", "address,undefined"])
def test_searching_while_another_thread_updates_is_clean(sanitizers: str) -> None:
    driver = sanitized_build(sanitizers, "concurrency_driver") / "concurrency_driver"
    printed = run([driver, ROUNDS], TSAN_OPTIONS="halt_on_error=1", UBSAN_OPTIONS="print_stacktrace=1")
    assert printed.count("rounds") == 9


def test_memory_that_runs_out_leaves_the_index_as_it_was() -> None:
    printed = run(
        [sanitized_build("address,undefined", "memory_driver") / "memory_driver"], UBSAN_OPTIONS="print_stacktrace=1"
    )
    assert printed.count("allocations") == 3 * 9


def test_no_kernel_reads_or_writes_beyond_its_arrays() -> None:
    driver = sanitized_build("address,undefined", "kernel_driver") / "kernel_driver"
    assert " cases on " in run([driver], UBSAN_OPTIONS="print_stacktrace=1", ASAN_OPTIONS="detect_leaks=0")


def test_the_thread_sanitizer_notices_a_race(tmp_path: Path) -> None:
    source = tmp_path / "race.cpp"
    source.write_text(  # many times: two single steps may by chance be so far apart that the sanitizer forgot the first
        "#include <thread>\nint shared;\nvoid count() { for (int i = 0; i < 200000; ++i) ++shared; }\n"
        "int main() { std::thread other(count); count(); other.join(); }\n"
    )
    subprocess.run(["c++", "-g", "-fsanitize=thread", "-pthread", source, "-o", tmp_path / "race"], check=True)
    done = subprocess.run([tmp_path / "race"], capture_output=True, text=True, check=False)
    assert "data race" in done.stderr


# Hostile files: every checksum is right, so only the structural checks stand between the file and the core.


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return how to start a Python whose manyclass is built with address and undefined-behaviour sanitizers."""
    nanobind = output(sys.executable, "-m", "nanobind", "--cmake_dir")
    options = ["-DMANYCLASS_PYTHON=ON", f"-Dnanobind_DIR={nanobind}", f"-DPython_EXECUTABLE={sys.executable}"]
    folder = sanitized_build("address,undefined", "_native", *options)
    package = tmp_path_factory.mktemp("sanitized") / "manyclass"
    shutil.copytree(ROOT / "src" / "manyclass", package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy(next(folder.glob("_native*.so")), package)
    libraries = [output("gcc", f"-print-file-name={name}") for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    paths = [str(package.parent), str(ROOT / "tests"), str(Path(np.__file__).parents[1])]
    # -S: an editable installation would otherwise put its own manyclass first.
    return ["env", f"LD_PRELOAD={':'.join(libraries)}", f"PYTHONPATH={':'.join(paths)}", sys.executable, "-S", "-B"]


SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=0:max_allocation_size_mb=2048",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}


def test_the_sanitized_core_is_the_one_that_runs(sanitized: list[str]) -> None:
    program = "import manyclass._native as n; print(n.__file__); open('/proc/self/maps').read().index('libasan')"
    assert "sanitized" in run([*sanitized, "-c", program], **SANITIZER_OPTIONS)


@pytest.mark.parametrize("name", PIPELINES)
def test_hostile_files_give_typed_errors_only(sanitized: list[str], name: str, tmp_path: Path) -> None:
    rows, bias, _ = problem(12, 16, seed=3)
    names = [f"Klasse {number} – ß" for number in range(12)]
    index = ClassIndex.build(rows, bias=bias, config=PIPELINES[name], names=names)
    index.remove([4])
    index.save(tmp_path / "good.mc")
    printed = run(
        [*sanitized, ROOT / "tests" / "fuzz_loader.py", tmp_path / "good.mc", str(FUZZ_CASES)], **SANITIZER_OPTIONS
    )
    refused, searched = map(int, printed.split())
    assert refused + searched == FUZZ_CASES
    assert refused > FUZZ_CASES // 20, "nearly nothing was refused: mutations do not reach the checks"
    assert searched > FUZZ_CASES // 20, "nearly nothing was loaded: mutations never get past the checks"


def test_misaligned_inputs_are_read_correctly(sanitized: list[str]) -> None:
    program = """
import numpy as np
import manyclass as mc

def misaligned(array):
    raw = np.zeros(array.nbytes + 1, np.uint8)
    shifted = raw[1:].view(array.dtype).reshape(array.shape)
    shifted[...] = array
    assert not shifted.flags.aligned
    return shifted

rows = np.random.default_rng(0).normal(size=(40, 32)).astype(np.float32)
bias = np.linspace(0, 1, 40, dtype=np.float32)
index = mc.ClassIndex.build(rows, bias=misaligned(bias), config=mc.HashConfig.flat_sketch(64))
index.search(misaligned(rows[:3]))
index.refresh(misaligned(np.array([1, 5])), rows=misaligned(rows[2:4]), bias=misaligned(bias[:2]))
index.append(misaligned(rows[:2]), bias=misaligned(bias[:2]))
index.check(misaligned(rows[:3]), misaligned(np.array([1, 2, 3])))
index.remove(misaligned(np.array([1, 5])))
"""
    run([*sanitized, "-c", program], **SANITIZER_OPTIONS)


def test_the_whole_life_of_an_index_is_clean(sanitized: list[str], tmp_path: Path) -> None:
    program = """
import sys
import numpy as np
import manyclass as mc
from cases import PIPELINES, fitted, integers, problem, updates

for config in PIPELINES.values():
    for classes, features in ((1, 16), (33, 17), (70, 65), (5, 2)):
        config = fitted(config, features)
        rows, bias, queries = problem(classes, features)
        index = mc.ClassIndex.build(rows, bias=bias, config=config)
        for change in updates(features, classes).values():
            change(index)
            integers(index, queries)
            index.search(np.tile(queries, (12, 1)), 3, threads=3)
        index.save(sys.argv[1])
        mc.ClassIndex.load(sys.argv[1], mmap=True).check(queries)
"""
    run([*sanitized, "-c", program, tmp_path / "index.mc"], **SANITIZER_OPTIONS)
    assert np.isfinite(ClassIndex.load(tmp_path / "index.mc").rows).all()
