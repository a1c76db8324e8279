"""How an index chooses its own config: tries a short list on a few rows, builds the best, and judges what was built.

Quality is measured and work is counted, so that the same rows and queries give the same index everywhere.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._balance import Balance, find_balance
from manyclass._index_state import IndexState, Progress
from manyclass._search_sizes import SearchSizes, search_sizes
from manyclass._self_configuration import plans, prices
from manyclass._self_configuration.query_sample import QuerySample
from manyclass._self_configuration.winner_ranks import (
    Ranks,
    Trial,
    fewest_candidates,
    leading,
    ranks,
    share_within,
    trial,
)
from manyclass._self_configuration.wishes import Wishes
from manyclass._validation import Floats, Ids
from manyclass.config import FLAT_SCAN_CLASSES, MAX_BALANCED_FEATURES, HashConfig
from manyclass.errors import ConfigError

CELL_SHARES = tuple(2 ** (-step / 2) for step in range(12, 0, -1))  # 1/64 to 0.7
LEAST_UNSURE_SHARE = 0.25  # of the cells that are scanned where no real query chose them
STEPS_UP = 2  # longer scans that are built where the first falls short on all rows


@dataclass(frozen=True)
class Layer:
    """Rows (classes, features), biases, and how many threads may work on them."""

    rows: npt.NDArray[Any]
    bias: Floats | None
    threads: int
    progress: Progress | None = None

    @property
    def classes(self) -> int:
        return len(self.rows)

    @property
    def features(self) -> int:
        return int(self.rows.shape[1])

    def beat(self) -> None:
        """Tell whoever waits that something is done, though no row of the index yet."""
        if self.progress:
            self.progress(0, self.classes)


@dataclass(frozen=True)
class Tried:
    """One plan on a few rows: candidates that reach the target (None: too many), the share found, the work."""

    config: HashConfig
    candidates: int | None
    share: float
    work: int


@dataclass(frozen=True)
class Settled:
    """An index over all rows: the share it finds of the queries to choose on, and the work of a search."""

    state: IndexState
    share: float
    work: int


def built(config: HashConfig, layer: Layer, balance: Balance | None) -> IndexState:
    """Return an index of this config over the layer."""
    state = IndexState(config, layer.features)
    state.build(layer.rows, layer.bias, layer.threads, layer.progress, balance)
    return state


class Chooser:
    """Chooses a config for a layer and a sample of queries; `best` are the exact best classes of `sample.choose`."""

    def __init__(self, layer: Layer, sample: QuerySample, best: Ids, wishes: Wishes) -> None:
        self.layer, self.sample, self.wishes = layer, sample, wishes
        self.wanted = best[:, : wishes.columns]
        self.needed = wishes.needed(len(sample.choose))
        self.tried: list[Tried] = []
        self._balances: dict[str, Balance | None] = {}

    def _balance(self, config: HashConfig) -> Balance | None:
        """Return the balance of a config, fitted once for each kind: the first directions are those of fewer."""
        if config.balance not in self._balances:
            everything = config.with_(coordinates=0)
            self._balances[config.balance] = find_balance(
                self.layer.rows, self.sample.fit, everything, self.sample.real
            )
        found = self._balances[config.balance]
        return leading(found, config.coordinates) if found is not None and config.coordinates else found

    def choose(self) -> IndexState:
        """Return the index of the plan that needs the least work, or else finds the most."""
        self.tried = self._try_scans()
        best = [plan.config for plan in sorted(self.tried, key=_merit)][: 1 + STEPS_UP]
        if not self.sample.real:
            best = [self._longer(best[0])]
        settled = self._first_that_finds_enough(best)
        return self._or_tables(settled) if self.sample.real else self._with_room(settled.state)

    def _first_that_finds_enough(self, configs: list[HashConfig]) -> Settled:
        """Return the index of the first config that reaches the target over all rows, or of the one that finds most."""
        most: Settled | None = None
        for config in configs:
            settled = self._settled(config)
            if settled.share >= self.needed:
                return settled
            if most is None or settled.share > most.share:
                most = settled
        assert most is not None
        return most

    def _longer(self, config: HashConfig) -> HashConfig:
        """Return a scan of twice the bits where there is one: stand-ins are easier than what may come."""
        longer = [c for c in self._affordable_scans()
                  if c.balance == config.balance and c.scan_bits == 2 * config.scan_bits]  # fmt: skip
        return longer[0] if longer else config

    def _with_room(self, state: IndexState) -> IndexState:
        """Return an index that was chosen by stand-ins, with more cells and candidates than they asked for."""
        config, candidates = state.config, self.wishes.most
        cells = config.cells_scanned(config.candidates) if config.cells else 0
        if cells:
            roomy = max(2 * cells, math.ceil(LEAST_UNSURE_SHARE * config.cells))
            state.config = plans.scanning(config, candidates, min(config.cells - 1, roomy))
        else:
            state.config = config.with_(candidates=candidates)
        return state

    def _affordable_scans(self) -> list[HashConfig]:
        """Return the scans to try that memory has room for."""
        classes, memory = self.layer.classes, self.wishes.memory
        listed = list(plans.scans(self.layer.features, few_bits=memory is not None))
        least = min(self._bytes(config) for config in listed)
        if memory is not None and least > memory:
            raise ConfigError(
                f"memory={memory} is too little for {classes} classes: the smallest index takes about {least} bytes; "
                f"give at least that, or config=HashConfig.exhaustive()"
            )
        return [config for config in listed if memory is None or self._bytes(config) <= memory]

    def _bytes(self, config: HashConfig) -> int:
        return math.ceil(self.layer.classes * config.bytes_per_class(self.layer.classes))

    def _try_scans(self) -> list[Tried]:
        """Return what each scan worth trying finds, on a few rows; those that cannot be better any more are left."""
        layer, wishes = self.layer, self.wishes
        tried: list[Tried] = []
        for config in self._affordable_scans():
            if not self.sample.real and self._unsure(config):
                continue
            least = min((plan.work for plan in tried if plan.candidates is not None), default=None)
            if least is not None and self._usual_work(config, wishes.least) >= least:
                continue
            tried.append(self._tried(config))
            layer.beat()
        return tried

    def _unsure(self, config: HashConfig) -> bool:
        """Return whether queries unlike the stand-ins could make much of this config useless: one without balance."""
        return config.balance == "none" and self.layer.features <= MAX_BALANCED_FEATURES

    @cached_property
    def _few(self) -> Trial:
        """A few rows, on which scans and tables are tried."""
        return trial(self.layer.rows, self.layer.bias, self.wanted, seed=0)

    def _tried(self, config: HashConfig) -> Tried:
        places = self._few.ranks(
            config, self._balance(config), self.sample.choose, self.wishes.most, self.layer.threads
        )
        # Where there will be cells, half of what may be missed is left to them. What stand-ins choose gets room later.
        parted = self._parted(config).cells > 0
        needed = (1 + self.needed) / 2 if parted and self.sample.real else self.needed
        candidates = fewest_candidates(places, needed, self.wishes.least, self.wishes.most)
        work = self._usual_work(config, candidates or self.wishes.most)
        return Tried(config, candidates, share_within(places, self.wishes.most), work)

    def _parted(self, config: HashConfig) -> HashConfig:
        """Return the scan with cells, where it gets any.

        A stand-in lies near a row, and so near the centre of one cell; real queries may lie near none of them. By
        stand-ins a scan is parted only where one of all classes takes too long.
        """
        if not self.sample.real and self.layer.classes <= FLAT_SCAN_CLASSES:
            return config
        return plans.with_cells(config, self.layer.classes)

    def _usual_work(self, config: HashConfig, candidates: int) -> int:
        """Return the work of a scan of the usual share of cells, where there will be cells."""
        parted = self._parted(config)
        if parted.cells:
            share = plans.usual_share(self.wishes.target)
            parted = plans.scanning(parted, candidates, max(1, round(parted.cells * share)))
        return self._work(parted, candidates)

    def _work(self, config: HashConfig, candidates: int, scanned: float | None = None) -> int:
        layer = self.layer
        return prices.work(config, layer.classes, layer.features, candidates, self.wishes.optimize, scanned)

    def _settled(self, config: HashConfig) -> Settled:
        """Return an index of this scan over all rows, with cells if those find enough."""
        layer = self.layer
        parted = self._parted(config)
        memory = self.wishes.memory
        if parted.cells and (memory is None or self._bytes(parted) <= memory):
            state = built(parted, layer, self._balance(parted))
            best = self._best_cells(state)
            if best is not None:
                work, state.config = best
                return Settled(state, self.needed, work)
        state = built(config, layer, self._balance(config))
        places, _ = self._places(state, search_sizes(config, layer.classes, self.wishes.most))
        candidates = fewest_candidates(places, self.needed, self.wishes.least, self.wishes.most)
        state.config = config.with_(candidates=candidates or self.wishes.most)
        share, work = share_within(places, state.config.candidates), self._work(config, state.config.candidates)
        return Settled(state, share, work)

    def _best_cells(self, state: IndexState) -> tuple[int, HashConfig] | None:
        """Return with how many cells and candidates the target takes the least work, and that; None if none does."""
        config, wishes = state.config, self.wishes
        best: tuple[int, HashConfig] | None = None
        for share in CELL_SHARES:
            cells = max(1, round(config.cells * share))
            sizes = SearchSizes(wishes.most, wishes.most, 1, cells)
            places, scanned = self._places(state, sizes)
            if (
                best is not None
                and self._work(plans.scanning(config, wishes.least, cells), wishes.least, scanned) >= best[0]
            ):
                break
            candidates = fewest_candidates(places, self.needed, wishes.least, wishes.most)
            if candidates is not None:
                found = plans.scanning(config, candidates, cells)
                work = self._work(found, candidates, scanned)
                if best is None or work <= best[0]:
                    best = work, found
        return best

    def _places(self, state: IndexState, sizes: SearchSizes) -> tuple[Ranks, float]:
        return ranks(state, self.sample.choose, self.wanted, sizes, self.layer.threads)

    def _or_tables(self, settled: Settled) -> IndexState:
        """Return an index with tables instead where those find enough with less work: among very many classes."""
        layer, wishes = self.layer, self.wishes
        state, chosen = settled.state, settled.work
        for config in plans.tables(layer.classes, layer.features):
            if wishes.memory is not None and self._bytes(config) > wishes.memory:
                continue
            if self._work(config, wishes.least) >= chosen or not self._promising(config):
                continue
            rival = built(config, layer, self._balance(config))
            for candidates in [c for c in plans.LADDER if c >= wishes.least]:
                if self._work(config, candidates) >= chosen:
                    break
                places, _ = self._places(rival, search_sizes(config, layer.classes, candidates))
                if share_within(places, candidates) >= self.needed:
                    rival.config = config.with_(candidates=candidates)
                    chosen, state = self._work(config, candidates), rival
                    break
        return state

    def _promising(self, config: HashConfig) -> bool:
        """Return whether tables find enough among a few rows: among all of them they find no more."""
        unweighted = replace(self._few, weights=np.ones(len(self._few.rows)))
        places = unweighted.ranks(config, None, self.sample.choose, self.wishes.most, self.layer.threads)
        return share_within(places, self.wishes.most) >= self.needed


def _merit(plan: Tried) -> tuple[bool, float, int]:
    """Order plans: those that reach the target by work, then those that find the most."""
    if plan.candidates is not None:
        return False, 0.0, plan.work
    return True, -round(plan.share, 3), plan.work
