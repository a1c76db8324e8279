"""The data sets are what they say, and the same every time."""

from pathlib import Path

import numpy as np
import pytest

from experiments.datasets import wordnet
from experiments.datasets.cache import cached_arrays
from experiments.datasets.imagenet_like import imagenet_like
from experiments.datasets.made_rows import off_centre, planted, unequal_norms
from experiments.datasets.missing import MissingDataError

LINE = (
    "00001740 03 n 02 entity 0 living_thing 1 000 | that which is perceived; something like a \"thing\" that exists; "
    '"an entity of its own"; "it was a living thing"'
)  # fmt: skip


def test_planted_queries_are_at_cosine_eight_tenths() -> None:
    problem = planted(500, 16, 50)
    cosines = (problem.queries * problem.rows[problem.labels]).sum(axis=1)
    np.testing.assert_allclose(cosines, 0.8, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(problem.rows, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(planted(500, 16, 50).rows, problem.rows)


def test_rows_of_unequal_norm_have_a_bias_and_halved_queries() -> None:
    problem = unequal_norms(2000, 32, 60)
    lengths = np.linalg.norm(problem.rows, axis=1)
    assert np.quantile(lengths, 0.95) > 2 * np.quantile(lengths, 0.05)
    assert problem.bias is not None
    assert 0 < problem.exact_accuracy < 1


def test_queries_off_centre_have_a_large_mean_and_few_strong_directions() -> None:
    problem = off_centre(2000, 64, 500)
    lengths = np.linalg.norm(problem.queries, axis=1)
    assert 0.5 < np.linalg.norm(problem.queries.mean(axis=0)) / lengths.mean() < 0.8
    variances = np.sort(np.linalg.eigvalsh(np.cov(problem.queries.T)))[::-1]
    assert variances[:8].sum() > 0.9 * variances.sum()
    assert 0.2 < problem.exact_accuracy < 0.9


def test_the_layer_like_a_trained_one_is_sparse_and_mostly_right() -> None:
    problem = imagenet_like(300, 128, queries=100)
    assert problem.rows.shape == (300, 128)
    assert (problem.queries == 0).mean() > 0.3
    assert problem.exact_accuracy > 0.1


def test_a_gloss_is_parted_into_definition_and_examples() -> None:
    synset = wordnet.parse_synset(LINE)
    assert synset.lemmas == ["entity", "living thing"]
    assert synset.definition == 'that which is perceived; something like a "thing" that exists'
    assert synset.examples == ["an entity of its own", "it was a living thing"]
    assert synset.query(synset.examples[1]) == "living thing: it was a living thing"


def test_what_is_missing_is_said_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    monkeypatch.setenv("MANYCLASS_CACHE", str(tmp_path / "cache"))
    with pytest.raises(MissingDataError, match=r"no WordNet in .*; apt-get install wordnet-base"):
        wordnet.wordnet()
    assert not (tmp_path / "cache").exists()
    assert wordnet.needs()[0].found is None


def test_wordnet_is_embedded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Encoder:
        def encode(self, texts: list[str], **_: object) -> np.ndarray:
            return np.array([[len(text)] * wordnet.WIDTH for text in texts], np.float32)

    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    monkeypatch.setenv("MANYCLASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(wordnet, "QUERIES", 3)
    monkeypatch.setattr(wordnet, "load_encoder", Encoder)
    for part in wordnet.PARTS_OF_SPEECH:
        (tmp_path / f"data.{part}").write_text(f"  1 This is the licence\n{LINE}\n", encoding="utf-8")
    told: list[float] = []
    problem = wordnet.wordnet(lambda share, text: told.append(share))
    assert (problem.classes, problem.features, len(problem.queries)) == (4, wordnet.WIDTH, 3)
    assert told == sorted(told)
    (tmp_path / "data.noun").unlink()
    np.testing.assert_array_equal(wordnet.wordnet().rows, problem.rows)


def test_a_failed_data_set_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCLASS_CACHE", str(tmp_path))
    with pytest.raises(ZeroDivisionError):
        cached_arrays("broken", lambda: {"rows": np.zeros(1 // 0)})
    assert list(tmp_path.iterdir()) == []
    made = cached_arrays("whole", lambda: {"rows": np.arange(3)})
    assert made["rows"].tolist() == [0, 1, 2]
    assert cached_arrays("whole", lambda: {})["rows"].tolist() == [0, 1, 2]
