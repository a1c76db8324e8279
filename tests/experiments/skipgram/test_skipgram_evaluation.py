"""What is measured, each definition on a case worked out by hand; and the examples that are learned from."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.skipgram.evaluation.analogies import Question, answer_analogies, google_questions, msr_questions
from experiments.skipgram.evaluation.prediction import HeldOut, bands_of, evaluate, measures, ranks_of, unigram
from experiments.skipgram.evaluation.similarity import agreement, average_ranks, read_similarity_set, spearman
from experiments.skipgram.evaluation.word_sets import read_word_sets
from experiments.skipgram.peers.tree_probabilities import levels_of, tree_log_probs
from experiments.skipgram.text.corpus import Corpus
from experiments.skipgram.text.examples import Batch, Examples, kept_share, made_ahead
from manyclass._reference.skip_gram import SEPARATOR
from manyclass.errors import CorruptFileError, FileError, InputError

# Prediction


def test_precision_at_k_is_the_share_of_pairs_among_the_best_k() -> None:
    scores = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.1, 0.4, 0.4, 0.1]])
    ranks = ranks_of(scores, torch.tensor([[0, 2, -1], [2, 3, 1]]))
    assert ranks[0, :2].tolist() == [1, 3]
    assert ranks[1].tolist() == [2, 4, 1]  # of equal ones the lower number is first
    told = measures(torch.tensor([1, 3, 2, 4, 1]))
    assert told["precision"]["1"] == pytest.approx(2 / 5)
    assert told["precision"]["3"] == pytest.approx(4 / 5)
    assert told["precision"]["5"] == 1
    assert told["average_precision"] == pytest.approx((1 + 1 / 3 + 1 / 2 + 1 / 4 + 1) / 5)
    assert measures(torch.tensor([]))["precision"]["1"] is None


def test_evaluation_counts_pairs_by_band_and_their_perplexity() -> None:
    batch = Batch(torch.tensor([0, 2]), torch.tensor([1, 0]), torch.tensor([[0, -1], [1, 2]]))  # words 2 and 0
    table = torch.tensor([[0.1, 0.6, 0.3], [0, 0, 0], [0.5, 0.25, 0.25]]).log()
    found = evaluate(lambda words: table[words], HeldOut(batch, torch.tensor([0, 1, 2]), None))
    assert found["pairs"] == 3
    assert found["precision"]["1"] == pytest.approx(2 / 3)  # 2 → 0 and 0 → 1 are right, 0 → 2 is second
    assert found["perplexity"] == pytest.approx((0.5 * 0.6 * 0.3) ** (-1 / 3), rel=1e-5)
    assert [found["bands"][band]["pairs"] for band in ("head", "torso", "tail")] == [1, 1, 1]
    assert found["bands"]["tail"]["precision"]["1"] == 0


def test_bands_part_the_occurrences_and_not_the_words() -> None:
    assert bands_of(np.array([50, 30, 10, 5, 5])).tolist() == [0, 1, 1, 2, 2]


def test_held_out_pairs_are_those_of_the_text_and_the_unigram_guess_is_the_frequent_word() -> None:
    text = np.array([0, 1, SEPARATOR, 0, 2, SEPARATOR], np.uint32)
    corpus = Corpus(text, text, text, np.array([6, 3, 1]), ["a", "b", "c"])
    held_out = HeldOut.of(corpus, 100, window=1, sample=0, trained=0)
    pairs = [
        (int(held_out.batch.distinct[word]), int(near))
        for word, row in zip(held_out.batch.words, held_out.batch.neighbours, strict=True)
        for near in row
        if near >= 0
    ]
    assert sorted(pairs) == [(0, 1), (0, 2), (1, 0), (2, 0)]
    assert evaluate(unigram(corpus, 0), held_out)["precision"]["1"] == 0.5
    nothing = Corpus(text, text, text[:0], corpus.counts, corpus.words)
    with pytest.raises(InputError, match="too few articles to hold one out"):
        HeldOut.of(nothing, 100, window=1, sample=0, trained=0)


def test_over_all_words_probabilities_are_divided_by_the_shares_that_were_learned_from() -> None:
    text = np.array([0, 1] * 20, np.uint32)
    corpus = Corpus(text, text, text, np.array([90_000, 10]), ["a", "b"])
    assert HeldOut.of(corpus, 10, window=1, sample=1e-3, trained=1e-3).offsets is None
    offsets = HeldOut.of(corpus, 10, window=1, sample=0, trained=1e-3).offsets
    assert offsets is not None
    assert offsets[0] == pytest.approx(-np.log(kept_share(corpus.counts, 1e-3)[0]), rel=1e-5)
    assert offsets[1] == 0


# Examples


def test_the_share_that_stays_is_word2vecs() -> None:
    counts = np.array([1000, 10, 1])
    shares = kept_share(counts, 0.01)
    relative = 0.01 * 1011 / 1000
    assert shares[0] == pytest.approx(relative**0.5 + relative)
    assert shares[1:].tolist() == [1, 1]
    assert kept_share(counts, 0).tolist() == [1, 1, 1]


def test_a_batch_is_a_function_of_its_number_and_an_epoch_has_every_word_once() -> None:
    text = np.arange(64, dtype=np.uint32)
    examples = Examples(text, np.ones(64), window=2, segments=2, length=8, seed=3)
    assert examples.batches == 4
    assert torch.equal(examples.batch(6).neighbours, examples.batch(6).neighbours)
    words = torch.cat([(batch := examples.batch(number)).distinct[batch.words] for number in range(4)])
    assert sorted(words.tolist()) == list(range(64))
    assert words.tolist() != list(range(64))
    assert not torch.equal(examples.batch(0).distinct, examples.batch(4).distinct)  # another order, another epoch
    first = examples.batch(0)
    assert first.pairs == int((first.neighbours >= 0).sum())
    with pytest.raises(InputError, match="the text has 1 words"):
        Examples(text[:1], np.ones(64))


def test_what_is_made_ahead_comes_in_order_and_errors_come_through() -> None:
    assert list(islice(made_ahead(lambda number: number * 10, first=3), 4)) == [30, 40, 50, 60]

    def make(number: int) -> int:
        return 1 // (2 - number)

    with pytest.raises(ZeroDivisionError):
        list(islice(made_ahead(make), 5))


# Analogies and similarities

VECTORS = np.array([[1, 0.1], [1, 1], [-1, 0.1], [-1, 1], [0, -1]], np.float32)
NUMBERS = {"man": 0, "king": 1, "woman": 2, "queen": 3, "fish": 4}


def test_an_analogy_is_answered_by_the_nearest_other_word_and_unknown_words_are_counted() -> None:
    questions = [
        Question("royal", ("man", "king", "woman", "queen")),
        Question("royal", ("man", "king", "woman", "fish")),
        Question("gram1", ("man", "king", "woman", "queen")),
        Question("gram1", ("man", "king", "dog", "queen")),
    ]
    found = answer_analogies(VECTORS, NUMBERS, questions)
    assert found["semantic"] == {"asked": 2, "left_out": 0, "right": 0.5}
    assert found["syntactic"] == {"asked": 1, "left_out": 1, "right": 1.0}
    assert found["all"] == {"asked": 3, "left_out": 1, "right": pytest.approx(2 / 3)}
    unknown = answer_analogies(VECTORS, {}, questions)
    assert unknown["all"] == {"asked": 0, "left_out": 4, "right": None}


def test_files_of_questions_are_read_and_broken_lines_named(tmp_path: Path) -> None:
    (tmp_path / "questions-words.txt").write_text(": capitals\nAthens Greece Oslo Norway\n: gram1-x\na b c d\n")
    (tmp_path / "analogy-msr.txt").write_text("good better rough JJ_JJR rougher\n")
    google = google_questions(tmp_path / "questions-words.txt")
    assert google[0] == Question("capitals", ("athens", "greece", "oslo", "norway"))
    msr = msr_questions(tmp_path / "analogy-msr.txt")
    assert msr == [Question("JJ_JJR", ("good", "better", "rough", "rougher"))]
    (tmp_path / "broken.txt").write_text("a b c d\na b c\n")
    with pytest.raises(CorruptFileError, match=r"broken.txt, line 2 has 3 words; a question has four"):
        google_questions(tmp_path / "broken.txt")
    sets = read_word_sets(tmp_path)
    assert sets.missing == ["word-sim"]
    assert sets.ask(VECTORS, list(NUMBERS))["msr"] == {"asked": 0, "left_out": 1, "right": None}
    with pytest.raises(FileError, match=r"has none of questions-words\.txt"):
        read_word_sets(tmp_path / "nowhere")


def test_spearman_is_the_correlation_of_ranks_with_ties_in_the_middle() -> None:
    assert average_ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1, 3.5, 2]
    assert spearman([1, 2, 3], [10, 100, 1000]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert spearman([1, 1], [1, 2]) is None


def test_similarity_leaves_out_unknown_words_and_says_how_many(tmp_path: Path) -> None:
    file = tmp_path / "EN-SOME.txt"
    file.write_text("man\tking\t8\nman woman 4\nman\tfish\t1\nman\tdog\t9\n\n")
    known = read_similarity_set(file)
    assert known.name == "SOME"
    assert agreement(VECTORS, NUMBERS, known)["left_out"] == 1
    assert agreement(VECTORS, {}, known) == {"pairs": 0, "left_out": 4, "correlation": None}
    file.write_text("man king\n")
    with pytest.raises(CorruptFileError, match="line 1 is 'man king'; expected two words and a number"):
        read_similarity_set(file)


# Somebody else's tree


def test_tree_probabilities_are_products_of_answers_and_add_up() -> None:
    points = [[1], [1, 0], [1, 0]]  # root 1 has word 0 and node 0, which has words 1 and 2
    sides = [[1.0], [-1.0, 1.0], [-1.0, -1.0]]
    logits = torch.tensor([[0.3, -1.2], [2.0, 0.5]])
    found = tree_log_probs(levels_of(points, sides, nodes=2), logits, words=3)
    yes, no = torch.sigmoid(logits), torch.sigmoid(-logits)
    expected = torch.stack([yes[:, 1], no[:, 1] * yes[:, 0], no[:, 1] * no[:, 0]], 1)
    torch.testing.assert_close(found.exp(), expected)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(2))
