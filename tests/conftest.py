"""Fixtures for every test; what is not a fixture is in cases.py."""

from collections.abc import Iterator

import pytest

from manyclass import _native


@pytest.fixture
def simd() -> Iterator[None]:
    """Put the instruction set back that was in use before the test."""
    before = _native.simd()
    yield
    _native.use_simd(before)
