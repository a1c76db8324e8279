"""Stage "peers": one record per peer and setting, missing libraries by name, resumable."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from layer_cases import quick_run, small_layer

from experiments.imagenet21k.layer import run_peers, tuned_config
from experiments.peers import Contestant
from experiments.peers.comparing import QUICK_SETTINGS, settings_left
from experiments.peers.exact import FastestExact, TorchSoftmax
from experiments.peers.faiss_peers import FaissFlatPQ, FaissHNSW, FaissIVFPQ
from experiments.peers.hnswlib_peer import Hnswlib
from experiments.peers.manyclass_peer import Manyclass
from experiments.peers.peer import Floats
from experiments.peers.scann_peer import Scann

pytestmark = pytest.mark.usefixtures("thread_counts")

FIELDS = {
    "accuracy", "accuracy_kept", "agreement", "us_batch1", "us_batch64", "us_batch1000", "batch_queries",
    "build_seconds", "bytes_per_class",
}  # fmt: skip


class NotInstalled(TorchSoftmax):
    """A peer whose library does not exist."""

    name = "not installed"
    install = "pip install not-installed"

    def build(self, rows: Floats, bias: Floats | None) -> None:
        import a_library_that_does_not_exist  # noqa: F401


def test_exact_peers_keep_everything_and_absent_ones_are_recorded(tmp_path: Path) -> None:
    run, layer = quick_run(tmp_path), small_layer()
    contestants = (partial(Manyclass, pipeline="paper"), TorchSoftmax, FastestExact, NotInstalled)
    run_peers(run, layer, contestants)
    measured = run.records.select(stage="peers", kind="result")
    assert all(record.keys() >= FIELDS for record in measured)
    exact = [record for record in measured if not record["peer"].startswith("manyclass")]
    assert len(exact) == 5
    assert all(record["accuracy_kept"] == record["agreement"] == 1 for record in exact)
    assert all(record["batch_queries"] == 90 for record in measured)
    absent = run.records.select(stage="peers", kind="missing")
    assert [record["install"] for record in absent] == ["pip install not-installed"]
    assert "a_library_that_does_not_exist" in absent[0]["reason"]

    before = run.records.path.read_bytes()
    run_peers(quick_run(tmp_path), layer, contestants)
    assert run.records.path.read_bytes() == before


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    run, layer = quick_run(tmp_path), small_layer()
    run_peers(run, layer, (FastestExact,))
    lines = run.records.path.read_bytes().splitlines(keepends=True)
    run.records.path.write_bytes(b"".join(lines[:3]))  # the tuning and two of four products
    run_peers(quick_run(tmp_path), layer, (FastestExact,))
    records = quick_run(tmp_path).records.all()
    assert [record.get("setting") for record in records[1:]] == FastestExact(300, 32).settings()
    assert run.records.path.read_bytes().startswith(b"".join(lines[:3]))


def test_settings_slower_than_one_that_loses_nothing_are_left_out(tmp_path: Path) -> None:
    run = quick_run(tmp_path, quick=False)
    peer = FaissIVFPQ(300, 32, most_probed=1.0)
    recorded = {"stage": "peers", "kind": "result", "peer": peer.name}
    run.records.write(**recorded, setting={"probes": 8, "refine": 4}, nothing_lost=True)
    run.records.write(**recorded, setting={"probes": 2, "refine": 2}, nothing_lost=False)
    left = settings_left(run, "peers", peer)
    assert {"probes": 16, "refine": 2} in left
    assert {"probes": 4, "refine": 8} in left
    assert {"probes": 2, "refine": 2} not in left
    assert not [s for s in left if s["probes"] >= 8 and s["refine"] >= 4]
    assert settings_left(run, "peers", FastestExact(300, 32)) == FastestExact(300, 32).settings()


def test_a_quick_run_measures_few_settings_from_the_first_to_the_last(tmp_path: Path) -> None:
    every = FaissHNSW(300, 32).settings()
    left = settings_left(quick_run(tmp_path), "peers", FaissHNSW(300, 32))
    assert len(left) == QUICK_SETTINGS < len(every)
    assert (left[0], left[-1]) == (every[0], every[-1])


def test_manyclass_is_tuned_once_and_measured_if_that_differs(tmp_path: Path) -> None:
    run, layer = quick_run(tmp_path), small_layer(classes=2_500, features=64, queries=60)
    config = tuned_config(run, layer)
    assert len(run.records.select(stage="peers", kind="tuning")) == 1
    assert tuned_config(quick_run(tmp_path), layer) == config
    assert len(run.records.select(stage="peers", kind="tuning")) == 1
    run_peers(run, layer, ())
    assert run.records.done(peer="manyclass tuned") == (config is not None)


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
    run_peers(run, layer, (contestant,))
    kept = [record["accuracy_kept"] for record in run.records.select(stage="peers", kind="result")]
    assert np.max(kept) >= 0.95
