"""What the processor is: its name and the sizes of its caches, as far as the system tells."""

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
