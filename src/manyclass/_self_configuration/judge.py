"""What an index that is built keeps on queries that nothing was fitted to or chosen by, and how long searches take."""

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._index_state import IndexState
from manyclass._search_sizes import search_sizes
from manyclass._validation import Floats, Ids
from manyclass.report import Expected

SHOWN = (10, 30, 100, 300)  # candidates a report has figures for, beside the config's own
ALONE = 24  # single queries that are timed
DRIFT = 3.0  # standard errors between early and late queries that are worth a word


def judged(
    state: IndexState, queries: Floats, best: Ids, metric: str, threads: int
) -> tuple[tuple[Expected, ...], tuple[float, float] | None]:
    """Return what to expect at which candidates, and what early and late queries keep where that differs.

    best: exact best classes, (queries, k).
    """
    k = best.shape[1]
    usual = state.config.candidates
    steps = sorted({usual, *(step for step in SHOWN if k <= step <= state.classes)})
    expected = [_expected(state, queries, best, step, threads) for step in steps]
    at_usual = expected[steps.index(usual)][1]
    agreed = at_usual[:, 0] if metric == "top1" else at_usual.mean(axis=1)
    return tuple(step for step, _ in expected), _drift(agreed)


def _expected(
    state: IndexState, queries: Floats, best: Ids, candidates: int, threads: int
) -> tuple[Expected, npt.NDArray[np.bool_]]:
    """Return what a search keeps and takes; and which of the best classes (queries, k) were found, the best as best."""
    k, sizes = min(best.shape[1], candidates), search_sizes(state.config, state.classes, candidates)
    start = time.perf_counter()
    found = state.search(queries, k, sizes, threads)[0]
    batch = (time.perf_counter() - start) / max(1, len(queries)) * 1e6
    start = time.perf_counter()
    for query in queries[:ALONE]:
        state.search(query[None], k, sizes, threads)
    single = (time.perf_counter() - start) / max(1, len(queries[:ALONE])) * 1e6
    hits = (best[:, :, None] == found[:, None, :]).any(axis=2) | (best < 0)
    wanted = best >= 0
    recall = float(hits[wanted].mean()) if wanted.any() else 1.0
    hits[:, 0] = found[:, 0] == best[:, 0]
    return Expected(candidates, float(hits[:, 0].mean()), recall, batch, single), hits


def _drift(kept: npt.NDArray[Any]) -> tuple[float, float] | None:
    """Return what the early and the late half of some queries keep, each a share, where that differs beyond chance."""
    early, late = np.array_split(kept.astype(np.float64), 2)
    if not len(early) or not len(late):
        return None
    error = np.sqrt(early.var() / len(early) + late.var() / len(late) + 1e-12)
    gap = abs(float(early.mean() - late.mean()))
    return (float(early.mean()), float(late.mean())) if gap > DRIFT * error and gap > 0.01 else None
