"""Timing and judging: exact is worth 1, slow peers are asked less."""

import time

import numpy as np
import pytest

from experiments.peers.exact import FastestExact, TorchSoftmax, exact_seconds, speedups
from experiments.peers.judging import accuracy_kept, judge
from experiments.peers.measuring import fitting_queries, measure_setting, microseconds_batch
from experiments.peers.peer import Floats, Ids, Peer, Setting
from experiments.peers.problem import Problem
from experiments.peers.timing import best_seconds, time_call

pytestmark = pytest.mark.usefixtures("thread_counts")


def layer() -> Problem:
    random = np.random.default_rng(2)
    rows, queries = (random.normal(size=(count, 8)).astype(np.float32) for count in (50, 30))
    bias = random.normal(size=50).astype(np.float32)
    top10 = np.argsort(-(queries @ rows.T + bias), axis=1)[:, :10]
    labels = np.where(np.arange(30) % 3 == 0, top10[:, 1], top10[:, 0])
    return Problem(rows, bias, queries, labels)


class Sleeper(Peer):
    """A peer that needs so many seconds per query, and more of them in large batches."""

    name = "sleeper"

    def __init__(self, seconds: float, slow_from: int = 10**9) -> None:
        super().__init__(1, 1, 1)
        self.seconds, self.slow_from = seconds, slow_from
        self.largest = 0

    def build(self, rows: Floats, bias: Floats | None) -> None: ...

    def settings(self) -> list[Setting]:
        return [{}]

    def search(self, queries: Floats, k: int, setting: Setting, batch_mode: bool) -> Ids:
        self.largest = max(self.largest, len(queries))
        time.sleep(self.seconds * len(queries) * (20 if len(queries) >= self.slow_from else 1))
        return np.zeros((len(queries), k), np.int64)

    def bytes_per_class(self) -> float:
        return 1.0


@pytest.mark.parametrize("kind", [TorchSoftmax, FastestExact])
def test_exact_peers_keep_all_of_the_accuracy(kind: type[Peer]) -> None:
    problem = layer()
    peer = kind(50, 8, 1)
    peer.build(problem.rows, problem.bias)
    for setting in peer.settings():
        measured = measure_setting(peer, problem, setting, batches=(8, 1000), min_seconds=0)
        assert measured["accuracy_kept"] == measured["agreement"] == measured["recall_at_10"] == 1
        assert 0 < problem.exact_accuracy < 1
        assert measured["batch_queries"] == 30
        assert measured["batch8_queries"] == 8
        assert min(measured["us_batch1"], measured["us_batch8"], measured["us_batch1000"]) > 0


def test_a_tie_is_as_good_and_nothing_found_is_not() -> None:
    problem = layer()
    problem.rows[4], problem.bias[4] = problem.rows[9], problem.bias[9]
    fours, nines, none = (np.full(30, value) for value in (4, 9, -1))
    assert problem.same_logit(fours, nines).all()
    assert not problem.same_logit(none, np.full(30, 49)).any()
    assert judge(np.full((30, 10), -1), problem)["accuracy_kept"] == 0
    assert accuracy_kept(0.5, 0.0) is None


def test_slow_peers_get_as_many_queries_as_fit() -> None:
    queries = np.zeros((1000, 1), np.float32)
    quick = Sleeper(1e-6)
    assert fitting_queries(quick, queries, {}, most=1000, seconds=10) == 1000
    assert quick.largest <= 16  # one, unless the machine is busy
    slow = Sleeper(1e-3)
    assert 1 <= fitting_queries(slow, queries, {}, most=1000, seconds=0.05) <= 50  # fewer on a busy machine
    assert fitting_queries(Sleeper(5e-3), queries, {}, most=1000, seconds=0.001) == 1
    worse_in_batches = Sleeper(2e-3, slow_from=16)
    assert fitting_queries(worse_in_batches, queries, {}, most=1000, seconds=1) <= 40
    assert worse_in_batches.largest <= 16


def test_batches_are_of_the_size_asked_for() -> None:
    peer = Sleeper(1e-5)
    assert microseconds_batch(peer, np.zeros((100, 1), np.float32), {}, 30, min_seconds=0) > 10
    assert peer.largest == 30


def test_timers_return_seconds() -> None:
    assert time_call(lambda: time.sleep(0.002), repeats=2, min_seconds=0) >= 0.002
    best = best_seconds({"short": lambda: time.sleep(0.001), "long": lambda: time.sleep(0.004)}, rounds=1, pause=0)
    assert 0.001 <= best["short"] < best["long"]


def test_the_fastest_product_is_what_speed_is_compared_with() -> None:
    problem = layer()
    seconds = exact_seconds(problem.rows, problem.bias, problem.queries, 4, threads=1, rounds=1, pause=0)
    assert len(seconds) == 5
    assert min(seconds.values()) > 0
    compared = speedups(0.5, {"torch x@W.T": 2.0, "numpy W@x.T": 1.0, "torch softmax": 0.75})
    assert compared["exact_product"] == "numpy W@x.T"
    assert (compared["exact_ms"], compared["softmax_ms"], compared["ours_ms"]) == (1000, 750, 500)
    assert (compared["speedup"], compared["speedup_torch"]) == (2, 1.5)
