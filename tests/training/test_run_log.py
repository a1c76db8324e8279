"""Laws of the run log: every line is valid JSON, a torn line costs itself only, writers do not disturb each other."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyclass.errors import CorruptFileError, InputTypeError
from manyclass.training import run_log
from manyclass.training.run_log import RunLog, as_json, machine_card, read_log, source_state, without_overtaken


def strict(text: str) -> Any:
    """Parse JSON as readers other than Python's do."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def test_records_come_back_in_order(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "new folder" / "run.jsonl")
    for step in range(5):
        log.write(step=step, loss=0.1 * step, text="ü\n\u2028")
    records = read_log(log.path)
    assert [record["step"] for record in records] == list(range(5))
    assert records[3] == {"step": 3, "loss": 0.1 * 3, "text": "ü\n\u2028"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_every_line_is_valid_json_on_one_line(value: Any) -> None:
    text = as_json({"value": value})
    assert "\n" not in text
    strict(text)


def test_what_is_not_finite_becomes_null() -> None:
    written = {"a": float("nan"), "b": [float("inf"), 1.5], "c": np.float32("nan"), "d": torch.tensor(float("-inf"))}
    assert strict(as_json(written)) == {"a": None, "b": [None, 1.5], "c": None, "d": None}


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    written = {"a": np.int64(3), "b": torch.tensor([1, 2]), "c": np.float32(0.5), "d": Path("x"), "e": (1, 2), 6: True}
    assert strict(as_json(written)) == {"a": 3, "b": [1, 2], "c": 0.5, "d": "x", "e": [1, 2], "6": True}


@pytest.mark.parametrize("wrong", [object(), {1, 2}, b"bytes", 1j])
def test_what_json_cannot_hold_is_refused_before_the_file_is_touched(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(InputTypeError, match="a log holds"):
        RunLog(tmp_path / "run.jsonl").write(value=wrong)
    assert not list(tmp_path.iterdir())


def test_every_torn_last_line_is_left_out_and_then_removed(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run.jsonl")
    log.write(step=1, text="x" * 5000)  # longer than the piece in which the last newline is looked for
    kept = len(log.path.read_bytes())
    log.write(step=2, text="y" * 5000)
    content = log.path.read_bytes()
    for length in {*range(kept, kept + 40), *range(kept, len(content), 97), len(content) - 1}:
        log.path.write_bytes(content[:length])
        assert [record["step"] for record in read_log(log.path)] == [1]
        log.write(step=3)
        assert [record["step"] for record in read_log(log.path)] == [1, 3]
    log.path.write_bytes(content[: kept - 1])
    assert read_log(log.path) == []
    log.write(step=4)
    assert read_log(log.path) == [{"step": 4}]


@pytest.mark.parametrize("wrong", ["{", "[1]", "3", "", "\0"])
def test_other_damage_is_named_with_its_line(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(f'{{"step": 1}}\n{wrong}\n{{"step": 2}}\n')
    with pytest.raises(CorruptFileError, match="line 2 is not a JSON object"):
        read_log(path)


WRITER = """
import sys
from manyclass.training.run_log import RunLog
log = RunLog(sys.argv[1])
print("ready", flush=True)
for step in range(int(sys.argv[3])):
    log.write(writer=int(sys.argv[2]), step=step, text="x" * 3000)
"""


def writer(path: Path, number: int, lines: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), str(number), str(lines)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_several_processes_write_one_log(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    writers = [writer(path, number, 60) for number in range(3)]
    for process in writers:
        process.communicate()
        assert process.returncode == 0
    records = read_log(path)
    for number in range(3):
        assert [record["step"] for record in records if record["writer"] == number] == list(range(60))


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_a_killed_writer_leaves_a_readable_log(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    before = 0
    for round_number in range(4):
        process = writer(path, round_number, 10**9)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.03)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        records = read_log(path)
        assert len(records) >= before
        before = len(records)
    assert before


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RunLog(tmp_path / "run.jsonl")
    log.write(step=1)
    before = log.path.read_bytes()

    def full(file: int, content: bytes) -> None:
        os.write(file, content[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_log, "write_all", full)
    with pytest.raises(OSError, match="No space"):
        log.write(step=2)
    assert log.path.read_bytes() == before


def test_the_card_says_what_is_needed_to_repeat_the_run(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run.jsonl")
    log.write_card(seed=7, head="wta")
    (card,) = read_log(log.path)
    assert (card["kind"], card["seed"], card["head"]) == ("card", 7, "wta")
    assert set(card["machine"]) == {
        "cpu",
        "instruction_set",
        "cache_kb",
        "cores",
        "memory_gb",
        "python",
        "versions",
        "threads",
    }
    assert card["machine"]["threads"] == torch.get_num_threads()
    assert set(card["machine"]["versions"]) == {"manyclass", "numpy", "torch"}
    assert card["machine"]["versions"]["numpy"] == np.__version__
    assert set(card) >= {"commit", "dirty", "time"}


def test_a_missing_package_is_reported_as_missing() -> None:
    assert machine_card(("numpy", "no-such-package"))["versions"]["no-such-package"] == "missing"


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    assert source_state(tmp_path) == {"commit": "none", "dirty": False}


def test_a_resumed_session_takes_back_what_it_repeats() -> None:
    first = [{"kind": "card"}, *({"kind": "step", "step": step} for step in (10, 20, 30, 40))]
    second = [{"kind": "card", "resumed_from": 20}, {"kind": "step", "step": 30, "again": True}]
    kept = without_overtaken(first + second)
    assert kept == [*first[:3], *second]
    assert without_overtaken(first) == first
