"""The balance: coordinates in which rows and queries vary alike, and what they do for a sketch."""

from typing import NamedTuple

import numpy as np
import pytest
from cases import Array, backend

from manyclass import ClassIndex, ConfigError, HashConfig
from manyclass._balance import Balance, find_balance
from manyclass._index_state import IndexState

DIRECTIONS = HashConfig.flat_sketch(128, balance="directions")
FEATURES = HashConfig.flat_sketch(128, balance="features")


class OffCentre(NamedTuple):
    """A layer whose queries share a large mean, and vary most where rows hardly differ."""

    rows: Array
    bias: Array
    queries: Array


def off_centre(classes: int = 4000, features: int = 48, queries: int = 1200, steep: float = 600.0) -> OffCentre:
    """Return such a layer. steep: how much more queries vary along the first direction than along the last."""
    rng = np.random.default_rng([classes, features])
    turned = np.linalg.qr(rng.normal(size=(features, features)))[0]
    spread = np.geomspace(np.sqrt(steep), 1 / np.sqrt(steep), features)
    rows = rng.normal(size=(classes, features)) / np.sqrt(spread)
    targets = rows[rng.integers(classes, size=queries)]
    hidden = (rng.normal(size=(queries, features)) + 0.5 * targets) * spread
    hidden[:, :4] += 30
    rows, hidden = rows @ turned, hidden @ turned
    bias = 0.1 * rng.normal(size=classes)
    return OffCentre(rows.astype(np.float32), bias.astype(np.float32), hidden.astype(np.float32))


def state_of(layer: OffCentre, config: HashConfig, balance: Balance | None) -> IndexState:
    state = IndexState(config, layer.rows.shape[1])
    state.build(layer.rows, layer.bias, 2, None, balance)
    return state


def agreement(layer: OffCentre, config: HashConfig, balance: Balance | None, candidates: int = 30) -> float:
    """Return how often the exact winner is among the candidates, over queries that no balance was fitted to."""
    asked = layer.queries[len(layer.queries) // 2 :]
    found = ClassIndex(state_of(layer, config, balance)).search(asked, 1, candidates=candidates).classes[:, 0]
    return float((found == (asked @ layer.rows.T + layer.bias).argmax(1)).mean())


@pytest.mark.parametrize("config", [DIRECTIONS, FEATURES], ids=["directions", "features"])
@pytest.mark.parametrize("name", ["native", "reference"])
def test_mean_logits_and_coordinates_add_up_to_the_logits(config: HashConfig, name: str) -> None:
    layer = off_centre(60, 37, steep=9.0)
    with backend(name):
        state = state_of(layer, config, find_balance(layer.rows, layer.queries, config))
    queries = layer.queries[:9]
    coordinates, mean_logits = state.row_coordinates(np.arange(60))
    guessed = state.query_coordinates(queries).astype(np.float64) @ coordinates.T + mean_logits + layer.bias
    error = guessed - (queries.astype(np.float64) @ layer.rows.T + layer.bias)
    error -= error.mean(1, keepdims=True)  # what all classes share changes no ranking
    assert np.abs(error).max() < 0.02 * guessed.std()
    np.testing.assert_allclose(state.core.mean_logits(), mean_logits + layer.bias, rtol=1e-5, atol=1e-5)


def test_both_sides_have_the_same_covariance_and_directions_come_by_what_they_contribute() -> None:
    layer = off_centre(8000, 24, 8000, steep=4.0)
    state = state_of(layer, DIRECTIONS, find_balance(layer.rows, layer.queries, DIRECTIONS))
    rows = state.row_coordinates(np.arange(8000))[0].std(0)
    queries = state.query_coordinates(layer.queries).std(0)
    leading = slice(0, 12)  # the ridge has a say in the last ones
    np.testing.assert_allclose(rows[leading], queries[leading], rtol=0.2)
    assert (np.diff(rows * queries) < 0.1 * (rows * queries)[0]).all()


def test_a_balanced_sketch_finds_what_a_plain_one_misses() -> None:
    layer = off_centre()
    sample = layer.queries[:600]
    plain = agreement(layer, HashConfig.flat_sketch(128), None)
    balanced = agreement(layer, DIRECTIONS, find_balance(layer.rows, sample, DIRECTIONS))
    assert plain < 0.5 < 0.9 < balanced
    few = DIRECTIONS.with_(coordinates=32)
    assert agreement(layer, few, find_balance(layer.rows, sample, few)) > 0.9


def test_one_hostile_row_or_query_does_not_rule_the_balance() -> None:
    layer = off_centre()
    rows, sample = layer.rows.copy(), layer.queries[:600].copy()
    rows[7] *= np.float32(1e20)
    sample[3] *= np.float32(1e20)
    balance = find_balance(rows, sample, DIRECTIONS)
    assert agreement(layer, DIRECTIONS, balance) > 0.9


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_rows_or_queries_that_are_all_the_same_still_make_an_index(value: float) -> None:
    layer = off_centre(200, 20, 100)
    same = np.full_like(layer.queries, value)
    for config in (DIRECTIONS, FEATURES):
        for rows, queries in ((layer.rows, same), (np.full_like(layer.rows, value), layer.queries)):
            index = ClassIndex(state_of(layer._replace(rows=rows), config, find_balance(rows, queries, config)))
            assert np.isfinite(index.search(layer.queries, 3).logits).all()


def test_the_same_sample_gives_the_same_balance() -> None:
    layer = off_centre(500, 30)
    first, again = (find_balance(layer.rows, layer.queries, DIRECTIONS) for _ in range(2))
    assert first is not None
    assert again is not None
    for name in Balance.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))


@pytest.mark.parametrize("changes", [
    {"balance": "whitened"}, {"coordinates": 8}, {"balance": "features", "coordinates": 8},
    {"balance": "directions", "scan_bits": 0}, {"balance": "directions", "coordinates": -1},
])  # fmt: skip
def test_a_balance_that_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        HashConfig.flat_sketch(128).with_(**changes)


def test_too_many_features_are_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match=r"features=9000.*at most 8192.*'none'"):
        ClassIndex.build(np.ones((3, 9000), np.float32), config=FEATURES)
