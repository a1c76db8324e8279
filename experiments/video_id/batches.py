"""Training batches by their number, made ahead in worker threads while the network computes."""

import functools
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import numpy as np
from torch import Tensor

from experiments.video_id.camera import Ids
from experiments.video_id.videos import Videos, evaluation_examples, training_frames
from manyclass.identification.model import as_input

Batch = tuple[Tensor, Tensor]
WORKERS, AHEAD = 2, 4  # threads that make frames, batches that wait
CHUNK = 250  # frames at a time where nothing is learnt


class FrameBatches:
    """Step → (frames, videos): every video once per epoch, in a random order, by one of its training frames.

    A batch is a function of its number: a resumed run goes on with what the killed one would have seen. `waited` is how
    many seconds the caller had to wait for frames. Use it in a `with`, which ends the threads.
    """

    def __init__(self, videos: Videos, size: int, seed: int, workers: int = WORKERS, ahead: int = AHEAD) -> None:
        self.videos, self.size, self.seed, self.ahead = videos, size, seed, ahead
        self.waited = 0.0
        self._order = functools.lru_cache(2)(self._shuffled)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="frames")
        self._made: dict[int, Future[Batch]] = {}

    def __call__(self, step: int) -> Batch:
        for later in range(step, step + 1 + self.ahead):
            if later not in self._made:
                self._made[later] = self._pool.submit(self.made, later)
        for number in [number for number in self._made if number < step or number > step + self.ahead]:
            self._made.pop(number).cancel()
        started = time.perf_counter()
        batch = self._made.pop(step).result()
        self.waited += time.perf_counter() - started
        return batch

    def made(self, step: int) -> Batch:
        """Return batch number `step`, made here and now."""
        ids, frames = self.examples(step)
        return frame_batch(self.videos, ids, frames)

    def frames_per_second(self, batches: int) -> float:
        """Return how many frames the threads make in a second while nothing else computes."""
        self.made(0)
        started = time.perf_counter()
        list(self._pool.map(self.made, range(1, batches + 1)))
        return batches * self.size / (time.perf_counter() - started)

    def examples(self, step: int) -> tuple[Ids, Ids]:
        """Return which frames of which videos are in a batch."""
        epochs, places = np.divmod(np.arange(step * self.size, (step + 1) * self.size), self.videos.classes)
        ids = np.concatenate([self._order(int(epoch))[places[epochs == epoch]] for epoch in np.unique(epochs)])
        random = np.random.default_rng((self.seed, 1, step))
        return ids, random.integers(0, training_frames(self.videos), self.size)

    def _shuffled(self, epoch: int) -> Ids:
        return np.random.default_rng((self.seed, 0, epoch)).permutation(self.videos.classes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def frame_batch(videos: Videos, ids: Ids, frames: Ids) -> Batch:
    """Return frames as a network takes them, and their videos."""
    import torch

    return as_input(videos.pictures(ids, frames)), torch.from_numpy(np.asarray(ids, np.int64))


def evaluation_batches(videos: Videos, count: int, seed: int) -> Callable[[], list[Batch]]:
    """Return a function that gives frames of the second halves, always the same, made once."""

    @functools.cache
    def made() -> list[Batch]:
        ids, frames = evaluation_examples(videos, count, seed)
        starts = range(0, count, CHUNK)
        return [frame_batch(videos, ids[at : at + CHUNK], frames[at : at + CHUNK]) for at in starts]

    return made
