"""One log format and one way of timing for every benchmark stage."""

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
CORE_RESULTS = RESULTS / "core"
VERSIONED = ("manyclass", "numpy", "torch", "faiss-cpu", "scann", "hnswlib")


class Log:
    """A JSON-lines file of measurements; every line also says on which machine and commit it was taken."""

    def __init__(self, path: Path | str, threads: int = 2) -> None:
        self.path = Path(path)
        self.threads = threads

    def write(self, **fields: object) -> None:
        """Append one record as a whole line: an interrupted stage loses at most its current record."""
        record = {**fields, "machine": {**machine_card(), "threads": self.threads}, **source_state()}
        record["time"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record) + "\n")

    def records(self) -> list[dict]:
        """Return every record of the file, oldest first; none if the file does not exist."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines() if line.strip()]

    def done(self, **key: object) -> bool:
        """Return whether a record with these fields exists, so that a stage started again skips it."""
        wanted = json.loads(json.dumps(key))  # as JSON reads it back: tuples are lists
        return any(all(record.get(name) == value for name, value in wanted.items()) for record in self.records())


@cache
def machine_card() -> dict[str, object]:
    """Return what decides the speed: processor, cores, memory, and the versions of everything compared."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in VERSIONED},
    }


@cache
def source_state() -> dict[str, object]:
    """Return the commit measured, and whether the working tree differed from it."""
    return {"commit": _git("rev-parse", "HEAD") or "none", "dirty": bool(_git("status", "--porcelain"))}


def time_call(call: Callable[[], object], repeats: int = 5, min_seconds: float = 0.5) -> float:
    """Return the median seconds of one call, after a warm-up call.

    Repeats at least `repeats` times and until `min_seconds` have passed.
    """
    call()
    seconds: list[float] = []
    while len(seconds) < repeats or sum(seconds) < min_seconds:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _cpu_model() -> str:
    card = Path("/proc/cpuinfo")
    lines = card.read_text().splitlines() if card.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _git(*arguments: str) -> str:
    found = subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""
