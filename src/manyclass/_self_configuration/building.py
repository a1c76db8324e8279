"""How an index is built that configures itself: with a sample of queries, with stand-ins for them, or as told.

Quality is measured and work is counted, so that the same rows and queries give the same index everywhere. Times are
taken too, for the report, and decide nothing.
"""

import time
from dataclasses import dataclass, replace

import numpy as np

from manyclass._balance import find_balance
from manyclass._index_state import IndexState
from manyclass._self_configuration.chooser import Chooser, Layer, built
from manyclass._self_configuration.judge import judged
from manyclass._self_configuration.plans import exhaustive_suffices
from manyclass._self_configuration.query_sample import QuerySample, parted, stand_ins
from manyclass._self_configuration.wishes import Wishes
from manyclass._validation import Floats, Ids
from manyclass.config import HashConfig
from manyclass.quality import exact_best
from manyclass.report import Measured


@dataclass(frozen=True)
class Configured:
    """An index that is built, what was measured of it, and how long each part took."""

    state: IndexState
    measured: Measured
    seconds: dict[str, float]


def build_as_told(config: HashConfig, layer: Layer, queries: Floats | None) -> Configured:
    """Return an index of a given config, unmeasured; its balance is fitted to the queries, or to stand-ins."""
    start = time.perf_counter()
    balance, source = None, "none"
    if config.balance != "none":
        source = "real"
        if queries is None:
            built(HashConfig.exhaustive(), replace(layer, progress=None), None)  # refuses rows that are not numbers
            queries, source = stand_ins(layer.rows, seed=0).fit, "stand-ins"
        balance = find_balance(layer.rows, queries, config, real=source == "real")
    state = built(config, layer, balance)
    fitted = 0 if balance is None or queries is None else len(queries)
    measured = Measured(queries=source, given=fitted if source == "real" else 0, fitted=fitted, classes=layer.classes)
    return Configured(state, measured, {"build": time.perf_counter() - start})


def build_and_choose(layer: Layer, queries: Floats | None, wishes: Wishes) -> Configured:
    """Return an index of the config that suits layer and queries best, judged on queries that had no say in it."""
    suffices = exhaustive_suffices(layer.classes)
    # In any case, because it refuses rows that are not numbers.
    told = build_as_told(HashConfig.exhaustive(), layer if suffices else replace(layer, progress=None), None)
    if suffices:
        return replace(told, measured=replace(told.measured, chosen=True))
    wishes = replace(wishes, k=min(wishes.k, layer.classes))
    start = time.perf_counter()
    sample = stand_ins(layer.rows, seed=0) if queries is None else parted(queries, layer.classes, seed=0)
    choose_best, judge_best = _exact(layer, sample, wishes.k)
    state = Chooser(layer, sample, choose_best, wishes).choose()
    chosen = time.perf_counter()
    measured = measure(state, sample, judge_best, wishes, layer.threads)
    seconds = {"choose and build": chosen - start, "judge": time.perf_counter() - chosen}
    return Configured(state, replace(measured, chosen=True), seconds)


def measure(state: IndexState, sample: QuerySample, best: Ids, wishes: Wishes, threads: int) -> Measured:
    """Return what the index keeps of the exact best classes (judged queries, k)."""
    expected, drift = judged(state, sample.judge, best, wishes.metric, threads)
    return Measured(
        queries="real" if sample.real else "stand-ins",
        given=sample.given,
        fitted=len(sample.fit) if state.balance is not None else 0,
        chosen_on=len(sample.choose),
        judged_on=len(sample.judge),
        classes=state.classes,
        target=wishes.target,
        metric=wishes.metric,
        k=wishes.k,
        expected=expected,
        drift=drift,
    )


def _exact(layer: Layer, sample: QuerySample, k: int) -> tuple[Ids, Ids]:
    """Return the exact best classes of the queries to choose on and of those to judge on, (count, k) each."""
    best = exact_best(layer.rows, layer.bias, np.concatenate([sample.choose, sample.judge]), k)
    layer.beat()
    return best[: len(sample.choose)], best[len(sample.choose) :]


def adapted(old: IndexState, queries: Floats, before: Measured, threads: int) -> Configured:
    """Return an index like the old one, fitted to half of these queries and judged on the other."""
    start = time.perf_counter()
    core, removed = old.core, old.core.removed()
    layer = Layer(old.rows[: old.classes], core.bias(), threads)
    sample = parted(queries, layer.classes, seed=0)
    sample = replace(sample, fit=np.concatenate([sample.fit, sample.choose]), choose=sample.choose[:0])
    state = old
    if old.config.balance != "none":
        state = built(old.config, layer, find_balance(layer.rows, sample.fit, old.config))
        if len(removed):
            state.core.remove(np.flatnonzero(removed).astype(np.int64))
            state.settle()
    ready = time.perf_counter()
    wishes = Wishes(before.target, before.metric, min(before.k, max(1, layer.classes)))
    hidden = removed != 0 if len(removed) else False
    bias = np.where(hidden, -np.inf, core.bias()).astype(np.float32)
    best = exact_best(layer.rows, bias, sample.judge, wishes.k)
    measured = replace(measure(state, sample, best, wishes, threads), chosen=before.chosen)
    return Configured(state, measured, {"build": ready - start, "judge": time.perf_counter() - ready})
