"""One log format for every benchmark stage."""

import json
import time
from pathlib import Path

from manyclass.training.run_log import machine_card, source_state

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
        record = {
            **fields,
            "machine": {**machine_card(VERSIONED), "threads": self.threads},
            **source_state(RESULTS.parent),
        }
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
