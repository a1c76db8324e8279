"""A shard of the counter workload: it takes down when it was started, and when each of its checkpoints began and ended.

What a shard that dies may lose is what it acknowledged after its last whole checkpoint began. These notes, outside of
the job's folder, let the judge hold it to that, whenever and by whatever it was killed.
"""

import json
import time
from pathlib import Path
from typing import Any

from manyclass.distributed.engines.ray_servers import ShardServer
from manyclass.distributed.placement import Placement
from manyclass.distributed.run_options import RunOptions
from manyclass.distributed.settings import HeadSettings


class CounterShard(ShardServer):
    """A shard as a job has it, with notes."""

    def __init__(self, settings: HeadSettings, placement: Placement, number: int, options: RunOptions) -> None:
        assert options.folder is not None
        self._notes = options.folder.parent / "checkpoints" / f"{number}.jsonl"
        self._notes.parent.mkdir(exist_ok=True)
        _note(self._notes, started=time.time())  # before it looks for checkpoints: it must find all that were whole
        super().__init__(settings, placement, number, options)

    def save(self) -> int:
        """Write a checkpoint and return its version."""
        began = time.time()
        version = super().save()
        _note(self._notes, began=began, whole=time.time())
        return version


def _note(path: Path, **entry: Any) -> None:
    with open(path, "a") as file:
        file.write(json.dumps(entry) + "\n")
