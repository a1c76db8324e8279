"""At which place an index ranks the classes it should find: what it keeps at any number of candidates follows.

On a few rows as well as on all: the classes that should be found are among the few, and each other row stands for as
many as were left out, so a place counted in such weights is about the place among all. Where a class's score depends
on itself alone, as in a scan, that takes a fraction of the time.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._balance import Balance
from manyclass._index_state import IndexState
from manyclass._search_sizes import SearchSizes, search_sizes
from manyclass._self_configuration.plans import LADDER, MOST_CANDIDATES
from manyclass._validation import Floats, Ids
from manyclass._windows_and_signs import permutation
from manyclass.config import HashConfig

Ranks = npt.NDArray[np.float64]  # (queries, k), infinite where a class was not found; nan where there is none
ROWS_TRIED = 8192
MOST_SPECIAL = 16  # of the best classes of a query are among the rows that are tried
TRIED = 5_000_003  # stream of random numbers


@dataclass(frozen=True)
class Trial:
    """A few rows with the weight of each, and the classes that each query should find, as positions among them."""

    rows: npt.NDArray[Any]
    bias: Floats | None
    weights: npt.NDArray[np.float64]
    wanted: Ids  # (queries, at most MOST_SPECIAL)

    def ranks(self, config: HashConfig, balance: Balance | None, queries: Floats, most: int, threads: int) -> Ranks:
        """Return the places that an index of this config over all rows would give the wanted classes, about."""
        state = IndexState(config, self.rows.shape[1])
        state.build(self.rows, self.bias, threads, None, balance)
        sizes = search_sizes(config, len(self.rows), most)
        return ranks(state, queries, self.wanted, sizes, threads, self.weights)[0]


def trial(rows: npt.NDArray[Any], bias: Floats | None, best: Ids, seed: int) -> Trial:
    """Return some rows: the best classes of the queries (queries, k), and others by lot."""
    columns = np.unique(np.linspace(0, best.shape[1] - 1, MOST_SPECIAL).astype(np.int64))
    wanted = best[:, columns]
    special = np.unique(wanted[wanted >= 0])
    others = permutation(seed, TRIED, len(rows))[: ROWS_TRIED + len(special)].astype(np.int64)
    others = others[~np.isin(others, special)]
    ids = np.sort(np.concatenate([special, others]))
    weights = np.full(len(ids), (len(rows) - len(special)) / max(1, len(others)))
    weights[np.searchsorted(ids, special)] = 1.0
    places = np.where(wanted >= 0, np.searchsorted(ids, wanted), -1)
    return Trial(np.ascontiguousarray(rows[ids]), None if bias is None else bias[ids], weights, places)


def ranks(
    state: IndexState,
    queries: Floats,
    wanted: Ids,
    sizes: SearchSizes,
    threads: int,
    weights: npt.NDArray[np.float64] | None = None,
) -> tuple[Ranks, float]:
    """Return before how many classes each wanted one (queries, k) comes by the index's own ranking.

    And how many classes were scanned for a query, on average: cells are not of one size, nor asked for equally often.
    """
    found, scanned = np.empty((len(queries), sizes.candidates), np.int64), np.zeros(len(queries), np.int64)
    state.core.shortlist(queries, sizes.keep, sizes.probes, sizes.cells, threads, found, None, scanned)
    counted = (found >= 0).astype(np.float64) if weights is None else np.where(found >= 0, weights[found], 0.0)
    before = np.cumsum(counted, axis=1) - counted
    places = np.empty(wanted.shape)
    for column, ids in enumerate(wanted.T):
        hits = found == ids[:, None]
        at = hits.argmax(axis=1)
        places[:, column] = np.where(hits.any(axis=1), before[np.arange(len(found)), at], np.inf)
    places[wanted < 0] = np.nan
    return places, float(scanned.sum()) / max(1, len(queries))


def share_within(places: Ranks, candidates: int) -> float:
    """Return which share of the wanted classes is among so many candidates."""
    known = ~np.isnan(places)
    return float((places[known] < candidates).mean()) if known.any() else 1.0


def fewest_candidates(places: Ranks, needed: float, least: int = 1, most: int = MOST_CANDIDATES) -> int | None:
    """Return the fewest candidates of the ladder, within limits, that hold the needed share; None if none does."""
    steps = [step for step in LADDER if least <= step < most]
    return next((step for step in [*steps, most] if share_within(places, step) >= needed), None)


def leading(balance: Balance, directions: int) -> Balance:
    """Return the balance with its first directions alone: nearly what would be fitted with as many."""
    kept = directions or balance.directions
    chosen = np.r_[0:kept, balance.directions]  # the last row of the rows' matrix is the mean logit
    return replace(
        balance, query_levels=balance.query_levels[:kept], query_units=balance.query_units[:kept],
        row_levels=balance.row_levels[chosen], row_units=balance.row_units[chosen],
    )  # fmt: skip
