"""What the tests of files share: an example, ways to look at it, the system's calls traced, programs to be killed."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import manyclass
from manyclass._section_file import read_sections, write_sections

Arrays = dict[str, np.ndarray[Any, Any]]


def example(value: int = 0) -> Arrays:
    return {
        "weights": np.arange(15, dtype="<f4").reshape(3, 5) + value,
        "ids": np.arange(7, dtype="<u1") + np.uint8(value % 100),
        "none": np.empty((0, 4), "<i8"),
    }


def save_example(path: Path, value: int = 0) -> bytes:
    write_sections(path, "test", {"value": value}, example(value))
    return path.read_bytes()


def assert_same(left: Arrays, right: Arrays) -> None:
    assert list(left) == list(right)
    for name in left:
        assert left[name].shape == right[name].shape
        assert left[name].tobytes() == right[name].tobytes()


def assert_holds(path: Path, value: int) -> None:
    meta, arrays = read_sections(path, "test")
    assert meta == {"value": value}
    assert_same(arrays, example(value))


def python(program: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start a Python program that can import the library; it sees `arguments` as sys.argv[1:]."""
    source = str(Path(manyclass.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **options)


class TracedOs:
    """The os module, recording the calls that a save makes and calling `hook(name)` before each."""

    names = ("stat", "open", "write", "lseek", "chmod", "fsync", "replace", "close")

    def __init__(self, hook: Callable[[str], None] = lambda name: None) -> None:
        self.hook = hook
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)
        if name not in self.names:
            return function

        def call(*arguments: Any, **keywords: Any) -> Any:
            self.calls.append((name, arguments))
            if name == "close":  # a close that fails has closed the file
                function(*arguments, **keywords)
                return self.hook(name)
            self.hook(name)
            return function(*arguments, **keywords)

        return call
