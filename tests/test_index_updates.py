"""Updates: a refreshed index is the index of the new rows, at any moment, beside any number of searches.

Long because every kind of change is tested alone and beside searches.
"""

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from cases import (
    ABSENT,
    PIPELINES,
    Array,
    assert_same,
    backend,
    dense_logits,
    exported_codes,
    integers,
    problem,
    updates,
)

from manyclass import ClassIndex, HashConfig
from manyclass._validation import check_biases, check_excluded, check_ids

# What a sketch or a balance is fitted to are the rows of the first build; test_magnitudes.py compares those.
UNFITTED = {name: config for name, config in PIPELINES.items() if config.balance == "none"}
WITHOUT_SKETCH = [name for name, config in UNFITTED.items() if not (config.scan_bits or config.sketch_bits)]
WITH_TABLES = [name for name, config in UNFITTED.items() if config.bands]
# Balanced, a row is not its own best query: rows and queries are mapped apart, and a few bands may miss it.
OWN_QUERY = [name for name in PIPELINES if name != "balanced tables"]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# Refresh


@pytest.mark.parametrize("pipeline", WITHOUT_SKETCH)
@pytest.mark.parametrize("in_place", [False, True], ids=["rows given", "rows changed in place"])
@pytest.mark.parametrize("ids", [slice(20, 60), slice(None), slice(70, 3, -3), [5], [69, 0, 33, 7]], ids=str)
def test_a_refreshed_index_is_the_index_of_the_new_rows(pipeline: str, in_place: bool, ids: slice | list[int]) -> None:
    rows, bias, queries = problem(70, 40)
    config = PIPELINES[pipeline].with_(always=0)  # always-candidates and vote weights are chosen when building
    changed, new_bias = rows.copy(), bias.copy()
    changed[ids] = normal(*rows[ids].shape, seed=1)
    new_bias[ids] += 1
    index = ClassIndex.build(rows, bias=bias, config=config)
    if in_place:
        rows[ids] = changed[ids]
        index.refresh(ids, bias=new_bias[ids])
    else:
        index.refresh(ids, rows=changed[ids], bias=new_bias[ids])
    fresh = ClassIndex.build(changed, bias=new_bias, config=config)
    index.state.set_vote_weights(fresh.state.vote_weights)
    assert_same(integers(index, queries), integers(fresh, queries))
    np.testing.assert_array_equal(index.search(queries).logits, fresh.search(queries).logits)
    assert index.rows is rows


@pytest.mark.parametrize("pipeline", WITH_TABLES)
def test_tables_after_many_changes_are_those_of_a_fresh_build(pipeline: str) -> None:
    rows, bias, queries = problem(333, 40)
    index = ClassIndex.build(rows, bias=bias, config=PIPELINES[pipeline])
    for change in updates(40, 333).values():
        change(index)
    fresh = ClassIndex.build(index.rows.copy(), config=PIPELINES[pipeline])
    fresh.remove([0, 335])
    np.testing.assert_array_equal(exported_codes(index), exported_codes(fresh))
    for query in queries:
        np.testing.assert_array_equal(index.votes(query), fresh.votes(query))


def test_a_refresh_of_unchanged_rows_changes_nothing() -> None:
    for config in PIPELINES.values():
        rows, bias, queries = problem(70, 40)
        index = ClassIndex.build(rows, bias=bias, config=config)
        before = integers(index, queries)
        index.refresh(slice(None))
        index.refresh([3, 3, 3])
        assert_same(before, integers(index, queries))


@pytest.mark.parametrize("pipeline", OWN_QUERY)
def test_a_class_is_found_through_its_new_row_right_after_the_refresh(pipeline: str) -> None:
    config = PIPELINES[pipeline]
    index = ClassIndex.build(normal(300, 40), config=config)
    wide = config.cell_reach if config.cells else 20  # of cells, those that are not scanned hide their classes
    for round_ in range(30):
        moved = 3 * normal(1, 40, seed=100 + round_)
        index.refresh([round_], rows=moved)
        assert index.search(moved[0], 1, candidates=wide).classes[0] == round_
        index.refresh([round_], rows=-moved)
        assert round_ not in index.search(moved[0], 1, candidates=wide).classes


def test_a_bias_alone_can_be_refreshed() -> None:
    rows, bias, queries = problem(70, 40)
    for config in PIPELINES.values():
        index = ClassIndex.build(rows, bias=bias, config=config)
        index.refresh([4, 9], bias=[1.5, -2.5])
        expected = bias.copy()
        expected[[4, 9]] = 1.5, -2.5
        np.testing.assert_array_equal(index.state.core.bias(), expected)
        ids, logits = index.retrieve(queries, 70)
        exact = dense_logits(rows, expected, queries)
        for q in range(len(queries)):
            present = ids[q] >= 0
            np.testing.assert_allclose(logits[q, present], exact[q, ids[q, present]], rtol=1e-4, atol=1e-4)


# Append and remove


@pytest.mark.parametrize("pipeline", WITHOUT_SKETCH)
def test_appending_is_building_with_more_rows(pipeline: str) -> None:
    rows, bias, queries = problem(200, 40)
    config = PIPELINES[pipeline].with_(always=0)
    whole = ClassIndex.build(rows, bias=bias, config=config)
    for first in (0, 1, 150):
        index = ClassIndex.build(rows[:first], bias=bias[:first], config=config)
        for begin in range(first, 200, 37):
            added = index.append(rows[begin : begin + 37], bias=bias[begin : begin + 37])
            assert added == range(begin, min(200, begin + 37))
        index.state.set_vote_weights(whole.state.vote_weights)
        assert_same(integers(index, queries), integers(whole, queries))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_appended_classes_are_found_and_the_callers_rows_stay_his(pipeline: str) -> None:
    rows = normal(100, 40)
    kept, more = rows.copy(), 3 * normal(3, 40, seed=1)
    index = ClassIndex.build(rows, config=PIPELINES[pipeline], names=[str(i) for i in range(100)])
    assert index.append(more, names=["a", "b", "c"]) == range(100, 103)
    assert index.classes == 103
    assert index.names is not None
    assert index.names[99:] == ["99", "a", "b", "c"]
    np.testing.assert_array_equal(index.search(more, 1, candidates=30).classes[:, 0], [100, 101, 102])
    index.refresh([101], rows=-more[1:2])
    np.testing.assert_array_equal(rows, kept)
    np.testing.assert_array_equal(index.rows[101], -more[1])


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_removed_class_never_comes_back(pipeline: str, tmp_path: Path) -> None:
    rows, bias, queries = problem(70, 40)
    index = ClassIndex.build(rows, bias=bias, config=PIPELINES[pipeline])
    gone = np.unique(np.append(index.state.always[:3], np.arange(10, 40))).astype(np.int64)
    index.remove(gone)
    index.refresh(slice(None))
    index.refresh(gone[:3], rows=5 * queries[:3], bias=[100.0, 100.0, 100.0])
    index.append(rows[:4])
    index.save(tmp_path / "index.mc")
    for checked in (index, ClassIndex.load(tmp_path / "index.mc")):
        found, _ = checked.retrieve(queries, 74)
        assert not np.isin(found, gone).any()
        assert not np.isin(checked.search(queries, 10).classes, gone).any()
        if checked.config.bands:
            assert (exported_codes(checked)[gone] == ABSENT).all()


def test_all_classes_can_be_removed() -> None:
    rows, bias, queries = problem(70, 40)
    for config in PIPELINES.values():
        index = ClassIndex.build(rows, bias=bias, config=config)
        index.remove(slice(None))
        assert (index.search(queries, 3).classes == -1).all()
        index.append(rows[5:6])
        assert index.search(rows[5], 1).classes[0] == 70


def test_rebinding_looks_at_the_new_array() -> None:
    rows, bias, queries = problem(70, 40)
    index = ClassIndex.build(rows, bias=bias, config=HashConfig.exhaustive())
    moved = 2 * rows.astype(np.float64)
    index.rebind(moved)
    assert index.rows is moved
    np.testing.assert_allclose(index.retrieve(queries)[1], dense_logits(moved, bias, queries), rtol=1e-4, atol=1e-4)
    index.refresh([3], rows=queries[:1])
    np.testing.assert_array_equal(moved[3], queries[0])


# Memory


@pytest.mark.parametrize("pipeline", WITH_TABLES)
def test_tables_stay_small_over_many_refreshes(pipeline: str) -> None:
    rng = np.random.default_rng(0)
    index = ClassIndex.build(normal(2_000, 40), config=PIPELINES[pipeline])
    before = sum(index.memory_report().values())
    for _ in range(200):
        ids = rng.choice(2_000, size=rng.integers(1, 200), replace=False)
        index.refresh(ids, rows=rng.normal(size=(len(ids), 40)).astype(np.float32))
    assert sum(index.memory_report().values()) < 2 * before
    fresh = ClassIndex.build(index.rows, config=index.config)
    np.testing.assert_array_equal(exported_codes(index), exported_codes(fresh))
    query = normal(40, seed=1)
    np.testing.assert_array_equal(index.votes(query), fresh.votes(query))


def test_classes_crowding_into_one_bucket_and_leaving_it_are_all_kept() -> None:
    rows = normal(500, 32)
    index = ClassIndex.build(rows, config=HashConfig.paper(window=4, codes=10, bands=5))
    same = np.tile(normal(1, 32, seed=1), (500, 1))
    for _ in range(3):
        index.refresh(slice(None), rows=same)
        assert (index.votes(same[0]) == 5).all()
        index.refresh(slice(None), rows=normal(500, 32))
    fresh = ClassIndex.build(normal(500, 32), config=index.config)
    for query in normal(5, 32, seed=2):
        np.testing.assert_array_equal(index.votes(query), fresh.votes(query))


# Searching while another thread refreshes

SECONDS = 0.4
ENOUGH, PATIENCE = 5, 60  # calls of each kind; seconds more to wait for them


class Versions:
    """Two patterns per class; a row is value * pattern, so that a torn row shows in its logit."""

    values = (1.0, 2.0, 1.5)

    def __init__(self, classes: int, features: int) -> None:
        self.patterns = normal(2, classes, features)

    def rows(self, ids: Array, turn: int) -> Array:
        return np.float32(self.values[turn % 3]) * self.patterns[turn // 2 % 2, ids]

    def whole(self, query: Array, ids: Array, logits: Array) -> Array:
        """Return which logits belong to one version of their row."""
        products = self.patterns[:, ids] @ query
        versions = np.multiply.outer(np.float32(self.values), products)
        return (np.abs(versions - logits) < 1e-3).any((0, 1))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("pipeline", OWN_QUERY)
def test_searches_beside_a_refresh_see_each_row_whole_and_every_class(pipeline: str, threads: int) -> None:
    classes, features = 400, 40
    versions = Versions(classes, features)
    # All cells, and enough candidates that the shortest sketch finds every class in each state of the others.
    index = ClassIndex.build(versions.patterns[0].copy(), config=PIPELINES[pipeline].with_(breadth=6, cell_reach=120))
    failures: list[str] = []
    stop = time.monotonic() + SECONDS
    counts = [0, 0]

    def going() -> bool:
        """Tell whether to go on: for the time, and on a busy machine until there is enough to judge by."""
        now = time.monotonic()
        return not failures and (now < stop or (min(counts) <= ENOUGH and now < stop + PATIENCE))

    def search() -> None:
        rng = np.random.default_rng(threading.get_native_id())
        while going():
            wanted = rng.integers(classes, size=8)
            # Both patterns of a class in one block of queries: one of them must find it.
            queries = versions.patterns[:, wanted].transpose(1, 0, 2).reshape(16, features)
            ids, logits = index.retrieve(queries, 120, threads=threads)
            counts[0] += 1
            for q in range(16):
                present = ids[q] >= 0
                if not versions.whole(queries[q], ids[q, present], logits[q, present]).all():
                    failures.append(f"torn row among {ids[q, present]}")
            for at, wanted_id in enumerate(wanted):
                if wanted_id not in ids[2 * at : 2 * at + 2]:
                    failures.append(f"class {wanted_id} in neither its old nor its new bucket")

    def refresh() -> None:
        rng = np.random.default_rng(0)
        turn = 0
        while going():
            turn += 1
            ids = rng.choice(classes, size=int(rng.integers(1, 100)), replace=False)
            index.refresh(ids, rows=versions.rows(ids, turn), threads=threads)
            counts[1] += 1

    workers = [threading.Thread(target=target) for target in (search, search, refresh)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures[:3]
    assert min(counts) > ENOUGH, f"{counts[0]} searches beside {counts[1]} refreshes: too few to tell"


@pytest.mark.parametrize("pipeline", ["paper", "flat sketch", "probes and sketch", "exhaustive"])
def test_appends_and_removals_beside_searches_are_safe(pipeline: str) -> None:
    rows = normal(300, 40)
    index = ClassIndex.build(rows[:100], config=PIPELINES[pipeline])
    failures: list[BaseException] = []
    removed: list[int] = []
    done = threading.Event()

    def search() -> None:
        try:
            while not done.is_set():
                gone = list(removed)
                found = index.search(rows[:70], 3, candidates=50, threads=2)
                assert found.classes.max() < 300
                assert not np.isin(found.classes, gone).any()
                index.check(rows[:2])
        except BaseException as failure:
            failures.append(failure)

    workers = [threading.Thread(target=search) for _ in range(2)]
    for worker in workers:
        worker.start()
    for begin in range(100, 300, 10):
        index.append(rows[begin : begin + 10])
        index.remove([begin // 10])
        removed.append(begin // 10)
        time.sleep(0.002)
    done.set()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    assert index.classes == 300


@pytest.mark.parametrize("action", ["votes(rows[0])", "save(path)", "memory_report()", "check(rows[:2])"])
def test_whatever_reads_the_whole_index_is_safe_beside_appends(action: str, tmp_path: Path) -> None:
    """In a process of its own: what goes wrong here is a write past the end of an array."""
    program = f"""
import sys, threading
import numpy as np
import manyclass as mc

path = sys.argv[1]
rows = np.random.default_rng(0).normal(size=(2000, 40)).astype(np.float32)
for _ in range(3):
    index = mc.ClassIndex.build(rows[:100], config=mc.HashConfig.paper(codes=30, bands=10))
    done, failures = threading.Event(), []

    def read():
        try:
            while not done.is_set():
                index.{action}
        except Exception as failure:
            failures.append(failure)

    workers = [threading.Thread(target=read) for _ in range(2)]
    for worker in workers:
        worker.start()
    for begin in range(100, 2000, 10):
        index.append(rows[begin : begin + 10])
    done.set()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
"""
    command = [sys.executable, "-c", program, tmp_path / "index.mc"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_threads_that_refresh_different_classes_do_not_disturb_each_other() -> None:
    rows, new = normal(400, 40), normal(400, 40, seed=1)
    for config in PIPELINES.values():
        index = ClassIndex.build(rows.copy(), config=config)

        def refresh(part: int, index: ClassIndex = index) -> None:
            for begin in range(part, 400, 40):
                index.refresh(slice(begin, begin + 10), rows=new[begin : begin + 10])

        workers = [threading.Thread(target=refresh, args=(part,)) for part in (0, 10, 20, 30)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        np.testing.assert_array_equal(index.rows, new)
        if config.bands and config.balance == "none":
            np.testing.assert_array_equal(exported_codes(index), exported_codes(ClassIndex.build(new, config=config)))


def test_the_detector_notices_a_torn_row() -> None:
    versions = Versions(10, 8)
    query, torn = normal(8, seed=3), versions.patterns[0, 4].copy()
    torn[4:] *= 2
    whole = versions.whole(query, np.array([4, 4]), np.array([torn @ query, 2 * versions.patterns[1, 4] @ query]))
    assert whole.tolist() == [False, True]


def test_the_reference_can_be_updated_too() -> None:
    rows, bias, queries = problem(33, 40)
    with backend("reference"):
        index = ClassIndex.build(rows, bias=bias, config=PIPELINES["probes and sketch"])
    index.refresh([3], rows=3 * queries[:1])
    assert 3 in index.search(queries[0], 3).classes


# Limits


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_an_append_of_several_slices_is_many_appends(pipeline: str) -> None:
    rows, bias = normal(3_000, 24), normal(3_000, seed=1)
    config = PIPELINES[pipeline]
    one, many = (ClassIndex.build(rows[:100].copy(), bias=bias[:100], config=config) for _ in range(2))
    assert one.append(rows[100:], bias=bias[100:], threads=2) == range(100, 3_000)
    for begin in range(100, 3_000, 1_024):
        many.append(rows[begin : min(3_000, begin + 1_024)], bias=bias[begin : begin + 1_024], threads=1)
    assert_same(integers(one, rows[:9]), integers(many, rows[:9]))


def test_a_large_append_takes_little_memory_beside_what_it_adds() -> None:
    """300,000 encoded rows of the paper's 3000 codes would take 1.2 GB at once."""
    program = """
import resource
import numpy as np
import manyclass as mc

rows = np.random.default_rng(0).normal(size=(300_000, 16)).astype(np.float32)
index = mc.ClassIndex.build(rows[:1000], config=mc.HashConfig.flat_sketch(4096))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
index.append(rows)
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
print(grown, sum(index.memory_report().values()) * index.classes / 2**20)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    grown, needed = map(float, done.stdout.split())
    assert grown < 3.2 * needed  # an array that grows is there twice for a moment


def test_ids_are_checked_on_a_copy() -> None:
    """Another thread may change the caller's array at any moment after the check."""
    ids = np.arange(5)
    assert not np.shares_memory(check_ids("ids", ids, 10), ids)
    assert not np.shares_memory(check_excluded("exclude", ids[None], 10, 1, False), ids)
    bias = np.zeros(5, np.float32)
    assert not np.shares_memory(check_biases("bias", bias, 5), bias)
    index = ClassIndex.build(normal(100, 16), config=HashConfig.flat_sketch(32))
    stop = threading.Event()
    wild = np.zeros(50, np.int64)

    def change() -> None:
        while not stop.is_set():
            wild[:] = 2**40
            wild[:] = np.arange(50)

    worker = threading.Thread(target=change)
    worker.start()
    for _ in range(300):
        with contextlib.suppress(ValueError):
            index.state.core.refresh(wild, None, None, 1)  # past Python's copy: the core makes its own
    stop.set()
    worker.join()
    assert (index.search(normal(5, 16), 3).classes >= 0).all()
