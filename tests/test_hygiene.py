"""What the package must not do: drag things in at import, start threads, break under fork, carry local paths."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases import PIPELINES, ROOT

import manyclass as mc
from manyclass import ClassIndex

SOURCES = sorted((ROOT / "src").rglob("*.py"))


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True, check=False
    )


# Import


IMPORT_CHECK = """
import os, sys
import numpy
threads = len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 0  # BLAS has its own
import {module}
heavy = sorted({{"torch", "scipy", "matplotlib", "rich", "socket", "multiprocessing"}} & set(sys.modules))
started = (len(os.listdir("/proc/self/task")) if threads else 0) - threads
print(heavy, started)
"""


def test_importing_brings_nothing_heavy_and_starts_no_thread() -> None:
    assert python(IMPORT_CHECK.format(module="manyclass")).stdout.strip() == "[] 0"


@pytest.mark.parametrize(
    ("module", "seen"), [("multiprocessing", "multiprocessing"), ("socket", "socket"), ("helper_thread", "1")]
)
def test_the_import_check_can_fail(module: str, seen: str, tmp_path: Path) -> None:
    (tmp_path / "helper_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1,), daemon=True).start()\n"
    )
    printed = python(IMPORT_CHECK.format(module=module), PYTHONPATH=str(tmp_path)).stdout
    assert seen in printed
    assert printed.strip() != "[] 0"


def test_the_public_names_are_declared() -> None:
    assert sorted(mc.__all__) == mc.__all__
    assert all(hasattr(mc, name) for name in mc.__all__)
    assert (ROOT / "src" / "manyclass" / "py.typed").exists()


# Sources


def test_nothing_imports_a_module_that_can_run_code_from_a_file() -> None:
    forbidden = re.compile(
        r"^\s*(import|from)\s+(pickle|marshal|shelve|dill|cloudpickle|joblib)\b|(?<!\.)\b(eval|exec)\(", re.M
    )  # `network.eval()` is torch's
    found = [source.name for source in SOURCES if forbidden.search(source.read_text())]
    assert found == ["job.py"]  # `manyclass train JOB.py` runs the program that its user names, and nothing else
    assert forbidden.search("    import pickle")
    assert forbidden.search("value = eval(text)")
    assert SOURCES


def test_the_build_promises_the_same_bits_on_every_machine() -> None:
    lines = [line.split("#")[0] for line in (ROOT / "CMakeLists.txt").read_text().splitlines()]
    assert not re.search("march=native|mtune=native|ffast-math|funsafe-math|Ofast", "\n".join(lines))
    assert "-ffp-contract=off" in "\n".join(lines)


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git clone")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_nothing_in_the_repository_names_a_local_folder() -> None:
    local = re.compile(rb"/(work|root|home/\w+|Users/\w+)/[\w.-]+")
    allowed = {"LICENSE"}
    found = [
        f"{path.relative_to(ROOT)}: {match[0].decode()}"
        for path in tracked_files()
        if path.is_file() and path.name not in allowed
        for match in [local.search(path.read_bytes())]
        if match
    ]
    assert not found


def test_no_large_file_is_tracked() -> None:
    large = [path for path in tracked_files() if path.is_file() and path.stat().st_size > 1_000_000]
    assert not large


# Switches


def test_an_unknown_instruction_set_is_refused_with_the_choices() -> None:
    program = """
import numpy as np, manyclass as mc
for call in (mc.backend_info, lambda: mc.ClassIndex.build(np.eye(4, dtype=np.float32))):
    try:
        call()
    except mc.ConfigError as error:
        print(error)
"""
    printed = python(program, MANYCLASS_SIMD="nonsense").stdout.splitlines()
    assert len(printed) == 2
    for line in printed:
        assert "MANYCLASS_SIMD='nonsense'" in line
        assert all(name in line for name in mc.backend_info().available_simd)


def test_an_unknown_backend_is_refused_with_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCLASS_BACKEND", "gpu")
    for call in (mc.backend_info, lambda: ClassIndex.build(np.eye(4, dtype=np.float32))):
        with pytest.raises(mc.ConfigError, match="'gpu' is unknown; set it to 'native' or 'reference'"):
            call()


@pytest.mark.parametrize("name", mc.backend_info().available_simd)
def test_the_forced_instruction_set_is_the_one_that_runs(name: str) -> None:
    program = "import manyclass as mc; print(mc.backend_info().simd, mc.backend_info().backend)"
    assert python(program, MANYCLASS_SIMD=name).stdout.split() == [name, "native"]


def test_backend_info_says_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    info = mc.backend_info()
    assert info.backend == "native"
    assert info.simd in info.available_simd
    assert info.available_simd[-1] == "scalar"
    assert info.threads == len(os.sched_getaffinity(0))
    monkeypatch.setenv("MANYCLASS_BACKEND", "reference")
    assert mc.backend_info().backend == "reference"


# Fork

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def in_child(work: Callable[[], bool], seconds: int = 10) -> bool:
    """Fork, run the work in the child and return its verdict; a child that hangs is ended by its alarm."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(seconds)
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def searched(index: ClassIndex, queries: np.ndarray) -> list[list[int]]:
    return index.search(queries, 3, candidates=50, threads=3).classes.tolist()


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("pipeline", ["paper", "flat sketch", "probes and sketch"])
def test_a_forked_child_can_do_everything(pipeline: str) -> None:
    rows = np.random.default_rng(0).normal(size=(300, 40)).astype(np.float32)
    index = ClassIndex.build(rows.copy(), config=PIPELINES[pipeline], threads=3)
    expected = searched(index, rows[:70])

    def work() -> bool:
        same = searched(index, rows[:70]) == expected
        index.refresh(slice(0, 100), rows=-rows[:100], threads=2)
        index.append(rows[:5])
        index.remove([200])
        ClassIndex.build(rows, config=PIPELINES[pipeline], threads=2)
        # The child's child, too: nothing of the parent's threads may be waited for.
        return same and in_child(lambda: len(searched(index, rows[:70])) == 70)

    assert in_child(work)
    assert searched(index, rows[:70]) == expected


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_while_others_search_and_refresh_is_whole() -> None:
    rows = np.random.default_rng(0).normal(size=(3_000, 40)).astype(np.float32)
    index = ClassIndex.build(rows.copy(), config=PIPELINES["tables and sketch"])
    done = threading.Event()

    def search() -> None:
        while not done.is_set():
            index.search(rows[:200], 3, threads=2)

    def refresh() -> None:
        while not done.is_set():
            index.refresh(slice(0, 1_000), rows=rows[:1_000], threads=2)

    workers = [threading.Thread(target=target) for target in (search, search, refresh)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(15):
            time.sleep(0.003)
            assert in_child(
                lambda: (
                    index.search(rows[7], 1, threads=2).classes[0] == 7
                    and in_child(lambda: index.search(rows[8], 1, threads=2).classes[0] == 8)
                )
            )
    finally:
        done.set()
        for worker in workers:
            worker.join()


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_the_fork_check_notices_a_hang() -> None:
    lock = threading.Lock()
    lock.acquire()
    assert not in_child(lambda: lock.acquire(), seconds=1)
