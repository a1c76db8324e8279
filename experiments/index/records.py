"""One log format for every benchmark stage."""

from pathlib import Path

from experiments.frame.records import VERSIONED, Records
from manyclass.training.run_log import machine_card, source_state

RESULTS = Path(__file__).parent / "results"
CORE_RESULTS = RESULTS / "core"


class Log(Records):
    """Records of measurements; every line also says on which machine and commit it was taken."""

    def __init__(self, path: Path | str, threads: int = 2) -> None:
        super().__init__(path)
        self.threads = threads

    def write(self, **fields: object) -> None:
        """Append one record as a whole line: an interrupted stage loses at most its current record."""
        machine = {**machine_card(VERSIONED), "threads": self.threads}
        super().write(**fields, machine=machine, **source_state(RESULTS.parent))
