"""How busy a shard is: calls, bytes, seconds at work, and how stale pushes were."""

import threading
import time
from collections import Counter
from typing import Any


class ShardStats:
    """Counters that many threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since = time.perf_counter()
        self._calls, self._received, self._sent, self._busy = 0, 0, 0, 0.0
        self._staleness: Counter[int] = Counter()

    def served(self, started: float, received: int, sent: int) -> None:
        """Count a call that started at this time of the performance counter."""
        with self._lock:
            self._calls += 1
            self._received, self._sent = self._received + received, self._sent + sent
            self._busy += time.perf_counter() - started

    def moved(self, staleness: int) -> None:
        """Count a push of this staleness."""
        with self._lock:
            self._staleness[staleness] += 1

    def report(self) -> dict[str, Any]:
        """Return all counters, and the share of the time that some call was at work (above 1: several at a time)."""
        with self._lock:
            elapsed = max(time.perf_counter() - self._since, 1e-9)
            return {
                "calls": self._calls,
                "bytes_received": self._received,
                "bytes_sent": self._sent,
                "load": self._busy / elapsed,
                "staleness": {str(key): self._staleness[key] for key in sorted(self._staleness)},
            }
