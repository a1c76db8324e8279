"""Many labels: the data set's reader and weights, and a tiny run of the stage."""

import builtins
import lzma
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from layer_cases import quick_run

from experiments.datasets import pubmed_mesh
from experiments.datasets.missing import MissingDataError
from experiments.datasets.pubmed_mesh import VARIABLE, Article, in_bags, made_articles
from experiments.frame.records import Records
from experiments.heads import many_labels
from experiments.heads.many_labels_table import OMIKUJI, STARTS, many_labels_block, many_labels_table
from experiments.heads.page import make_page

pytestmark = pytest.mark.usefixtures("thread_counts")
TINY = many_labels.ManyLabelsSizes((300, 40), 2, (0,))


def test_words_are_weighted_by_times_and_rarity() -> None:
    train = [Article("a Cell, a cell; virus", [0, 2]), Article("cell virus virus", [1]), Article("mouse cell", [2])]
    text = in_bags([*train, Article("mouse", [0])], [Article("Virus unseen mouse", [3, 0])])
    assert (text.vocabulary, text.classes) == (3, 4)  # cell, mouse, virus; "a" is in one article only
    assert text.train.words.tolist() == [0, 2, 0, 2, 0, 1, 1]
    assert text.train.starts.tolist() == [0, 2, 4, 6, 7]
    first = np.array([(1 + np.log(2)) * np.log(4 / 3), np.log(4 / 2)])
    np.testing.assert_allclose(text.train.weights[:2], first / np.linalg.norm(first), rtol=1e-6)
    assert text.test.words.tolist() == [1, 2]
    assert text.test.labels.tolist() == [[3, 0]]
    assert text.train.labels.tolist() == [[0, 2], [1, -1], [2, -1], [0, -1]]


def test_files_are_read_packed_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "12\t1999\t3,1\tA title\tan abstract\n15\t2000\t0\tA title\t\n"
    (tmp_path / "train.tsv").write_text(line * 2, encoding="utf-8")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(MissingDataError, match=r"lacks train\.tsv or test\.tsv; set MANYCLASS_PUBMED_MESH"):
        pubmed_mesh.pubmed_mesh()
    assert pubmed_mesh.needs()[0].found is None
    with lzma.open(tmp_path / "test.tsv.xz", "wt", encoding="utf-8") as file:
        file.write(line)
    text = pubmed_mesh.pubmed_mesh()
    assert (len(text.train), len(text.test), text.classes) == (4, 2, 4)
    assert pubmed_mesh.needs()[0].found == str(tmp_path)


def test_a_batch_holds_the_words_of_its_articles() -> None:
    bags = in_bags(made_articles(30, 10, seed=0), made_articles(5, 10, seed=1)).train
    words, starts, weights = many_labels.batch_of(bags, torch.tensor([7, 2, 29]))
    for begin, end, article in zip(starts, [*starts[1:], len(words)], (7, 2, 29), strict=True):
        its = slice(bags.starts[article], bags.starts[article + 1])
        assert words[begin:end].tolist() == bags.words[its].tolist()
        assert weights[begin:end].tolist() == bags.weights[its].tolist()


def test_every_start_is_run_shown_and_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_labels, "QUICK", TINY)
    monkeypatch.setattr(many_labels, "run_apart", run_here)
    without_omikuji(monkeypatch)
    run = quick_run(tmp_path)
    run.records.write_card("heads", seed=0, threads=1, options=run.options.fixed())
    many_labels.run_many_labels(run)
    results = run.records.select(stage="many_labels", kind="result")
    assert [found["name"] for found in results] == list(STARTS)
    assert all(len(found["precision"]) == 3 and len(found["curve"]) == 2 for found in results)
    table = many_labels_table(run.records)
    assert [row[0] for row in table.rows] == list(STARTS.values())
    many_labels.run_many_labels(run)
    assert len(run.records.select(stage="many_labels", kind="result")) == len(STARTS)
    section = next(part for part in make_page(run.records, tmp_path).sections if part.title.startswith("Many labels"))
    assert "Left out: no Omikuji" in section.text
    assert "P@1" in many_labels_block(run.records, "page")


def test_what_was_not_measured_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(tmp_path / "records.jsonl")
    assert many_labels_block(records, "page") == "Not measured yet: stage `many_labels` of the experiment `heads`."
    monkeypatch.delenv(VARIABLE, raising=False)
    run = quick_run(tmp_path, quick=False)
    many_labels.run_many_labels(run)
    assert run.records.last(stage="many_labels", kind="missing")["reason"] == "no MEDLINE articles"


def test_omikuji_reads_what_is_written(tmp_path: Path) -> None:
    pytest.importorskip("omikuji")
    text = many_labels.data(TINY)
    many_labels.write_sparse(text, tmp_path / "train.txt")
    lines = (tmp_path / "train.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == f"{len(text.train)} {text.vocabulary} {text.classes}"
    assert len(lines) == len(text.train) + 1
    found = many_labels.omikuji(TINY, threads=1)
    assert found["precision"][0] > 0.3
    assert OMIKUJI not in STARTS


def run_here(calls: Sequence[Callable[[], Any]], *_: object, **__: object) -> Iterator[tuple[int, Any]]:
    """Do the calls in this process."""
    yield from ((number, call()) for number, call in enumerate(calls))


def without_omikuji(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make importing it fail."""
    monkeypatch.delitem(sys.modules, "omikuji", raising=False)
    original = builtins.__import__

    def refused(name: str, *rest: Any, **named: Any) -> Any:
        if name == "omikuji":
            raise ImportError(name)
        return original(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refused)
