"""Settings of a peer: which are tried, how they are told and drawn, and a row that is changed and put back."""

from pathlib import Path

import numpy as np
import pytest
from layer_cases import small_layer

from experiments.peers.choosing import no_larger, spread
from experiments.peers.faiss_peers import FaissHNSW
from experiments.peers.figure import best_settings, draw_peers
from experiments.peers.manyclass_peer import Manyclass
from experiments.peers.measuring import microseconds_update
from experiments.peers.peer import setting_in_words

pytestmark = pytest.mark.usefixtures("thread_counts")


def test_a_row_is_put_back_after_an_update() -> None:
    layer = small_layer()
    before, peer = layer.rows.copy(), Manyclass(layer.classes, layer.features, 1, pipeline="scan")
    peer.build(layer.rows, layer.bias)
    spent = microseconds_update(peer, layer)
    assert spent is not None
    assert spent > 0
    np.testing.assert_array_equal(layer.rows, before)
    np.testing.assert_array_equal(peer.rows, before)


def test_few_settings_are_spread_from_the_first_to_the_last() -> None:
    every = FaissHNSW(300, 32).settings()
    some = spread(every, 4)
    assert len(some) == 4 < len(every)
    assert (some[0], some[-1]) == (every[0], every[-1])
    assert spread(every[:2], 4) == every[:2]


def test_a_setting_is_no_larger_where_no_knob_is() -> None:
    setting = {"probes": 8, "refine": 4}
    assert no_larger({"probes": 8, "refine": 2}, setting)
    assert not no_larger(setting, setting)
    assert not no_larger({"probes": 4, "refine": 8}, setting)
    assert not no_larger({"kind": "a"}, {"kind": "b"})


def test_a_setting_in_words() -> None:
    assert setting_in_words({"probes": 8, "refine": 4}) == "probes 8, refine 4"


def test_the_figure_joins_the_settings_that_none_beats(tmp_path: Path) -> None:
    settings = [
        {"accuracy_kept": kept, "agreement": kept - 0.1, "us_batch1": spent}
        for kept, spent in ((0.7, 5.0), (0.97, 10.0), (0.96, 30.0), (1.0, 40.0))
    ]
    assert [found["us_batch1"] for found in best_settings(settings, "us_batch1", "accuracy_kept")] == [10, 40]
    figure = draw_peers({"ours": settings}, tmp_path, "peers", {"us_batch1": "one at a time"})
    assert figure.svg.exists()
