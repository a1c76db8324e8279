"""Nobody ever sees half a row, however many threads read and move rows; and no push gets lost between them."""

import threading

import numpy as np
from downpour_cases import head, plus_one, shards_of

from manyclass.distributed.messages import Pull, Sender
from manyclass.distributed.row_rules import ServerRule
from manyclass.distributed.servers.shared_lock import SharedLock

ROUNDS, WRITERS = 400, 3


def test_rows_are_whole_and_every_push_counts() -> None:
    (shard,) = shards_of(head(features=512, rule=ServerRule(lr=1.0)), 1)
    shard.rows.weight[:] = 0
    torn: list[int] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            found = shard.pull(Pull(np.arange(10, dtype=np.uint32))).weight
            torn.extend(np.flatnonzero((found != found[:, :1]).any(1)))

    def write(worker: int) -> None:
        for sequence in range(ROUNDS):
            shard.push(plus_one(Sender(worker, 1, sequence), list(range(10)), 512))

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(WRITERS)]
    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in [*threads, *readers]:
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    for thread in readers:
        thread.join()
    assert not torn
    assert (shard.rows.weight[:10] == ROUNDS * WRITERS).all()


def test_a_writer_is_alone_and_readers_are_not() -> None:
    lock, together = SharedLock(), threading.Barrier(2, timeout=10)

    def read() -> None:
        with lock.reading():
            together.wait()  # both are inside

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    with lock.writing():
        late = threading.Thread(target=read)
        late.start()
        late.join(0.05)
        assert late.is_alive()
    together.wait()
    late.join()
