"""What the machine is: the processor's name, the sizes of its caches, its memory; as far as the system tells."""

import os
import platform
from pathlib import Path

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
CPU_CARD = Path("/proc/cpuinfo")


def cpu_model() -> str:
    """Return the name the processor gives itself, or what the system calls its kind."""
    lines = CPU_CARD.read_text().splitlines() if CPU_CARD.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cache_kb() -> dict[str, int]:
    """Return the sizes in KB of the data caches that the first core sees, nearest first; empty where nobody tells."""
    found = {}
    for cache in sorted(CACHES.glob("index*")):
        try:
            level, kind, size = ((cache / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K") and size[:-1].isdigit():
            found[f"L{level}" + ("d" if kind == "Data" else "")] = int(size[:-1])
    return found


def caches_in_words(sizes: dict[str, int]) -> str:
    """Return cache sizes for a sentence: L1d 32 KB, L2 1 MB, L3 32 MB."""
    return ", ".join(
        f"{name} {size // 1024} MB" if size % 1024 == 0 else f"{name} {size} KB" for name, size in sizes.items()
    )


def memory_gb() -> float | None:
    """Return the size of the memory, None where the system does not tell."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):  # Windows among others
        return None


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that can still be taken: what Linux calls available, or what a container leaves; None elsewhere.

    root: where proc and sys are, for tests.
    """
    found = [*_free_of_machine(root / "proc/meminfo"), *_free_of_groups(root)]
    return min(found) if found else None


def _free_of_machine(file: Path) -> list[int]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]


def _free_of_groups(root: Path) -> list[int]:
    """Return what each limit on this process leaves; cached files count as free, because the kernel drops them.

    Limits hold for a control group and all it is in; inside a container the path may be that of the host, so that only
    the outermost directory is there.
    """
    found = []
    lists = root / "proc/self/cgroup"
    for line in lists.read_text().splitlines() if lists.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            mount = root / "sys/fs/cgroup" / controllers
            names = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
            inner = mount / path.lstrip("/")
            for group in [inner, *inner.parents]:
                if group.is_relative_to(mount):
                    found += _left_in(group, *names)
    return found


def _left_in(group: Path, limit: str, usage: str) -> list[int]:
    try:
        most, used = ((group / f"memory.{name}").read_text().strip() for name in (limit, usage))
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return []
    if not most.isdigit():  # "max": no limit
        return []
    return [int(most) - int(used) + int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))]
