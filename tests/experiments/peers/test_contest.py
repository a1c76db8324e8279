"""A contest: settings are chosen on one half of the queries, judged on the other, in bounded time, resumably."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from layer_cases import quick_run, small_layer

from experiments.peers.choosing import Tried, chosen, try_settings, worth_judging
from experiments.peers.contest import hold_contest
from experiments.peers.entries import ENTRIES, EXACT, OURS, TARGETS, Entry
from experiments.peers.exact import FastestExact, TorchSoftmax
from experiments.peers.faiss_peers import FaissIVFPQ
from experiments.peers.floor import Rates, distinct_rows, measured_rates
from experiments.peers.manyclass_peer import Manyclass, SelfConfigured
from experiments.peers.peer import Floats, Ids, Setting
from experiments.peers.timing import timed_runs
from experiments.peers.verdicts import best_peer, judged_of, remarks, standings

pytestmark = pytest.mark.usefixtures("thread_counts")

FIELDS = {
    "build", "setting", "calibration", "queries", "agreement", "accuracy_kept", "recall_at_10", "us_single", "us_batch",
    "spread_single", "spread_batch", "build_seconds", "bytes_per_class", "sample",
}  # fmt: skip


class NotInstalled(TorchSoftmax):
    """A peer whose library does not exist."""

    install = "pip install not-installed"

    def build(self, rows: Floats, bias: Floats | None) -> None:
        import a_library_that_does_not_exist  # noqa: F401


class Watched(FastestExact):
    """An exact product that remembers what it was given and asked."""

    takes_queries = True
    judged_queries = None
    seen: list[Floats]

    def settings(self) -> list[Setting]:
        return [{"product": "torch x@W.T"}]

    def search(self, queries: Floats, k: int, setting: Setting, batch_mode: bool) -> Ids:
        type(self).seen.append(queries)
        return super().search(queries, k, setting, batch_mode)


SCAN = partial(Manyclass, pipeline="scan")
SMALL = (
    Entry(OURS, {"target 0.9": partial(SelfConfigured, target=0.9), "scan": SCAN}),
    Entry("not installed", {"any": NotInstalled}),
    Entry(EXACT, {"": FastestExact}),
)


def test_every_entry_is_judged_or_missing_and_a_second_run_adds_nothing(tmp_path: Path) -> None:
    run, layer = quick_run(tmp_path), small_layer(queries=160)
    hold_contest(run, "here", layer, SMALL, seconds=60)
    judged = judged_of(run.records, "here")
    assert judged.keys() == {OURS, EXACT}
    assert all(one.keys() >= FIELDS and one["queries"] == 80 for found in judged.values() for one in found)
    assert all(one["floor_single"] > 0 < one["floor_batch"] for one in judged[OURS])
    assert {one["build"] for one in judged[OURS]} == {"target 0.9", "scan"}
    assert {one["sample"] for one in judged[OURS]} == {80, 0}
    closed = run.records.select(stage="here", kind="entry")
    assert [(one["builds"], one["offered"]) for one in closed] == [(2, 2), (1, 1), (1, 1)]
    assert "not installed was not there" in remarks(run.records, "here")[0].text
    for target in TARGETS:
        found = standings(run.records, "here", target, "single")
        assert list(found) == sorted(found, key=lambda entry: found[entry]["us_single"])
        assert best_peer(found) is None
    before = run.records.path.read_bytes()
    hold_contest(quick_run(tmp_path), "here", layer, SMALL, seconds=60)
    assert run.records.path.read_bytes() == before


def test_what_is_chosen_by_is_not_what_is_judged(tmp_path: Path) -> None:
    layer = small_layer(queries=160)
    Watched.seen = []
    hold_contest(quick_run(tmp_path), "here", layer, [Entry("watched", {"": Watched})], seconds=60)
    halves = layer.halves()
    np.testing.assert_array_equal(Watched.seen[0], halves.calibration.queries)
    judged = next(place for place, asked in enumerate(Watched.seen) if np.array_equal(asked, halves.judging.queries))
    own = {query.tobytes() for query in halves.calibration.queries}
    assert all(query.tobytes() in own for asked in Watched.seen[:judged] for query in asked)
    assert not any(query.tobytes() in own for asked in Watched.seen[judged:] for query in asked)


def test_a_killed_contest_goes_on_with_the_build_it_was_at(tmp_path: Path) -> None:
    run, layer = quick_run(tmp_path), small_layer(queries=160)
    hold_contest(run, "here", layer, SMALL[:1], seconds=60)
    lines = run.records.path.read_bytes().splitlines(keepends=True)
    first = next(place for place, line in enumerate(lines) if b'"tried"' in line)
    run.records.path.write_bytes(b"".join(lines[: first + 1]))
    hold_contest(quick_run(tmp_path), "here", layer, SMALL[:1], seconds=60)
    tried = quick_run(tmp_path).records.select(kind="tried")
    assert [one["build"] for one in tried] == ["target 0.9", "scan"]


def test_when_time_is_up_no_further_build_is_begun_and_it_is_told(tmp_path: Path) -> None:
    run = quick_run(tmp_path)
    hold_contest(run, "here", small_layer(queries=160), [Entry(OURS, {"a": SCAN, "b": SCAN})], seconds=0)
    assert {one["build"] for one in run.records.select(kind="judged")} == {"a"}
    assert any("manyclass (1 of 2)" in remark.text for remark in remarks(run.records, "here"))


def test_who_would_take_too_long_is_left_out(tmp_path: Path) -> None:
    run = quick_run(tmp_path)
    hold_contest(run, "here", small_layer(queries=160), [Entry("slow", {"": SCAN}, most_classes=100)], seconds=60)
    assert run.records.all() == []


def test_settings_larger_than_one_that_agrees_enough_are_not_tried() -> None:
    pytest.importorskip("faiss")
    peer, layer = FaissIVFPQ(300, 32, most_probed=1.0, dims_per_code=2), small_layer(queries=160)
    peer.build(layer.rows, layer.bias)
    tried = try_settings(peer, layer, seconds=60, quick=False)
    enough = [some for some in tried if some.agreement >= max(TARGETS)]
    assert enough
    assert len(tried) < len(peer.settings())
    last = enough[0].setting
    after = [some.setting for some in tried[tried.index(enough[0]) + 1 :]]
    assert not [one for one in after if one["probes"] >= last["probes"] and one["refine"] >= last["refine"]]


def test_the_quickest_that_agrees_enough_is_chosen_for_each_way_of_asking() -> None:
    tried = [Tried({"a": 1}, 0.5, 1, 1), Tried({"a": 2}, 0.95, 9, 3), Tried({"a": 3}, 0.98, 7, 5)]
    assert chosen(tried, 0.9, "single") is tried[2]
    assert chosen(tried, 0.9, "batch") is tried[1]
    assert chosen(tried, 0.99, "single") is None
    assert worth_judging(tried) == [tried[2], tried[1]]
    assert worth_judging(tried[:1]) == tried[:1]  # the closest, where nothing reaches anything


def test_runs_ask_every_query_before_any_is_asked_again() -> None:
    queries = np.arange(12, dtype=np.float32)[:, None]
    asked: list[float] = []

    def search(batch: Floats) -> None:
        asked.extend(batch[:, 0])

    runs = timed_runs(search, queries, batch=4, runs=3, seconds=0)
    assert asked == [11, *range(12)]  # one to warm up, three runs
    assert len(runs.microseconds) == 3
    assert runs.spread >= 0


def test_the_floor_is_the_larger_of_reading_and_multiplying() -> None:
    rates = Rates(gathered=4e9, arithmetic=2e9)
    assert rates.seconds(distinct=100, scored=1, features=10) == pytest.approx(4 * 10 * 100 / 4e9)
    assert rates.seconds(distinct=1, scored=1000, features=10) == pytest.approx(2 * 10 * 1000 / 2e9)
    assert distinct_rows(np.array([[3, 1, -1], [3, 7, -1]])) == 3
    measured = measured_rates(small_layer(queries=160).rows, threads=1, rounds=1, pause=0)
    assert measured.gathered > 0 < measured.arithmetic


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_build_of_every_entry_is_a_peer_of_its_own(entry: Entry) -> None:
    peers = [build(2000, 64, 1) for build in entry.builds.values()]
    assert all(peer.settings() for peer in peers)
    assert entry.enters(2000)
