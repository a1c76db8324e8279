"""Laws of records: what is written is found by its fields, also by another reader and after a torn line."""

from pathlib import Path

import pytest

from experiments.frame.page import Table
from experiments.frame.records import Records
from experiments.frame.run_section import machine_in_words, run_section


def test_records_are_found_by_their_fields(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    assert records.all() == []
    assert not records.done(stage="layer")
    for batch in (1, 8):
        for candidates in (30, 300):
            records.write(stage="layer", batch=batch, candidates=candidates, setting={"bits": (1, 2)})
    assert records.done(stage="layer", batch=8, candidates=300)
    assert not records.done(stage="layer", batch=64)
    assert [record["candidates"] for record in records.select(batch=8)] == [30, 300]
    last = records.last(batch=1)
    assert last is not None
    assert last["candidates"] == 300
    assert records.done(setting={"bits": (1, 2)})
    assert len(records.select(head=None)) == 4


def test_what_another_writer_adds_is_seen(tmp_path: Path) -> None:
    reader, writer = Records(tmp_path / "records.jsonl"), Records(tmp_path / "records.jsonl")
    for step in range(5):
        writer.write(step=step)
        assert reader.done(step=step)
        assert not reader.done(step=step + 1)


def test_a_torn_line_is_not_a_record(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    records.write(step=1)
    with records.path.open("a") as file:
        file.write('{"step": 2')
    assert not records.done(step=2)
    records.write(step=3)
    assert [record["step"] for record in records.all()] == [1, 3]


def test_reading_twice_reads_the_file_once(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    records.write(step=1)
    assert records.all()[0] is records.all()[0]


def test_the_time_of_a_stage_counts_training_in_sessions_that_were_killed(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    assert records.seconds_spent("base") == 0
    records.write(kind="stage_end", stage="layer", seconds=60.0)
    records.write(kind="result", stage="layer", batch=1)
    records.write(kind="result", stage="base", seconds=1900.0)
    records.write(kind="stage_end", stage="base", seconds=900.0)
    assert records.seconds_spent("layer") == 60
    assert records.seconds_spent("base") == 1900


@pytest.mark.parametrize("told", [{}, {"instruction_set": "avx2", "cache_kb": {"L1d": 32, "L2": 1024}}])
def test_cards_from_before_instruction_sets_were_told_are_still_read(tmp_path: Path, told: dict[str, object]) -> None:
    records = Records(tmp_path / "records.jsonl")
    machine = {"cpu": "Old CPU", "cores": 2, "memory_gb": 4.0, "python": "3.11", "versions": {"numpy": "2"}, **told}
    options = {"quick": False, "heads": [], "data": None}
    fields = {"experiment": "demo", "seed": 0, "threads": 1, "commit": "0" * 40, "dirty": False}
    records.write(kind="card", options=options, machine=machine, **fields)
    table = run_section(records).parts[0]
    assert isinstance(table, Table)
    said = {str(row[0]): row[1] for row in table.rows}
    assert said["machine"] == "Old CPU, 2 cores, 4.0 GB"
    assert said.get("instruction set") == told.get("instruction_set")
    assert said.get("caches") == ("L1d 32 KB, L2 1 MB" if told else None)
    assert machine_in_words(records) == f"2 cores of an Old CPU{' with avx2' if told else ''}, 1 thread"


def test_a_stage_ran_with_the_threads_of_its_own_session(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    assert machine_in_words(records, "early") == "no machine yet"
    for threads, stage in ((2, "early"), (1, "late"), (4, "later")):
        records.write(kind="card", threads=threads, machine={"cpu": "CPU", "cores": 4})
        records.write(kind="stage_start", stage=stage)
        records.write(kind="result", stage=stage)
    assert machine_in_words(records, "early") == "4 cores of an CPU, 2 threads"
    assert machine_in_words(records, "late") == "4 cores of an CPU, 1 thread"
    assert machine_in_words(records) == machine_in_words(records, "none such") == "4 cores of an CPU, 4 threads"


def test_old_records_do_not_say_when_a_stage_started(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    for cpu, stage in (("Old", "early"), ("New", "late")):
        records.write(kind="card", threads=1, machine={"cpu": cpu, "cores": 4})
        records.write(kind="result", stage=stage)
    assert machine_in_words(records, "early") == "4 cores of an Old, 1 thread"
