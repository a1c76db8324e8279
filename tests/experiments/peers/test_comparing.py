"""The walk over contestants: one record per peer and setting, missing libraries by name, resumable."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from layer_cases import quick_run, small_layer

from experiments.frame.page import Text
from experiments.peers import Contestant
from experiments.peers.comparing import QUICK_SETTINGS, compare_peers, setting_in_words, settings_left, spread
from experiments.peers.exact import FastestExact, TorchSoftmax
from experiments.peers.faiss_peers import FaissFlatPQ, FaissHNSW, FaissIVFPQ
from experiments.peers.figure import best_settings, draw_peers
from experiments.peers.hnswlib_peer import Hnswlib
from experiments.peers.manyclass_peer import Manyclass
from experiments.peers.peer import Floats
from experiments.peers.reading import WINNER, absent_peers, peers_of, quickest, updates_of
from experiments.peers.scann_peer import Scann

pytestmark = pytest.mark.usefixtures("thread_counts")

FIELDS = {
    "queries", "accuracy", "exact_accuracy", "accuracy_kept", "agreement", "recall_at_10", "us_batch1", "us_batch64",
    "us_batch1000", "batch_queries", "batch64_queries", "build_seconds", "bytes_per_class", "row_bytes", "nothing_lost",
}  # fmt: skip


class NotInstalled(TorchSoftmax):
    """A peer whose library does not exist."""

    name = "not installed"
    install = "pip install not-installed"

    def build(self, rows: Floats, bias: Floats | None) -> None:
        import a_library_that_does_not_exist  # noqa: F401


def test_every_setting_is_recorded_absent_libraries_too_and_a_second_run_adds_nothing(tmp_path: Path) -> None:
    run, layer = quick_run(tmp_path), small_layer()
    contestants = (partial(Manyclass, pipeline="paper"), TorchSoftmax, FastestExact, NotInstalled)
    compare_peers(run, "here", layer, contestants, batches=(64, 1000), updates=True)
    measured = run.records.select(stage="here", kind="result")
    assert all(record.keys() >= FIELDS for record in measured)
    exact = [record for record in measured if not record["peer"].startswith("manyclass")]
    assert len(exact) == 5
    assert all(record["accuracy_kept"] == record["agreement"] == 1 for record in exact)
    assert all(record["batch_queries"] == 90 for record in measured)
    absent = run.records.select(stage="here", kind="missing")
    assert [record["install"] for record in absent] == ["pip install not-installed"]
    assert "a_library_that_does_not_exist" in absent[0]["reason"]
    assert updates_of(run.records, "here").keys() == {"manyclass paper", "torch softmax", "fastest exact"}
    assert all(spent is not None and spent > 0 for spent in updates_of(run.records, "here").values())

    before = run.records.path.read_bytes()
    compare_peers(quick_run(tmp_path), "here", layer, contestants, batches=(64, 1000), updates=True)
    assert run.records.path.read_bytes() == before
    assert [remark for remark in absent_peers(run.records, "here") if isinstance(remark, Text)]
    assert not absent_peers(run.records, "elsewhere")


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    run, layer = quick_run(tmp_path), small_layer()
    compare_peers(run, "here", layer, (FastestExact,))
    lines = run.records.path.read_bytes().splitlines(keepends=True)
    run.records.path.write_bytes(b"".join(lines[:2]))
    compare_peers(quick_run(tmp_path), "here", layer, (FastestExact,), updates=True)
    records = quick_run(tmp_path).records.all()
    assert [record.get("setting") for record in records] == [*FastestExact(300, 32).settings(), None]
    assert records[-1]["kind"] == "update"
    assert run.records.path.read_bytes().startswith(b"".join(lines[:2]))


def test_rows_are_put_back_after_an_update(tmp_path: Path) -> None:
    run, layer = quick_run(tmp_path), small_layer()
    before = layer.rows.copy()
    compare_peers(run, "here", layer, (partial(Manyclass, pipeline="scan"),), updates=True)
    np.testing.assert_array_equal(layer.rows, before)


def test_settings_slower_than_one_that_loses_nothing_are_left_out(tmp_path: Path) -> None:
    run = quick_run(tmp_path, quick=False)
    peer = FaissIVFPQ(300, 32, most_probed=1.0)
    recorded = {"stage": "here", "kind": "result", "peer": peer.name}
    run.records.write(**recorded, setting={"probes": 8, "refine": 4}, nothing_lost=True)
    run.records.write(**recorded, setting={"probes": 2, "refine": 2}, nothing_lost=False)
    left = settings_left(run, "here", peer)
    assert {"probes": 16, "refine": 2} in left
    assert {"probes": 4, "refine": 8} in left
    assert {"probes": 2, "refine": 2} not in left
    assert not [setting for setting in left if setting["probes"] >= 8 and setting["refine"] >= 4]
    assert len(settings_left(run, "elsewhere", peer)) == len(peer.settings())
    assert settings_left(run, "here", FastestExact(300, 32)) == FastestExact(300, 32).settings()


def test_a_quick_run_measures_few_settings_from_the_first_to_the_last(tmp_path: Path) -> None:
    every = FaissHNSW(300, 32).settings()
    left = settings_left(quick_run(tmp_path), "here", FaissHNSW(300, 32))
    assert len(left) == QUICK_SETTINGS < len(every)
    assert (left[0], left[-1]) == (every[0], every[-1])
    assert spread(every[:2], 4) == every[:2]


@pytest.mark.parametrize(
    ("library", "contestant"),
    [
        ("faiss", FaissHNSW),
        ("faiss", partial(FaissIVFPQ, dims_per_code=4, most_probed=1.0)),
        ("faiss", FaissFlatPQ),
        ("hnswlib", Hnswlib),
        ("scann", partial(Scann, to_all_leaves=True)),
    ],
)
def test_every_library_reaches_the_exact_answer_at_some_setting(
    library: str, contestant: Contestant, tmp_path: Path
) -> None:
    pytest.importorskip(library, reason=contestant(300, 32, 1).install)
    run, layer = quick_run(tmp_path), small_layer()
    compare_peers(run, "here", layer, (contestant,))
    assert max(record["accuracy_kept"] for record in run.records.select(stage="here", kind="result")) >= 0.95


def test_reading_a_comparison_and_its_figure(tmp_path: Path) -> None:
    records = quick_run(tmp_path).records
    for candidates, kept, spent in (
        (10, 0.7, 5.0),
        (20, 0.97, 20.0),
        (20, 0.97, 10.0),
        (30, 0.96, 30.0),
        (50, 1.0, 40),
    ):
        found = {"accuracy_kept": kept, "agreement": kept - 0.1, "us_batch1": spent, "us_batch1000": spent / 2}
        records.write(stage="here", kind="result", peer="ours", setting={"candidates": candidates}, **found)
    settings = peers_of(records, "here")["ours"]
    assert [found["us_batch1"] for found in settings] == [
        5,
        10,
        30,
        40,
    ]  # what was measured twice counts as it was last
    assert quickest(settings, "us_batch1", 0.95)["us_batch1"] == 10
    assert quickest(settings, "us_batch1", 0.95, WINNER) is None
    assert [found["us_batch1"] for found in best_settings(settings, "us_batch1", "accuracy_kept")] == [10, 40]
    figure = draw_peers({"ours": settings}, tmp_path, "peers", {"us_batch1": "one at a time"})
    assert figure.svg.exists()
    assert setting_in_words({"probes": 8, "refine": 4}) == "probes 8, refine 4"
