"""An index that configures itself: what it chooses and says with a sample of queries, without any, with bad ones."""

import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import Array

import manyclass as mc
from manyclass import ClassIndex, HashConfig
from manyclass._self_configuration.judge import _drift
from manyclass._self_configuration.plans import LADDER, MOST_CANDIDATES, scanning
from manyclass._self_configuration.prices import work
from manyclass._self_configuration.query_sample import FEWEST, parted, stand_ins
from manyclass._self_configuration.winner_ranks import ranks, share_within, trial
from manyclass.quality import exact_answer, exact_best
from manyclass.report import Measured, Report

CLASSES, FEATURES = 6000, 64


def made_layer(classes: int = CLASSES, seed: int = 0, features: int = FEATURES) -> tuple[Array, Array]:
    """Return rows that hardly differ in some directions, and biases."""
    rng = np.random.default_rng([seed, classes])
    spread = np.geomspace(1, 0.02, features)
    rows = (rng.normal(size=(classes, features)) * spread).astype(np.float32)
    return rows, (0.05 * rng.normal(size=classes)).astype(np.float32)


def made_queries(rows: Array, count: int, seed: int = 0) -> Array:
    """Return queries as a language model's: a large common mean, few strong directions, where rows hardly differ."""
    rng = np.random.default_rng([seed, count, 1])
    features = rows.shape[1]
    near = rows[rng.integers(len(rows), size=count)] * np.geomspace(1, 4, features)
    common = np.zeros(features)
    common[-features // 4 :] = 20 / np.sqrt(features / 4)
    strong = np.zeros((4, features))
    strong[:, -8:] = np.random.default_rng(0).normal(size=(4, 8))  # the same for every sample
    return (near + common + rng.normal(size=(count, 4)) @ strong * 2).astype(np.float32)


def agreement(index: ClassIndex, rows: Array, bias: Array | None, queries: Array, **options: Any) -> float:
    best = exact_best(rows, bias, queries, 1)[:, 0]
    return float((index.search(queries, 1, **options).classes[:, 0] == best).mean())


@pytest.fixture(scope="module")
def layer() -> tuple[Array, Array]:
    return made_layer()


@pytest.fixture(scope="module")
def learned(layer: tuple[Array, Array]) -> ClassIndex:
    rows, bias = layer
    return ClassIndex.build(rows, bias=bias, queries=made_queries(rows, 3000))


def test_with_queries_the_target_is_met_on_others(layer: tuple[Array, Array], learned: ClassIndex) -> None:
    rows, bias = layer
    assert learned.config.candidates <= MOST_CANDIDATES
    assert learned.config.balance == "directions"
    report = learned.report()
    assert report.met
    assert report.kept is not None
    assert report.kept >= 0.99
    assert agreement(learned, rows, bias, made_queries(rows, 2000, seed=5)) >= 0.985


def test_queries_beat_the_rule_of_thumb_where_they_are_unlike_rows(
    layer: tuple[Array, Array], learned: ClassIndex
) -> None:
    rows, bias = layer
    others = made_queries(rows, 1000, seed=6)
    thumb = ClassIndex.build(rows, bias=bias, config=HashConfig.for_problem(*rows.shape))
    candidates = learned.config.candidates
    ours = agreement(learned, rows, bias, others)
    assert ours > agreement(thumb, rows, bias, others, candidates=candidates) + 0.05


def test_without_queries_the_report_says_so(layer: tuple[Array, Array]) -> None:
    rows, bias = layer
    index = ClassIndex.build(rows, bias=bias)
    report = index.report()
    assert report.measured.queries == "stand-ins"
    assert any("real queries" in warning for warning in report.warnings)
    assert agreement(index, rows, bias, made_queries(rows, 1000, seed=7)) >= 0.95


def test_the_same_arguments_give_the_same_index(layer: tuple[Array, Array], learned: ClassIndex) -> None:
    rows, bias = layer
    again = ClassIndex.build(rows, bias=bias, queries=made_queries(rows, 3000), threads=1)
    assert again.config == learned.config
    assert again.measured.as_dict() == learned.measured.as_dict()
    others = made_queries(rows, 50, seed=8)
    np.testing.assert_array_equal(again.shortlist(others, 100), learned.shortlist(others, 100))


def test_a_given_config_is_taken_as_it_is_and_nothing_is_measured(layer: tuple[Array, Array]) -> None:
    rows, bias = layer
    config = HashConfig.flat_sketch(64, balance="directions", coordinates=32)
    with_queries = ClassIndex.build(rows, bias=bias, config=config, queries=made_queries(rows, 500))
    without = ClassIndex.build(rows, bias=bias, config=config)
    assert with_queries.config == without.config == config
    assert with_queries.measured.queries == "real"
    assert without.measured.queries == "stand-ins"
    assert not with_queries.report().expected
    assert with_queries.report().met is None
    others = made_queries(rows, 500, seed=9)
    options = {"candidates": 30}
    assert agreement(with_queries, rows, bias, others, **options) > agreement(without, rows, bias, others, **options)


def test_few_classes_get_exact_logits_and_no_measuring() -> None:
    rows, bias = made_layer(1500)
    report = ClassIndex.build(rows, bias=bias, queries=made_queries(rows, 100)).report()
    assert report.config == HashConfig.exhaustive()
    assert report.met
    assert not report.warnings


def test_recall_asks_for_more_than_the_best_class(layer: tuple[Array, Array], learned: ClassIndex) -> None:
    rows, bias = layer
    index = ClassIndex.build(
        rows, bias=bias, queries=made_queries(rows, 2000), metric="recall", k=5, target=0.95, optimize="single"
    )
    quality = index.check(made_queries(rows, 500, seed=10), k=5)
    assert quality.recall >= 0.94
    assert index.report().measured.metric == "recall"


def test_memory_limits_what_is_chosen(layer: tuple[Array, Array]) -> None:
    rows, bias = layer
    limit = 50 * len(rows)
    index = ClassIndex.build(rows, bias=bias, queries=made_queries(rows, 500), memory=limit)
    assert index.config.bytes_per_class(len(rows)) * len(rows) <= limit
    with pytest.raises(mc.ConfigError, match="memory=1000 is too little"):
        ClassIndex.build(rows, bias=bias, queries=made_queries(rows, 500), memory=1000)


def test_a_sample_that_misleads_costs_no_more_than_it_gains(layer: tuple[Array, Array]) -> None:
    """Half of the sample comes from elsewhere: another mean, other directions. Both halves must still be served."""
    rows, bias = layer
    true = made_queries(rows, 1500)
    elsewhere = rows[np.random.default_rng(3).integers(len(rows), size=1500)] - 3 * true.mean(axis=0)
    mixed = np.concatenate([true, elsewhere.astype(np.float32)])
    index = ClassIndex.build(rows, bias=bias, queries=mixed)
    blind = ClassIndex.build(rows, bias=bias)
    others = made_queries(rows, 1000, seed=11)
    ours = agreement(index, rows, bias, others, candidates=100)
    assert ours >= agreement(blind, rows, bias, others, candidates=100) - 0.03
    assert agreement(index, rows, bias, others) >= 0.97


def test_adapting_brings_back_what_drift_took() -> None:
    rows, bias = made_layer(4000, seed=2)
    names = [f"class {i}" for i in range(len(rows))]
    early = made_queries(rows, 1500)
    late = early[:, ::-1].copy() * 2 + made_queries(rows, 1500, seed=1)
    index = ClassIndex.build(rows, bias=bias, queries=early, names=names, memory=45 * len(rows))
    index.remove([5, 7])
    index.refresh([9], bias=[-np.inf])
    before = index.check(late[:400], candidates=30).agreement
    config = index.config
    report = index.adapt(late)
    assert index.config == config
    assert index.names == names
    assert report.measured.queries == "real"
    found = index.search(late[:300], 10).classes
    assert not np.isin(found, [5, 7, 9]).any()
    if config.balance != "none":
        assert index.check(late[:400], candidates=30).agreement >= before
    index.append(rows[:2] * 2, bias=np.zeros(2), names=["a", "b"])
    assert any("2 classes were added" in warning for warning in index.report().warnings)


def test_searches_go_on_while_an_index_adapts(layer: tuple[Array, Array]) -> None:
    rows, bias = layer
    queries = made_queries(rows, 400)
    config = HashConfig.flat_sketch(128, balance="directions", candidates=50)
    index = ClassIndex.build(rows, bias=bias, queries=queries, config=config)
    problems: list[BaseException] = []
    done = threading.Event()

    def search() -> None:
        try:
            while not done.is_set():
                assert (index.search(queries[:8], 5, threads=1).classes >= 0).all()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=search)
    thread.start()
    index.adapt(made_queries(rows, 400, seed=3))
    done.set()
    thread.join()
    assert not problems


BAD: dict[str, tuple[Callable[[Array], Any], type[mc.ManyclassError], str]] = {
    "too few": (lambda q: q[: FEWEST - 1], mc.InputError, "at least"),
    "one": (lambda q: q[0], mc.InputError, "at least"),
    "none": (lambda q: q[:0], mc.InputError, "at least"),
    "NaN": (lambda q: np.where(np.arange(len(q))[:, None] == 3, np.nan, q).astype(np.float32), mc.InputError, "NaN"),
    "another width": (lambda q: q[:, :-1], mc.InputError, "expected"),
    "all equal": (lambda q: np.repeat(q[:1], 100, 0), mc.InputError, "repeats one vector"),
    "whole numbers": (lambda q: [1, 2, 3], mc.InputTypeError, "floats"),
    "words": (lambda q: "queries", mc.ManyclassError, "queries"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_samples_are_refused_and_change_nothing(case: str, layer: tuple[Array, Array], learned: ClassIndex) -> None:
    rows, bias = layer
    spoil, error, words = BAD[case]
    sample = spoil(made_queries(rows, 200))
    with pytest.raises(error, match=words):
        ClassIndex.build(rows, bias=bias, queries=sample)
    state, measured = learned.state, learned.measured
    with pytest.raises(error, match=words):
        learned.adapt(sample)
    assert learned.state is state
    assert learned.measured is measured


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("target", 0),
        ("target", "high"),
        ("metric", "top5"),
        ("metric", 3),
        ("k", 0),
        ("optimize", "both"),
        ("memory", -1),
    ],
)
def test_impossible_wishes_are_refused(argument: str, value: Any, layer: tuple[Array, Array]) -> None:
    with pytest.raises(mc.ManyclassError, match=argument):
        ClassIndex.build(layer[0], **{argument: value})


def test_rows_that_are_not_numbers_are_refused_by_name(layer: tuple[Array, Array]) -> None:
    rows = layer[0].copy()
    rows[77, 3] = np.nan
    for queries in (None, made_queries(layer[0], 200)):
        with pytest.raises(mc.InputError, match=r"rows\[77\]"):
            ClassIndex.build(rows, queries=queries)


def test_the_report_reads_well_and_its_numbers_survive_json(learned: ClassIndex) -> None:
    text = str(learned.report())
    assert "← default" in text
    assert "µs" in text
    plain = json.loads(json.dumps(learned.measured.as_dict()))
    restored = Measured.from_dict(plain)
    assert restored.as_dict() == learned.measured.as_dict()
    assert all(step.batch_microseconds is None for step in restored.expected)


def test_what_early_and_late_queries_keep_is_told_where_it_differs() -> None:
    early, late = np.ones(400), np.resize([1.0, 1.0, 1.0, 0.0], 400)
    assert _drift(np.concatenate([early, late])) == (1.0, 0.75)
    assert _drift(np.concatenate([late, late])) is None
    assert _drift(np.ones(1)) is None
    warned = Report(HashConfig.flat_sketch(64), 9, 4, Measured(queries="real", drift=(1.0, 0.75)), 8.0)
    assert any("drift" in warning for warning in warned.warnings)


@pytest.mark.parametrize("bits", [128, 512])
def test_places_among_a_few_rows_are_about_those_among_all(bits: int) -> None:
    rows, bias = made_layer(30_000, seed=3)
    queries = made_queries(rows, 300)
    best = exact_best(rows, bias, queries, 10)
    config = HashConfig.flat_sketch(bits)
    few = trial(rows, bias, best, seed=0)
    assert len(few.rows) < len(rows) / 2
    index = ClassIndex.build(rows, bias=bias, config=config)
    sizes = index._sizes(300)
    in_all = ranks(index.state, queries, best, sizes, 2)[0]
    in_few = few.ranks(config, None, queries, 300, 2)
    for candidates in (30, 100, 300):
        assert share_within(in_few, candidates) == pytest.approx(share_within(in_all, candidates), abs=0.05)


def test_exact_best_is_the_exact_answer() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(-3, 4, size=(40_000, 6)).astype(np.float32)  # ties in plenty
    queries = rng.integers(-3, 4, size=(20, 6)).astype(np.float32)
    bias = np.where(rng.random(40_000) < 0.3, -np.inf, 0).astype(np.float32)
    np.testing.assert_array_equal(exact_best(rows, bias, queries, 7), exact_answer(rows, bias, queries, 7).classes)
    nothing = np.full(40_000, -np.inf, np.float32)
    assert (exact_best(rows, nothing, queries, 3) == -1).all()


def test_parts_of_a_sample_have_no_query_in_common() -> None:
    vectors = np.arange(1000, dtype=np.float32)[:, None]
    sample = parted(vectors, 10_000, seed=0)
    parts = [sample.fit.ravel(), sample.choose.ravel(), sample.judge.ravel()]
    assert len(np.unique(np.concatenate(parts))) == sum(len(part) for part in parts) == 1000
    assert len(sample.judge) == 500


def test_stand_ins_vary_most_where_rows_differ_least() -> None:
    rows, _ = made_layer()
    sample = stand_ins(rows, seed=0)
    noise = sample.fit.std(axis=0) / rows.std(axis=0)
    assert noise[-1] > 10 * noise[0]
    np.testing.assert_array_equal(sample.fit, stand_ins(rows, seed=0).fit)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("features", [1, 7])
def test_narrow_layers_of_any_type_configure_themselves(features: int, dtype: str) -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(2500, features)).astype(dtype)
    index = ClassIndex.build(rows)
    assert index.search(rows[:5].astype(np.float32), 1).classes.shape == (5, 1)


def test_rows_that_are_all_the_same_configure_themselves() -> None:
    rows = np.ones((3000, 8), np.float32)
    assert ClassIndex.build(rows).search(rows[0], 1).classes.shape == (1,)


def test_a_very_wide_layer_is_scaled_by_features() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(2100, 1100)).astype(np.float32)
    rows *= np.geomspace(1, 0.1, 1100, dtype=np.float32)
    queries = (rows[rng.integers(2100, size=600)] + 5).astype(np.float32)
    index = ClassIndex.build(rows, queries=queries)
    assert index.config.balance in ("features", "none")
    assert index.report().met


def test_work_grows_with_what_is_looked_at() -> None:
    config = HashConfig.flat_sketch(256, cells=200)
    sizes = (50_000, 64)
    assert work(config, *sizes, 10) < work(config, *sizes, 100) < work(config.with_(cells=0), *sizes, 300)
    few = scanning(config, 100, 20)
    assert few.cells_scanned(100) in (20, 21)
    assert work(few, *sizes, 100) < work(scanning(config, 100, 60), *sizes, 100)
    assert scanning(config, 100, 200).cells == 0
    assert list(LADDER) == sorted(LADDER)


def test_progress_beats_while_settings_are_tried(layer: tuple[Array, Array]) -> None:
    rows, bias = layer
    calls: list[tuple[int, int]] = []
    ClassIndex.build(rows, bias=bias, queries=made_queries(rows, 200), progress=lambda *step: calls.append(step))
    assert calls[0] == (0, len(rows))
    assert calls[-1] == (len(rows), len(rows))
    assert all(total == len(rows) for _, total in calls)


def test_without_a_sample_queries_that_lie_near_no_row_are_answered_too() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(24_000, 32)).astype(np.float32)  # so many that real queries would part them into cells
    queries = np.maximum(rng.normal(size=(300, 32)), 0).astype(np.float32) + 1
    index = mc.ClassIndex.build(rows)
    assert index.config.cells == 0
    found = index.search(queries, 1).classes[:, 0]
    assert np.mean(found == (queries @ rows.T).argmax(1)) >= 0.95
