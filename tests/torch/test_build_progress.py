"""The bar of a long build: on a terminal, after a while, and gone when it is done; silence everywhere else."""

import builtins
import io
import sys
from typing import Any

import pytest
import rich
import torch
from rich.progress import Progress

from manyclass import InputTypeError
from manyclass.torch import CandidateSoftmax, build_progress

CLASSES = 140_000  # three slices


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, patience: float = 0.0) -> str:
    """Return what the first build of a head writes to its error stream."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(build_progress, "PATIENCE", patience)
    CandidateSoftmax(4, CLASSES).eval().topk(torch.randn(1, 4), 1)
    return stream.getvalue()


def test_a_terminal_sees_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    told = shown(monkeypatch, Terminal())
    assert "hashing classes" in told
    assert "140,000" in told
    assert told.endswith("\x1b[2K")  # the line is cleared: nothing is left of it


def test_all_others_see_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Terminal(), patience=100.0) == ""  # it took no time
    assert shown(monkeypatch, io.StringIO()) == ""  # a file
    with Progress(console=rich.get_console()):  # a training loop has a bar of its own
        assert shown(monkeypatch, Terminal()) == ""
    original = builtins.__import__

    def without_rich(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "rich":
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    assert shown(monkeypatch, Terminal()) == ""


def test_a_callback_of_one_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    head, calls = CandidateSoftmax(4, CLASSES), []
    head.rebuild(progress=lambda done, total: calls.append((done, total)))
    assert calls == [(65_536, CLASSES), (131_072, CLASSES), (CLASSES, CLASSES)]
    with pytest.raises(InputTypeError, match="progress=3 cannot be called"):
        head.rebuild(progress=3)  # type: ignore[arg-type]
