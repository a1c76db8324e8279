"""A worker of the counter workload: pushes until all is done; counter_ledger.py says what and why."""

import json
import os
import time
from typing import Any

import numpy as np

from experiments.distributed.counter_ledger import FEATURES, PER_PUSH, SHARED
from manyclass.distributed.engines.ray_caller import RayCaller, UnavailableError
from manyclass.distributed.engines.ray_worker import dealt, join
from manyclass.distributed.job import JobText
from manyclass.distributed.messages import FencedError, Push
from manyclass.distributed.placement import Placement
from manyclass.distributed.run_options import RunOptions
from manyclass.distributed.steps.transport import Call, Identity

BLOCK = 64  # own rows that a worker claims at a time
HELD = 64  # the last numbers are dealt out again and again, until there are no more faults to come
AIR = 0.01  # seconds between pushes of these: what was killed has to start, too
OVER = "over"  # a file beside the ledgers: there are none


class CounterWorker:
    """Pushes until all is done; the same interface as a worker that trains. text: holds how many pushes are planned."""

    def __init__(self, number: int, text: JobText, placement: Placement, options: RunOptions) -> None:
        assert options.folder is not None
        self.number, self.placement, self.options = number, placement, options
        self.ledgers = options.folder.parent / "ledgers"
        self.ledgers.mkdir(exist_ok=True)
        self.planned = int(text.text)

    def run(self, coordinator: Any, shards: list[Any], trunk: Any) -> int:
        """Work until there is nothing left, and return how many calls had to be made again."""
        caller = RayCaller(shards, trunk, self.options.deadline)
        while True:
            try:
                self._push_all(join(coordinator, self.number, self.options.deadline), coordinator, caller)
                return caller.repeated
            except FencedError:
                continue

    def _push_all(self, incarnation: int, coordinator: Any, caller: RayCaller) -> None:
        identity, finished = Identity(self.number, incarnation), list[int]()
        generator = np.random.default_rng([self.number, incarnation])
        claimed: list[int] = []
        with open(self.ledgers / f"{self.number}-{incarnation}.jsonl", "a", buffering=1) as ledger:
            while True:
                found = dealt(coordinator, identity, finished, [], [], self.options.deadline)
                if found.stop:
                    return
                finished = []
                time.sleep(found.wait)
                for number in found.numbers:
                    claimed = claimed or self._claimed()
                    done = self._push(identity, claimed.pop(), generator, caller, ledger)
                    if number >= self.planned - HELD and not (self.ledgers / OVER).exists():
                        time.sleep(AIR)
                    elif done:
                        finished.append(number)

    def _push(self, identity: Identity, own: int, generator: Any, caller: RayCaller, ledger: Any) -> bool:
        """Push once; return whether that was acknowledged. Fenced: somebody else is this worker now."""
        shard, row = own % self.placement.shards, SHARED + own // self.placement.shards
        shared = np.sort(generator.choice(SHARED, PER_PUSH, replace=False)).tolist()
        rows = np.array([*shared, row], np.uint32)
        push = Push(identity.sender(shard), 0, rows, np.full((len(rows), FEATURES), -1, np.float32), None)
        ledger.write(json.dumps({"row": row, "shard": shard, "shared": shared, "begun": time.time()}) + "\n")
        try:
            caller.answers(caller.start([Call(shard, "push", push)]))
        except UnavailableError:
            return False  # in doubt for ever: the next one gets a row of its own
        ledger.write(json.dumps({"row": row, "shard": shard, "acknowledged": time.time()}) + "\n")
        return True

    def _claimed(self) -> list[int]:
        """Return numbers of own rows that nobody else gets: a file that only one can create stands for each block."""
        block = len(list(self.ledgers.glob("block-*")))
        while True:
            try:
                os.close(os.open(self.ledgers / f"block-{block}", os.O_CREAT | os.O_EXCL))
                return list(range(block * BLOCK, (block + 1) * BLOCK))
            except FileExistsError:
                block += 1
