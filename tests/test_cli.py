"""The command `manyclass`: what it says, and its exit code."""

import re

import pytest

from manyclass import backend_info
from manyclass._machine import cache_kb, caches_in_words, cpu_model
from manyclass.cli import main
from manyclass.doctor import Need, package, table_of


def test_doctor_says_what_runs_and_what_is_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert f"backend native, instruction set {backend_info().simd}" in said
    assert all(name in said for name in backend_info().available_simd)
    assert f"CPU {cpu_model()}, caches: {caches_in_words(cache_kb()) or 'the system does not tell'}" in said
    assert "OMP_WAIT_POLICY ACTIVE" in said  # the user's value
    assert re.search(r"✓ +numpy +\d", said)
    assert "experiment" not in said


def test_doctor_fails_where_the_core_does_not_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYCLASS_SIMD", "nonsense")
    assert main(["doctor"]) == 1
    assert "the core does not run: MANYCLASS_SIMD='nonsense'" in capsys.readouterr().out


def test_what_is_missing_comes_with_its_install_line() -> None:
    there, gone = package("numpy", "all", "pip install numpy"), package("no-such-package", "nothing", "pip install it")
    lines = table_of([there, gone, Need("fonts", None, "drawing", "apt-get install fonts", optional=True)])
    assert lines[1].startswith("✓  numpy")
    assert "pip install" not in lines[1]
    assert re.fullmatch(r"✗  no-such-package +missing +nothing +pip install it", lines[2])
    assert lines[3].startswith("–  fonts")


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), ([], 2), (["nonsense"], 2)])
def test_the_rest_is_argparse(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == code
    printed = capsys.readouterr()
    assert re.fullmatch(r"manyclass \d+\.\d+.*\n", printed.out) if code == 0 else "usage: manyclass" in printed.err
