"""Saved vectors: both formats, in gensim too, broken files, and questions to them through the index."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.frame.documents import ROOT
from experiments.skipgram.heads.negative_sampling import NegativeSampling
from experiments.skipgram.vectors.lookup import Lookup
from experiments.skipgram.vectors.vector_files import WordVectors, load_vectors, save_vectors
from manyclass.errors import CorruptFileError, FileError, InputError

WORDS = ["man", "king", "woman", "queen", "fish", "été"]
VECTORS = np.array([[1, 0.1], [1, 1], [-1, 0.1], [-1, 1], [0, -1], [0.3, -1e-7]], np.float32)


@pytest.mark.parametrize("binary", [True, False])
def test_both_formats_come_back_as_they_were(binary: bool, tmp_path: Path) -> None:
    save_vectors(tmp_path / "v", WORDS, VECTORS, binary=binary)
    found = load_vectors(tmp_path / "v")
    assert found.words == WORDS
    np.testing.assert_array_equal(found.vectors, VECTORS)


@pytest.mark.parametrize("binary", [True, False])
def test_gensim_loads_them(binary: bool, tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models")
    save_vectors(tmp_path / "v", WORDS, VECTORS, binary=binary)
    known = models.KeyedVectors.load_word2vec_format(str(tmp_path / "v"), binary=binary)
    assert known.index_to_key == WORDS
    np.testing.assert_array_equal(known.vectors, VECTORS)


def test_files_that_are_no_vectors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist"):
        load_vectors(tmp_path / "absent")
    (tmp_path / "text").write_text("hello world\n")
    with pytest.raises(CorruptFileError, match="does not begin with two whole numbers"):
        load_vectors(tmp_path / "text")
    save_vectors(tmp_path / "v", WORDS, VECTORS)
    (tmp_path / "v").write_bytes((tmp_path / "v").read_bytes()[:-5])
    with pytest.raises(CorruptFileError, match="promises 6 words and ends within word 5"):
        load_vectors(tmp_path / "v")
    with pytest.raises(InputError, match="1 words but 6 vectors"):
        save_vectors(tmp_path / "v", ["one"], VECTORS)
    with pytest.raises(InputError, match="'two words' is empty or has a space"):
        save_vectors(tmp_path / "v", ["two words", *WORDS[1:]], VECTORS)


def test_damaged_files_are_refused_and_never_read_as_the_other_format(tmp_path: Path) -> None:
    path, random = tmp_path / "vectors", np.random.default_rng(0)
    words, vectors = [f"w{number}" for number in range(5)], random.normal(size=(5, 4)).astype(np.float32)
    save_vectors(path, words, vectors, binary=False)
    lines = path.read_text().splitlines()
    for damaged, told in (
        ([*lines[:-1]], "promises 5 words and has 4 lines"),
        ([*lines[:2], lines[2] + " 1.0", *lines[3:]], "line 3 is no word with 4 numbers"),
        ([*lines[:3], "w2 1 2 x 4", *lines[4:]], "line 4 is no word"),
        ([*lines[:3], "w2 1 2 nan 4", *lines[4:]], "not finite"),
    ):
        path.write_text("\n".join(damaged) + "\n")
        with pytest.raises(CorruptFileError, match=told):
            load_vectors(path)
    save_vectors(path, words, vectors)
    whole = path.read_bytes()
    path.write_bytes(whole + b"more")
    with pytest.raises(CorruptFileError, match="has more after them"):
        load_vectors(path)
    path.write_bytes(whole.replace(b"w3", b"\xff3"))
    with pytest.raises(CorruptFileError, match="word 3 is not UTF-8"):
        load_vectors(path)


def test_nearest_words_and_analogies_through_the_index() -> None:
    lookup = Lookup(WordVectors(WORDS, VECTORS))
    assert [word for word, _ in lookup.nearest("king", 2).words] == ["man", "été"]
    best = lookup.analogy("man", "king", "woman", 2)
    assert best.words[0][0] == "queen"
    assert best.milliseconds > 0
    assert not {"man", "king", "woman"} & {word for word, _ in lookup.analogy("man", "king", "woman").words}
    with pytest.raises(InputError, match="'kings' has no vector; try king"):
        lookup.nearest("kings")


def test_the_command_answers_and_refuses_in_one_sentence(tmp_path: Path) -> None:
    save_vectors(tmp_path / "v", WORDS, VECTORS)
    command = [sys.executable, "-m", "experiments.skipgram", "analogy", str(tmp_path / "v"), "man", "king"]
    asked = subprocess.run([*command, "woman"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert asked.stdout.split()[1] == "queen"
    assert "ms in the index" in asked.stdout
    refused = subprocess.run([*command, "duke"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith("skipgram: 'duke' has no vector")


# Negative sampling


def test_negative_sampling_is_word2vecs_loss_in_the_mean() -> None:
    torch.manual_seed(0)
    counts = torch.tensor([50, 20, 10, 5, 1])
    head = NegativeSampling(3, 5, counts, negatives=2, samples=20_000)
    torch.nn.init.normal_(head.weight)
    x, positives = torch.randn(1, 3), torch.tensor([[2, 4]])
    noise = counts.double() ** 0.75
    noise = (noise / noise.sum()).float()
    scores = (x @ head.weight.T)[0].detach()
    expected = -torch.nn.functional.logsigmoid(scores[[2, 4]]).sum()
    expected -= 2 * 2 * (noise * torch.nn.functional.logsigmoid(-scores)).sum()
    assert float(head(x, positives).detach()) == pytest.approx(float(expected), rel=0.02)


def test_negative_sampling_learns_log_ratios_to_its_noise() -> None:
    torch.manual_seed(0)
    counts = torch.tensor([60, 30, 10])
    head = NegativeSampling(1, 3, counts, samples=64)
    optimizer = torch.optim.SparseAdam(head.parameters(), lr=0.05)
    shares = torch.tensor([0.2, 0.3, 0.5])
    x = torch.ones(256, 1)
    for _ in range(200):
        loss = head(x, torch.multinomial(shares, 256, replacement=True)) / 256
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    head.eval()
    found = head.log_prob(x[:1]).exp()[0]
    assert torch.allclose(found, shares, atol=0.08)
    assert head.topk(x[:1], 1).classes.item() == 2
