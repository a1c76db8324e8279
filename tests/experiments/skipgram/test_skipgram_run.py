"""The whole experiment in miniature: every stage runs, is killed and resumed, and its page shows it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layer_cases import quick_run

from experiments.frame.page import write_page
from experiments.frame.records import Records
from experiments.frame.stages import Options, redraw
from experiments.skipgram import EXPERIMENT, plan
from experiments.skipgram.chosen_rates import chosen_rates, tried_rates
from experiments.skipgram.heads import learning
from experiments.skipgram.heads.ablations import ABLATIONS
from experiments.skipgram.heads.contestants import CONTESTANTS
from experiments.skipgram.heads.network import SkipGram
from experiments.skipgram.measuring import head_stages, peer_stage, rates
from experiments.skipgram.measuring.task import open_task
from experiments.skipgram.names import FALLING, NAMES, PEER_NAMES, falling, stage_of
from experiments.skipgram.page.documents import texts
from experiments.skipgram.page.page import make_page
from experiments.skipgram.stages import plan_of
from experiments.skipgram.vectors.vector_files import load_vectors
from manyclass.errors import ConfigError, DivergedError, FileError

pytestmark = pytest.mark.usefixtures("thread_counts")

TINY = replace(
    plan.QUICK, corpus=replace(plan.QUICK.corpus, min_count=1, held_out_every=5), features=16, segments=2, seconds=0.15,
    evaluations=2, tests=40, tests_on_the_way=20, rates_seconds=0.02, rates_tests=20,
    ablation_words=200, few_words=50, growth=(50, 100), growth_steps=1,
    seeds=(0,), seeds_seconds=0.02, seeds_words=200, made_sentences=400,
)  # fmt: skip


@pytest.fixture(autouse=True)
def tiny_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "QUICK", TINY)


def test_every_stage_runs_is_resumed_and_the_page_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = quick_run(tmp_path)
    run.records.write_card(EXPERIMENT.name, seed=0, threads=1, options=run.options.fixed())
    stages = {stage.name: stage for stage in EXPERIMENT.stages(run.options)}
    stages["corpus"].run(run)
    stages["rates"].run(run)

    class KilledError(Exception):
        pass

    def killed(*_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:  # killed after the first evaluation: a checkpoint is left and no result
        patch.setattr(head_stages, "save_vectors", killed)
        with pytest.raises(KilledError):
            stages["candidate"].run(run)
    assert not run.records.done(stage="candidate", kind="result")
    checkpoint = head_stages.checkpoint_of(run, "candidate", 0)
    kept = learning.checkpoint_info(checkpoint).extra
    assert kept.pop("rate") == chosen_rates(run.records)["candidate"]
    before = learning.Progress(**kept)
    assert before.step > 0
    for stage in stages.values():
        stage.run(run)
    result = run.records.last(stage="candidate", kind="result")
    assert result is not None
    assert result["step"] >= before.step  # it went on, and did not start again
    assert result["curve"][: len(before.curve)] == before.curve
    assert not checkpoint.exists()
    assert {record["head"] for record in run.records.select(stage="ablations", kind="result")} == set(ABLATIONS)
    assert {(head, rate) for head, tried in tried_rates(run.records).items() for rate in tried} == {
        (head, rate) for head in NAMES for rate in TINY.rates
    }
    assert result["rate"] == chosen_rates(run.records)["candidate"]
    for head in NAMES:
        told = run.records.last(stage=head, kind="result")
        assert told is not None
        assert told["words"] > 0
        assert told["prediction"]["pairs"] > 0
        assert told["google"]["all"]["asked"] > 0
        saved = load_vectors(head_stages.vectors_file(run, head))
        assert len(saved.words) == told["classes"]
    for peer in PEER_NAMES:
        told = run.records.last(stage=stage_of(peer), head=peer)
        assert told is not None
        assert told["kind"] in ("result", "missing", "left_out")
    count = len(run.records.select(kind="result"))
    for stage in stages.values():
        stage.run(run)
    assert len(run.records.select(kind="result")) - count in (0, 1)  # but for a peer that failed the first time
    page = redraw(EXPERIMENT, tmp_path).read_text(encoding="utf-8")
    assert "A quick run shows that everything works" in page
    assert "Not run yet" not in page
    written = texts(run.records)
    assert len(written["skipgram_table"].splitlines()) >= 2 + len(NAMES)


@pytest.mark.filterwarnings("ignore::manyclass.torch.ApproximationWarning")  # few words to choose from
@pytest.mark.parametrize("head", ["candidate", "negative", "hierarchical"])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(head: str, tmp_path: Path) -> None:
    task = open_task(quick_run(tmp_path), TINY)

    def learner(name: str) -> learning.Learner:
        checkpoint = tmp_path / f"{name}.safetensors"
        return learning.Learner(CONTESTANTS[head], task.examples(3), task.frequencies, 16, 3, checkpoint)

    def nothing(network: SkipGram) -> dict[str, object]:
        return {}

    whole = learner("whole")
    whole.learn(learning.Budget(words=600), nothing)
    first = learner("parts")
    first.learn(learning.Budget(words=300), nothing)
    second = learner("parts")
    assert second.progress.words == first.progress.words < 600
    second.progress.curve.clear()
    second.learn(learning.Budget(words=600), nothing)
    assert second.progress.step == whole.progress.step
    np.testing.assert_array_equal(learning.vectors_of(second.network), learning.vectors_of(whole.network))


@pytest.mark.filterwarnings("ignore::manyclass.torch.ApproximationWarning")  # few words to choose from
@pytest.mark.parametrize("head", FALLING)
def test_a_rate_that_falls_does_so_for_words_and_output_layer(head: str, tmp_path: Path) -> None:
    task = open_task(quick_run(tmp_path), TINY)
    contestant = replace(CONTESTANTS[head], rate=0.4, falls=True)
    learner = learning.Learner(contestant, task.examples(0), task.frequencies, 16, 0, tmp_path / "checkpoint")
    seen: list[tuple[float, float]] = []

    def look(network: SkipGram) -> dict[str, object]:
        optimizers = learner.optimizer, network.head.row_optimizer
        seen.append(tuple(optimizer.param_groups[0]["lr"] for optimizer in optimizers))
        return {}

    learner.learn(learning.Budget(words=1000, evaluations=4), look)
    assert all(words == rows < 0.4 for words, rows in seen)
    assert [words for words, _ in seen] == sorted((words for words, _ in seen), reverse=True)


def test_a_page_of_nothing_says_what_was_not_run(tmp_path: Path) -> None:
    page = make_page(Records(tmp_path / "records.jsonl"), tmp_path)
    told = " ".join(section.text for section in page.sections)
    assert all(
        f"`{head}`" in told
        for head in (
            *NAMES,
            *map(falling, FALLING),
            *map(stage_of, PEER_NAMES),
            "rates",
            "ablations",
            "growth",
            "seeds",
            "lookup",
            "corpus",
        )
    )
    assert write_page(page, tmp_path).exists()
    assert texts(Records(tmp_path / "records.jsonl"))["skipgram_table"] == "Not measured yet."


def test_the_rate_that_was_best_on_validation_articles_is_chosen(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    for rate, precision in ((0.4, 0.02), (0.1, 0.03), (0.2, 0.03)):
        records.write(stage="rates", kind="rate", head="negative", rate=rate, average_precision=precision)
    assert chosen_rates(records) == {"negative": 0.1}
    assert head_stages.with_chosen_rate(records, "negative").rate == 0.1
    assert head_stages.with_chosen_rate(records, "sampled") == CONTESTANTS["sampled"]


def test_a_rate_that_diverges_is_recorded_and_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned = head_stages.trained

    def too_high(*given: Any) -> learning.Learner:
        if given[3].rate == max(TINY.rates):
            raise DivergedError("the loss of step 3 is nan; lower the learning rate")
        return learned(*given)

    monkeypatch.setattr(rates, "trained", too_high)
    run = quick_run(tmp_path)
    rates.try_rates(run, ["negative"], TINY)
    assert tried_rates(run.records)["negative"].keys() == set(TINY.rates)
    assert chosen_rates(run.records) == {"negative": min(TINY.rates)}


def test_phrases_and_rare_words_are_chosen_on_the_command_line(tmp_path: Path) -> None:
    chosen = plan_of(Options(quick=True, phrases=2, min_count=7)).corpus
    assert (chosen.phrases, chosen.min_count) == (2, 7)
    assert plan_of(Options(quick=True)) == TINY
    assert plan_of(Options()) == plan.FULL


def test_no_stage_of_the_full_run_takes_more_than_an_hour() -> None:
    assert all(stage.minutes <= 60 for stage in EXPERIMENT.stages(Options()))


def test_a_missing_peer_is_recorded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'gensim'", name="gensim")

    monkeypatch.setattr(peer_stage, "PEERS", {"gensim negative": ("gensim", absent)})
    run = quick_run(tmp_path)
    peer_stage.train_peer(run, "gensim negative", TINY)
    missing = run.records.last(stage="gensim-negative", kind="missing")
    assert missing is not None
    assert "gensim is not installed" in missing["reason"]
    told = make_page(run.records, tmp_path)
    assert any("Left out: gensim, negative" in getattr(part, "text", "") for section in told.sections
               for part in section.parts)  # fmt: skip


def test_a_peer_that_fails_is_recorded_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("Encountered NaN.")

    monkeypatch.setattr(peer_stage, "PEERS", {"fastText": ("fasttext-numpy2", failing)})
    run = quick_run(tmp_path)
    peer_stage.train_peer(run, "fastText", TINY)
    left_out = run.records.last(stage="fastText", kind="left_out")
    assert left_out is not None
    assert left_out["reason"] == "fasttext-numpy2 failed: Encountered NaN."


def test_full_softmax_is_left_out_of_a_large_vocabulary_with_the_reason(tmp_path: Path) -> None:
    run = quick_run(tmp_path)
    head_stages.train_head(run, "full", replace(TINY, full_softmax=10))
    left_out = run.records.last(stage="full", kind="left_out")
    assert left_out is not None
    assert "words would see next to nothing" in left_out["reason"]


def test_without_a_text_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MANYCLASS_WIKIPEDIA", raising=False)
    run = quick_run(tmp_path, quick=False)
    with pytest.raises(FileError, match="no text to learn from; give --corpus FILE"):
        EXPERIMENT.stages(run.options)[0].run(run)


def test_only_the_heads_asked_for_are_run() -> None:
    names = [stage.name for stage in EXPERIMENT.stages(Options(quick=True, heads=("wta",)))]
    assert "wta" in names
    assert "candidate" not in names
    with pytest.raises(ConfigError, match="--head none"):
        EXPERIMENT.stages(Options(heads=("none",)))
