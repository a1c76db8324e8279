"""Fixtures for every test; what is not a fixture is in cases.py."""

from collections.abc import Iterator

import pytest

from experiments.frame.waiting_threads import settle_waiting_threads
from manyclass import _native

settle_waiting_threads()  # as the commands do, before torch is loaded


@pytest.fixture
def simd() -> Iterator[None]:
    """Put the instruction set back that was in use before the test."""
    before = _native.simd()
    yield
    _native.use_simd(before)


@pytest.fixture(params=_native.compiled_simd())
def each_simd(request: pytest.FixtureRequest, simd: None) -> None:
    """Run the test once on each instruction set; what this CPU lacks is reported as skipped."""
    if not _native.use_simd(request.param):
        pytest.skip(f"this CPU lacks what {request.param} needs")


@pytest.fixture
def thread_counts() -> Iterator[None]:
    """Put back how many threads torch and the linear-algebra libraries use: a peer sets both for good."""
    torch = pytest.importorskip("torch")
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    with threadpool_limits():
        yield
    torch.set_num_threads(before)
