"""Settings: presets say what the paper says, every refusal names the value and a way out that works."""

import dataclasses
import math
import re
from typing import Any

import numpy as np
import pytest
from cases import PIPELINES
from hypothesis import given, settings
from hypothesis import strategies as st

from manyclass import ClassIndex, ConfigError, HashConfig, _native
from manyclass import config as config_module
from manyclass._windows_and_signs import draw_signs, draw_windows

# Presets and properties


def test_the_paper_preset_is_the_papers_setting() -> None:
    config = HashConfig.paper()
    assert (config.window, config.codes, config.bands) == (16, 3000, 1000)
    assert (config.codes_per_band, config.code_bits, config.bucket_bits) == (3, 4, 12)
    assert config.pipeline == "tables → votes → exact"
    assert HashConfig.paper_imagenet21k() == config.with_(candidates=3000)
    assert HashConfig() == config


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("exhaustive", "exact"),
        ("flat sketch", "scan → exact"),
        ("flat sketch, re-ranked", "scan → sketch → exact"),
        ("paper", "tables → votes → exact"),
        ("re-score", "tables → votes → re-score → exact"),
        ("tables and sketch", "tables → votes → sketch → exact"),
        ("probes and sketch", "tables → probes → sketch → exact"),
        ("probes", "tables → probes → votes → exact"),
    ],
)
def test_a_pipeline_says_its_stages(name: str, pipeline: str) -> None:
    assert PIPELINES[name].pipeline == pipeline


def test_presets_take_changes() -> None:
    for preset in (HashConfig.paper, HashConfig.paper_imagenet21k, HashConfig.exhaustive):
        assert preset(seed=7, output="logistic", candidates=9).with_(seed=8).seed == 8
    assert HashConfig.flat_sketch(64, candidates=9) == HashConfig(bands=0, codes=0, scan_bits=64, candidates=9)
    assert HashConfig.for_problem(10**6, 256, seed=5, candidates=17).candidates == 17


def test_a_config_cannot_be_changed_and_can_be_compared() -> None:
    config = HashConfig.paper()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.window = 8  # type: ignore[misc]
    assert len({config, HashConfig.paper(), config.with_(seed=1)}) == 2


@pytest.mark.parametrize("window", [2, 4, 8, 16])
def test_bucket_bits_are_code_bits_times_codes_per_band(window: int) -> None:
    config = HashConfig(window=window, codes=30, bands=10)
    assert 2**config.code_bits == window
    assert config.bucket_bits == 3 * config.code_bits
    assert HashConfig.exhaustive().bucket_bits == 0


# Refusals

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"window": 3}, "window=3 is not one of 2, 4, 8, 16"),
    ({"window": 32}, "window=32"),
    ({"window": 16.0}, "window=16.0 is not a whole number"),
    ({"window": "16"}, "window='16' is not a whole number"),
    ({"window": True}, "window=True is not a whole number"),
    ({"window": None}, "window=None is not a whole number"),
    ({"codes": 7, "bands": 3}, "bands=3 does not divide codes=7; try codes=6"),
    ({"codes": 2, "bands": 3}, "bands=3 does not divide codes=2; try codes=3"),
    ({"codes": 0, "bands": 3}, "bands=3 does not divide codes=0"),
    ({"codes": -3, "bands": 3}, "bands=3 does not divide codes=-3"),
    ({"codes": 3000, "bands": 100}, "codes=3000 over bands=100 makes 120-bit buckets, the most is 24; try codes=600"),
    ({"codes": 65_535 * 2**40, "bands": 65_535}, "the most is 24"),
    ({"bands": 65_536, "codes": 65_536}, "bands=65536 is not a whole number from 0 to 65535; try 65535"),
    ({"bands": -1}, "bands=-1"),
    ({"bands": 10.5}, "bands=10.5 is not a whole number"),
    ({"keys": "slow"}, "keys='slow' is not one of 'exact', 'fast'"),
    ({"keys": None}, "keys=None"),
    ({"output": "argmax"}, "output='argmax' is not one of 'softmax', 'logistic'"),
    ({"probes": 0}, "probes=0"),
    ({"probes": 9}, "probes=9 is not a whole number from 1 to 8; try 8"),
    ({"probes": 2}, "probes=2 needs margins .* set keys='fast'"),
    ({"skip_silent": 1}, "skip_silent=1 is neither True nor False"),
    ({"rescore": "yes"}, "rescore='yes' is neither True nor False"),
    ({"breadth": 0}, "breadth=0"),
    ({"breadth": 2**21}, f"breadth={2**21}"),
    ({"always": -1}, "always=-1"),
    ({"always": 5}, "always=5 needs a stage that can rank them; set rescore or sketch_bits"),
    ({"sketch_bits": 40}, "sketch_bits=40 is not a multiple of 32 up to 4096; try 32"),
    ({"sketch_bits": -32}, "sketch_bits=-32 .* try 0"),
    ({"sketch_bits": 8192}, "sketch_bits=8192 .* try 4096"),
    ({"scan_bits": 33, "bands": 0}, "scan_bits=33 is not a multiple of 32 up to 4096; try 32"),
    ({"scan_bits": 64}, "bands=1000 and scan_bits=64 both find classes; set one to 0"),
    ({"bands": 0, "sketch_bits": 64}, "sketch_bits=64 re-ranks what others find; set bands or scan_bits"),
    ({"candidates": 0}, "candidates=0"),
    ({"candidates": 2**31}, f"candidates={2**31}"),
    ({"seed": -1}, "seed=-1 is not a whole number from 0 to 9223372036854775807; try 0"),
    ({"seed": 2**63}, f"seed={2**63}"),
    ({"seed": np.int64(3)}, "seed="),
    ({"bands": 0, "rescore": True}, "rescore, always and probes belong to tables, and bands=0 has none; set bands"),
    ({"bands": 0, "always": 3}, "set bands"),
    ({"bands": 0, "probes": 2}, "set bands"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[str(changes) for changes, _ in REFUSED])
def test_a_refusal_names_the_value_and_the_way_out(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        HashConfig(**changes)
    assert re.search(r"; |neither True nor False", str(caught.value)), "no way out in the message"
    with pytest.raises(ConfigError):
        HashConfig().with_(**changes)


WHOLE = st.integers(-3, 70) | st.sampled_from([128, 300, 4096, 5000, 65_535, 70_000, 2**63])


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries(
        dict.fromkeys(("window", "codes", "bands", "probes", "breadth", "scan_bits", "sketch_bits"), WHOLE)
    )
)
def test_following_the_advice_leads_to_a_valid_config(values: dict[str, int]) -> None:
    """Advice of the form "<name>=<wrong> …; try <value>" or "try <name>=<value>" is taken until there is none."""
    for _ in range(12):
        try:
            HashConfig(**values, keys="fast")  # type: ignore[arg-type]
            return
        except ConfigError as error:
            message = str(error)
            if "set one to 0" in message:
                values["scan_bits"] = 0
                continue
            if "set bands" in message:
                values["bands"] = 1
                continue
            advice = re.search(r"try (?:(\w+)=)?(\d+)", message)
            assert advice, message
            values[advice[1] or message.split("=")[0]] = int(advice[2])
    raise AssertionError(f"advice goes round in circles: {message}")


@pytest.mark.parametrize("features", range(1, 17))
def test_a_window_wider_than_the_features_is_refused_with_one_that_fits(features: int) -> None:
    config = HashConfig.paper(codes=30, bands=10)
    rows = np.random.default_rng(0).normal(size=(5, features)).astype(np.float32)
    if features == 16:
        ClassIndex.build(rows, config=config)
        return
    with pytest.raises(ConfigError, match=f"window=16 is wider than features={features}") as caught:
        ClassIndex.build(rows, config=config)
    name, value = str(caught.value).split("try ")[1].split("=")
    ClassIndex.build(rows, config=config.with_(**{name: int(value)}))


# for_problem

CLASSES = [0, 1, 2, 1_999, 2_000, 2_001, 65_536, 399_999, 400_001, 10**6, 10**7, 10**8]
FEATURES = [1, 2, 3, 8, 15, 16, 17, 64, 300, 511, 512, 4096, 65_537]


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("target", [0.5, 0.97, 0.99, 0.999, 1])
def test_every_size_gets_a_config_that_can_be_built(features: int, target: float) -> None:
    rows = np.random.default_rng(0).normal(size=(3, features)).astype(np.float32)
    for config in {HashConfig.for_problem(classes, features, target=target) for classes in CLASSES}:
        config.check_features(features)
        if features < 5_000:
            small = config if config.bucket_bits < 16 else config.with_(bands=2, codes=2 * config.codes_per_band)
            found = ClassIndex.build(rows, config=small).search(rows, 1, candidates=3)
            assert (found.classes[:, 0] >= 0).all()


def test_drawing_the_random_choices_of_a_very_wide_problem_is_quick_enough() -> None:
    config = HashConfig.for_problem(10**8, 65_537)
    assert draw_windows(config, 65_537).offsets.max() < 65_537
    assert draw_signs(config, 65_537).shape[2] == 2**17


@pytest.mark.parametrize(
    ("features", "bits"), [(8, 64), (64, 128), (384, 256), (1024, 256), (1536, 384), (4096, 1024), (65_537, 4096)]
)
def test_wider_rows_get_more_bits(features: int, bits: int) -> None:
    assert HashConfig.for_problem(20_000, features) == HashConfig.flat_sketch(bits)


@pytest.mark.parametrize("classes", CLASSES[1:])
@pytest.mark.parametrize("features", [1, 16, 64, 512])
def test_the_memory_limit_is_kept_or_refused(classes: int, features: int) -> None:
    for per_class in (1, 7, 9, 15, 17, 25, 50, 120, 1_000, 10_000):
        refusal, config = "", None
        try:
            config = HashConfig.for_problem(classes, features, memory=classes * per_class)
        except ConfigError as error:
            refusal = str(error)
        if config:
            assert config.bytes_per_class(classes) <= per_class
        else:
            assert refusal.startswith(f"memory={classes * per_class} is too little for {classes} classes")
            assert per_class < 29  # what the smallest sketch takes


@pytest.mark.parametrize("classes", [1_000, 2_001, 10**6, 10**8])
def test_the_memory_that_a_refusal_asks_for_is_enough(classes: int) -> None:
    with pytest.raises(ConfigError) as caught:
        HashConfig.for_problem(classes, 64, memory=1)
    asked = re.search(r"takes about (\d+) bytes; give at least that", str(caught.value))
    assert asked
    HashConfig.for_problem(classes, 64, memory=int(asked[1]))


def test_more_memory_never_gives_a_smaller_index() -> None:
    sizes = [
        HashConfig.for_problem(10**6, 64, memory=10**6 * per_class).bytes_per_class(10**6)
        for per_class in (29, 40, 100, 300, 600, 10_000)
    ]
    assert sizes == sorted(sizes)
    assert HashConfig.for_problem(10**6, 64).bytes_per_class(10**6) == sizes[-1]


@pytest.mark.parametrize("name", PIPELINES)
def test_the_estimate_of_memory_is_near_the_measured(name: str) -> None:
    rows = np.random.default_rng(0).normal(size=(20_000, 32)).astype(np.float32)
    index = ClassIndex.build(rows, config=PIPELINES[name])
    report = index.memory_report()
    measured = sum(size for part, size in report.items() if part != "rows")
    assert report["rows"] == 128
    assert measured == pytest.approx(PIPELINES[name].bytes_per_class(20_000), rel=0.15)


BAD_PROBLEMS: list[tuple[dict[str, Any], str]] = [
    ({"classes": -1}, "classes=-1"),
    ({"classes": 2**32 - 1}, f"classes={2**32 - 1}"),
    ({"classes": 1.5}, "classes=1.5"),
    ({"classes": "many"}, "classes='many'"),
    ({"classes": None}, "classes=None"),
    ({"features": 0}, "features=0"),
    ({"features": 2**20 + 1}, f"features={2**20 + 1}"),
    ({"features": True}, "features=True"),
    ({"memory": 0}, "memory=0"),
    ({"memory": -5}, "memory=-5"),
    ({"memory": 1e9}, "memory=1000000000.0"),
    ({"target": 0}, "target=0"),
    ({"target": 1.5}, "target=1.5"),
    ({"target": math.nan}, "target=nan"),
    ({"target": "best"}, "target='best'"),
    ({"seed": -1}, "seed=-1"),
    ({"window": 3, "bands": 2, "codes": 4}, "window=3"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_PROBLEMS, ids=[str(changes) for changes, _ in BAD_PROBLEMS])
def test_an_impossible_problem_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        HashConfig.for_problem(**({"classes": 10**6, "features": 64} | changes))


def test_the_core_has_the_same_limits() -> None:
    stated = {name: getattr(config_module, name) for name in _native.limits()}
    assert stated == _native.limits()
    assert config_module.WINDOWS == (2, 4, 8, 16)


def test_the_core_takes_the_largest_buckets_and_no_larger_ones() -> None:
    def tables(codes: int) -> object:
        offsets = np.tile(np.arange(2, dtype=np.uint32), (1, codes, 1))
        sizes = {"features": 2, "width": 2, "bands": 1, "scan_bits": 0, "sketch_bits": 0, "cells": 0}
        flags = {"skip_silent": False, "rescore": False, "blocked": True, "exact_keys": True}
        permutations = np.arange(2, dtype=np.uint32)[None]
        return _native.Index(permutations=permutations, offsets=offsets, signs=None, **sizes, **flags)

    tables(config_module.MAX_BUCKET_BITS)
    with pytest.raises(ValueError, match="too many codes per band"):
        tables(config_module.MAX_BUCKET_BITS + 1)
