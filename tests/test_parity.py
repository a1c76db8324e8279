"""The native core and the NumPy reference give the same bits, on every instruction set and thread count."""

import numpy as np
import pytest
from cases import (
    PIPELINES,
    Array,
    assert_same,
    backend,
    dense_logits,
    exported_codes,
    exported_sketch,
    fitted,
    integers,
    problem,
    rounding,
    updates,
)

from manyclass import ClassIndex, HashConfig, _native
from manyclass._reference import winner_codes as spec
from manyclass._windows_and_signs import draw_windows

SIZES = [(classes, 40) for classes in (1, 31, 32, 33, 70, 333)] + [
    (70, features) for features in (1, 7, 8, 16, 17, 65, 129, 300)
]
CASES = [
    pytest.param(config, *size, biased, id=f"{name}, {size[0]}x{size[1]}{'' if biased else ', no bias'}")
    for name, full in PIPELINES.items()
    for size in SIZES
    for biased in ((True, False) if size in ((33, 40), (70, 17)) else (True,))
    if (config := fitted(full, size[1]))
]


def twins(rows: Array, bias: Array | None, config: HashConfig) -> tuple[ClassIndex, ClassIndex]:
    """Return the same index in the native core and in NumPy, each with rows of its own."""
    built = []
    for name in ("native", "reference"):
        with backend(name):
            built.append(ClassIndex.build(rows.copy(), bias=bias, config=config))
    return built[0], built[1]


def assert_logits_match(left: ClassIndex, right: ClassIndex, queries: Array, candidates: int) -> None:
    ids, logits = left.retrieve(queries, candidates)
    _, expected = right.retrieve(queries, candidates)
    count, present = left.classes, ids >= 0
    allowed = np.take_along_axis(rounding(left.rows[:count], left.state.core.bias(), queries), np.maximum(ids, 0), 1)
    assert (np.abs(logits[present] - expected[present]) <= allowed[present]).all()
    assert (logits[~present] == -np.inf).all()


@pytest.mark.usefixtures("each_simd")
@pytest.mark.parametrize(("config", "classes", "features", "biased"), CASES)
def test_native_equals_reference_after_build_and_after_every_update(
    config: HashConfig, classes: int, features: int, biased: bool
) -> None:
    rows, bias, queries = problem(classes, features)
    native, reference = twins(rows, bias if biased else None, config)
    candidates = 20 if config.bands or config.scan_bits else classes
    assert_same(integers(native, queries, candidates), integers(reference, queries, candidates))
    assert_logits_match(native, reference, queries, candidates)
    for change in updates(features, classes).values():
        change(native)
        change(reference)
        assert_same(integers(native, queries, candidates), integers(reference, queries, candidates))
    assert_logits_match(native, reference, queries, candidates)


@pytest.mark.usefixtures("each_simd")
@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_native_equals_reference_for_every_type_of_rows(pipeline: str, dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 of its own; install ml_dtypes to test it")
    rows, bias, queries = problem(70, 40)
    native, reference = twins(rows.astype(dtype), bias, PIPELINES[pipeline])
    assert_same(integers(native, queries), integers(reference, queries))
    for change in updates(40, 70).values():
        change(native)
        change(reference)
        assert_same(integers(native, queries), integers(reference, queries))
    assert_logits_match(native, reference, queries, 20)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_raw_bfloat16_bits_are_read_as_the_upper_half_of_a_float32(pipeline: str, simd: None) -> None:
    rows, bias, queries = problem(70, 41)
    rows = (rows.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    bits = (rows.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    for name in _native.available_simd():
        _native.use_simd(name)
        wide = ClassIndex.build(rows, bias=bias, config=PIPELINES[pipeline])
        narrow = ClassIndex.build(rows, bias=bias, config=PIPELINES[pipeline])
        narrow.state.core.bind_rows(bits, 3)
        narrow.refresh(slice(None))
        assert_same(integers(wide, queries), integers(narrow, queries))
        np.testing.assert_allclose(wide.search(queries).logits, narrow.search(queries).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("each_simd")
@pytest.mark.parametrize("keys", ["exact", "fast"])
@pytest.mark.parametrize(("window", "planes"), [(2, 1), (2, 24), (4, 12), (8, 8), (8, 5), (16, 6), (16, 4), (16, 1)])
def test_every_window_and_depth_of_a_band_matches(window: int, planes: int, keys: str) -> None:
    rows, bias, queries = problem(70, 40)
    bands = 3 if planes < 6 else 1  # the tables of deep bands are large
    config = HashConfig(window=window, codes=planes * bands, bands=bands, keys=keys)  # type: ignore[arg-type]
    native, reference = twins(rows, bias, config)
    assert_same(integers(native, queries), integers(reference, queries))


@pytest.mark.usefixtures("each_simd")
@pytest.mark.parametrize("bits", [32, 64, 96, 256, 1024, 4096])
def test_every_width_of_the_sketch_matches(bits: int) -> None:
    rows, bias, queries = problem(40, 17)
    native, reference = twins(rows, 30 * bias, HashConfig.flat_sketch(bits))
    assert_same(integers(native, queries), integers(reference, queries))


@pytest.mark.usefixtures("each_simd")
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_extreme_magnitudes_match(pipeline: str) -> None:
    rows, bias, queries = problem(70, 40)
    scales = np.float32(10.0) ** np.linspace(-38, 15, 70, dtype=np.float32)  # from denormals on
    queries = np.concatenate([queries * np.float32(1e-39), queries * np.float32(1e15), queries * np.float32(1e-20)])
    native, reference = twins(rows * scales[:, None], bias, PIPELINES[pipeline])
    assert_same(integers(native, queries), integers(reference, queries))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_instruction_set_gives_the_same_integers(pipeline: str, simd: None) -> None:
    rows, bias, queries = problem(333, 129)
    seen = []
    for name in _native.available_simd():
        _native.use_simd(name)
        index = ClassIndex.build(rows.copy(), bias=bias, config=PIPELINES[pipeline])
        states = [integers(index, queries)]
        for change in updates(129, 333).values():
            change(index)
            states.append(integers(index, queries))
        seen.append(states)
    assert _native.available_simd()[-1] == "scalar"
    for states in seen[1:]:
        for left, right in zip(seen[0], states, strict=True):
            assert_same(left, right)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_instruction_set_gives_the_same_logits_but_for_rounding(dtype: str, simd: None) -> None:
    for features in (1, 7, 8, 15, 16, 17, 31, 33, 1023, 1024, 1025, 2050):
        rows, bias, queries = problem(35, features)
        rows = rows.astype(dtype)
        exact, allowed = dense_logits(rows, bias, queries), rounding(rows, bias, queries)
        for name in _native.available_simd():
            _native.use_simd(name)
            index = ClassIndex.build(rows, bias=bias, config=HashConfig.exhaustive())
            assert (np.abs(index.retrieve(queries)[1] - exact) <= allowed).all(), (name, features)


@pytest.mark.usefixtures("each_simd")
@pytest.mark.parametrize("count", [1, 2, 9, 70])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_any_number_of_threads_gives_identical_results(pipeline: str, count: int) -> None:
    rows, bias, _ = problem(333, 40)
    queries = np.maximum(np.random.default_rng(count).normal(size=(count, 40)), 0).astype(np.float32)
    seen = []
    for threads in (1, 2, 3, 5):
        index = ClassIndex.build(rows.copy(), bias=bias, config=PIPELINES[pipeline], threads=threads)
        index.refresh(np.arange(0, 333, 2), rows=rows[:167], threads=threads)
        found = index.search(queries, 10, candidates=40, threads=threads)
        results = integers(index, queries, 40, threads=threads)
        results |= {"classes": found.classes, "logits": found.logits, "log_probs": found.log_probs}
        seen.append(results)
    for other in seen[1:]:
        assert_same(seen[0], other)


@pytest.mark.usefixtures("each_simd")
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_batch_gives_each_query_what_it_gets_alone(pipeline: str) -> None:
    rows, bias, _ = problem(333, 40)
    queries = np.random.default_rng(1).normal(size=(130, 40)).astype(np.float32)  # over two blocks of 64
    index = ClassIndex.build(rows, bias=bias, config=PIPELINES[pipeline])
    ids, logits = index.retrieve(queries, 40)
    for q, query in enumerate(queries):
        alone, alone_logits = index.retrieve(query, 40)
        np.testing.assert_array_equal(ids[q], alone)
        np.testing.assert_array_equal(logits[q], alone_logits)


@pytest.mark.usefixtures("each_simd")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_large_and_small_batches_add_up_in_the_same_order(dtype: str) -> None:
    rows, bias, _ = problem(64, 2051)
    queries = np.random.default_rng(1).normal(size=(65, 2051)).astype(np.float32)
    index = ClassIndex.build(rows.astype(dtype), bias=bias, config=HashConfig.exhaustive())
    together = index.retrieve(queries)[1]
    alone = np.stack([index.retrieve(query)[1] for query in queries])
    np.testing.assert_array_equal(together, alone)


def counted_votes(config: HashConfig, codes: Array, query: Array) -> Array:
    """Return votes by counting equal entries of the exported codes."""
    windows = draw_windows(config, len(query))
    elements = spec.window_elements(windows.permutations, windows.offsets, config.bands)
    return (codes == spec.row_buckets(query, elements, config.code_bits, config.keys == "exact")).sum(1)


@pytest.mark.parametrize("classes", [65_535, 65_536, 65_537, 131_100])
def test_votes_are_right_on_both_sides_of_a_block_of_classes(classes: int) -> None:
    config = HashConfig.paper(window=4, codes=6, bands=3, candidates=50)
    rng = np.random.default_rng(classes)
    rows = rng.normal(size=(classes, 16)).astype(np.float32)
    index = ClassIndex.build(rows, config=config)
    more = rng.normal(size=(40, 16)).astype(np.float32)
    index.append(more)
    edge = np.unique([65_500, 65_534, 65_535, 65_536, classes - 1, classes, classes + 39])
    index.refresh(edge, rows=rng.normal(size=(len(edge), 16)).astype(np.float32))
    for query in rng.normal(size=(3, 16)).astype(np.float32):
        votes = counted_votes(config, exported_codes(index), query)
        np.testing.assert_array_equal(index.votes(query), votes)
        best = np.sort(np.lexsort((np.arange(len(votes)), -votes))[:50])
        np.testing.assert_array_equal(index.retrieve(query, 50)[0], best)
    for moved in edge:
        assert index.votes(index.rows[moved])[moved] == config.bands


@pytest.mark.usefixtures("each_simd")
def test_sketch_of_many_classes_matches_the_definition() -> None:
    rng = np.random.default_rng(3)
    rows, bias = rng.normal(size=(3_000, 24)).astype(np.float32), rng.normal(size=3_000).astype(np.float32)
    native, reference = twins(rows, bias, HashConfig.flat_sketch(64))
    for left, right in zip(exported_sketch(native, "scan"), exported_sketch(reference, "scan"), strict=True):
        np.testing.assert_array_equal(left, right)
    queries = rng.normal(size=(5, 24)).astype(np.float32)
    np.testing.assert_array_equal(native.retrieve(queries, 300)[0], reference.retrieve(queries, 300)[0])
