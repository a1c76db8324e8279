"""The records of an experiment: JSON lines that say what is done, and from which the page is drawn."""

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from manyclass.training.run_log import RunLog, as_json, machine_card, read_log, source_state

Record = dict[str, Any]
VERSIONED = ("manyclass", "numpy", "torch", "pillow", "faiss-cpu", "scann", "hnswlib")
TIME = "%Y-%m-%dT%H:%M:%S%z"
TAKEN_BACK = "taken_back"


class Records:
    """One file of records; what a kill leaves is whole lines, and every line counts."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._log = RunLog(self.path)
        self._read: list[Record] = []
        self._state: tuple[int, int] | None = None

    def write(self, **fields: object) -> None:
        """Append one record with the time; it is on its way to the disk when this returns."""
        self._log.write(**{**fields, "time": time.strftime(TIME)})

    def write_card(self, experiment: str, *, seed: int, threads: int, options: Record) -> None:
        """Append the card of a session: what is needed to understand and to repeat what follows."""
        source = source_state(Path(__file__).parent)
        machine = machine_card(VERSIONED)
        self.write(
            kind="card", experiment=experiment, seed=seed, threads=threads, options=options, machine=machine, **source
        )

    def all(self) -> list[Record]:
        """Return every record that counts, oldest first; none if the file does not exist. Not to be changed.

        A stage that is run again takes back what it recorded before.
        """
        if not self.path.exists():
            return []
        stat = self.path.stat()
        state = stat.st_size, stat.st_mtime_ns
        if state != self._state:  # stages ask what is done in their inner loops
            self._read, self._state = _that_count(read_log(self.path)), state
        return list(self._read)

    def select(self, **fields: object) -> list[Record]:
        """Return the records whose fields equal these, oldest first; None also stands for a field that is absent."""
        wanted = json.loads(as_json(fields))  # as JSON reads it back: tuples are lists
        return [record for record in self.all() if all(record.get(name) == value for name, value in wanted.items())]

    def last(self, **fields: object) -> Record | None:
        """Return the newest record with these fields."""
        found = self.select(**fields)
        return found[-1] if found else None

    def done(self, **fields: object) -> bool:
        """Return whether there is a record with these fields, so that a stage started again skips it."""
        return self.last(**fields) is not None

    def take_back(self, stage: str) -> None:
        """Let what a stage recorded so far count no more: the lines stay, and it is run again whole."""
        self.write(kind=TAKEN_BACK, stage=stage)

    def seconds_spent(self, stage: str) -> float:
        """Return the seconds of a finished stage; training counts as its result says, killed sessions included."""
        told = [self.last(kind=kind, stage=stage) or {} for kind in ("stage_end", "result")]
        return float(max(record.get("seconds", 0) for record in told))

    def seconds_of_killed_sessions(self, stage: str) -> float:
        """Return what earlier sessions spent on a stage, each from its start to its last record."""
        spent, begun, last = 0.0, None, None
        for record in self.select(stage=stage):
            moment = datetime.fromisoformat(record["time"])
            if record.get("kind") == "stage_start":
                spent += (last - begun).total_seconds() if begun and last else 0
                begun = moment
            last = moment
        return spent + ((last - begun).total_seconds() if begun and last else 0)


def _that_count(records: list[Record]) -> list[Record]:
    """Return the records without those of a stage from before it was taken back."""
    kept: list[Record] = []
    for record in records:
        if record.get("kind") == TAKEN_BACK:
            kept = [earlier for earlier in kept if earlier.get("stage") != record["stage"]]
        else:
            kept.append(record)
    return kept
