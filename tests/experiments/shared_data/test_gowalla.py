"""Visits as they stand in Gowalla's files."""

import lzma
from pathlib import Path

import numpy as np
import pytest

from experiments.datasets.gowalla import VARIABLE, Visits, gowalla, needs, together
from experiments.datasets.missing import MissingDataError


def write_parts(folder: Path) -> None:
    (folder / "train.txt").write_text("0 5 3\n1 2\n")
    (folder / "valid.txt").write_text("0 4\n1\n")  # a user may have nothing there
    with lzma.open(folder / "test.txt.xz", "wt") as file:
        file.write("0 1\n1 0 3\n")


def test_a_line_is_a_user_and_its_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parts(tmp_path)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    visits = gowalla()
    assert [visits["train"][user].tolist() for user in (0, 1)] == [[5, 3], [2]]
    assert visits["test"][1].tolist() == [0, 3]
    known = together(visits["train"], visits["valid"])
    assert [known[user].tolist() for user in (0, 1)] == [[5, 3, 4], [2]]
    assert needs()[0].found == str(tmp_path)


def test_rows_are_padded() -> None:
    visits = Visits.of([np.array([7, 8]), np.array([], np.int64), np.array([9])])
    assert visits.padded(np.array([2, 0, 1])).tolist() == [[9, -1], [7, 8], [-1, -1]]


def test_a_folder_that_lacks_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parts(tmp_path)
    (tmp_path / "valid.txt").unlink()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(MissingDataError, match=f"lacks train.txt, valid.txt or test.txt; set {VARIABLE}"):
        gowalla()
