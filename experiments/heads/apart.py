"""Work in processes of its own: with so many threads each, and with a peak of memory that belongs to nobody else."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from experiments.frame.waiting_threads import settle_waiting_threads
from manyclass.errors import ManyclassError

Result = TypeVar("Result")


def run_apart(
    calls: Sequence[Callable[[], Result]], threads: int, at_once: int = 1, fresh: bool = True
) -> Iterator[tuple[int, Result]]:
    """Yield (number of the call, what it returned) as calls end, so many at a time.

    fresh: each in a new process, which takes seconds to start; else as many processes as run at a time.
    """
    pool = ProcessPoolExecutor(
        at_once,
        get_context("spawn"),
        initializer=_prepare,
        initargs=(threads,),
        max_tasks_per_child=1 if fresh else None,
    )
    with pool:
        numbers = {pool.submit(call): number for number, call in enumerate(calls)}
        try:
            for done in as_completed(numbers):
                yield numbers[done], done.result()
        except BrokenProcessPool as broken:
            raise ManyclassError(
                "a process of this stage was killed, perhaps for its memory; --resume goes on"
            ) from broken
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _prepare(threads: int) -> None:
    """Hold torch to the threads; its OpenMP reads the environment when it is loaded, which happens here."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    settle_waiting_threads()
    import torch

    torch.set_num_threads(threads)
