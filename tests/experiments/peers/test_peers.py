"""Every peer answers the same question, and importing the list loads none of their libraries."""

import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from experiments.peers import CONTESTANTS, Contestant, Peer
from experiments.peers.lorann_peer import Lorann
from experiments.peers.peer import Widened
from experiments.peers.rabitq_peers import RaBitQCells, SymphonyQG
from experiments.peers.svs_peer import Svs

CLASSES, FEATURES = 400, 24
pytestmark = pytest.mark.usefixtures("thread_counts")

MORE = (Lorann, partial(Lorann, trained=False), RaBitQCells, partial(RaBitQCells, bits=8), SymphonyQG, Svs,
        partial(Svs, half=True))  # fmt: skip
ALL = (*CONTESTANTS, *MORE)
NAMES = [contestant(CLASSES, FEATURES, 1).name for contestant in ALL]


def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, a bias that decides many winners, and queries."""
    random = np.random.default_rng(1)
    shapes = ((CLASSES, FEATURES), (CLASSES,), (40, FEATURES))
    rows, bias, queries = (random.normal(size=shape).astype(np.float32) for shape in shapes)
    return rows, 3 * bias, queries


def built(contestant: Contestant) -> tuple[Peer, np.ndarray, np.ndarray]:
    """Return the peer over the rows, the queries, and their exact winners."""
    peer = contestant(CLASSES, FEATURES, 1)
    rows, bias, queries = arrays()
    peer.sample = queries if peer.takes_queries else None
    try:
        peer.build(rows, bias)
    except ImportError as absent:
        pytest.skip(f"{absent}: {peer.install}")
    return peer, queries, (queries @ rows.T + bias).argmax(axis=1)


@pytest.mark.parametrize("contestant", ALL, ids=NAMES)
def test_the_widest_setting_finds_most_winners_with_their_bias(contestant: Contestant) -> None:
    peer, queries, winners = built(contestant)
    setting = peer.settings()[-1]
    found = peer.search(queries, 10, setting, batch_mode=True)
    assert found.shape == (40, 10)
    assert found.dtype == np.int64
    # The paper's votes know nothing of the bias, and classes without a vote are never looked at; chance is 1 in 400.
    # The cells of IVF know it as one column of many, and half of them are looked at.
    assert (found[:, 0] == winners).mean() > (0.2 if "paper" in peer.name else 0.8 if "IVF" in peer.name else 0.9)
    one = peer.search(queries[:1], 10, setting, batch_mode=False)
    assert one.shape == (1, 10)
    np.testing.assert_array_equal(peer.answers(queries, 10, setting)[:, 0], found[:, 0])
    assert peer.bytes_per_class() > 2 * FEATURES


@pytest.mark.parametrize("contestant", ALL, ids=NAMES)
def test_a_changed_row_is_found_where_the_peer_can_change_it(contestant: Contestant) -> None:
    peer, queries, _ = built(contestant)
    if not peer.update_one(7, 50 * queries[0]):
        pytest.skip(f"{peer.name} has no way to change a row in place")
    assert peer.search(queries[:1], 10, peer.settings()[-1], batch_mode=False)[0, 0] == 7


def test_the_names_that_logs_are_keyed_by() -> None:
    names = [contestant(1_000_000, 128, 2).name for contestant in CONTESTANTS]
    assert names == [
        "manyclass default", "manyclass scan", "manyclass cells", "manyclass cells, 512 bits", "manyclass paper",
        "torch softmax", "fastest exact",
        "faiss PQ{d/4}x4fs,RFlat", "faiss PQ{d/2}x4fs,RFlat", "faiss RaBitQfs,RFlat",
        "faiss IVF2048,PQ{d/4}x4fs,RFlat", "faiss IVF2048,PQ{d/2}x4fs,RFlat", "ScaNN", "faiss HNSW32", "hnswlib M=16",
    ]  # fmt: skip


def test_the_list_loads_no_library() -> None:
    heavy = '{"torch", "faiss", "hnswlib", "scann", "lorann", "rabitqlib", "svs", "threadpoolctl", "rich"}'
    program = f"import sys, experiments.peers.measuring, experiments.peers.entries; print({heavy} & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "set()"


def test_the_wider_inner_product_is_the_logit() -> None:
    rows, bias, queries = arrays()
    widened = Widened(rows, bias, multiple=16)
    assert widened.columns == 32
    np.testing.assert_allclose(widened.widen(queries) @ widened.rows.T, queries @ rows.T + bias, atol=1e-4)
    changed = widened.changed(3, queries[0])
    np.testing.assert_allclose(widened.widen(queries) @ changed, queries @ queries[0] + bias[3], atol=1e-4)
    assert Widened(rows, None).rows.shape == rows.shape
    assert Widened(rows, None).widen(queries) is queries


@pytest.mark.parametrize("size", [1e-6, 1.0, 300.0])
def test_a_bias_of_any_size_becomes_a_column_like_the_others(size: float) -> None:
    rows, bias, queries = arrays()
    widened = Widened(rows, size * bias)
    column, others = widened.rows[:, -1], widened.rows[:, :-1]
    assert 0.5 < np.sqrt(np.mean(column**2) / np.mean(others**2)) < 2
    np.testing.assert_array_equal(column * widened.widen(queries)[0, -1], (size * bias).astype(np.float32))


def test_no_bias_and_nothing_but_zeros_are_widened_too() -> None:
    rows, bias, queries = arrays()
    for zeros in (Widened(rows, 0 * bias), Widened(0 * rows, bias), Widened(0 * rows, 0 * bias)):
        assert np.isfinite(zeros.rows).all()
        assert np.isfinite(zeros.widen(queries)).all()
