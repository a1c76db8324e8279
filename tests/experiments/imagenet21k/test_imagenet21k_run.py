"""The first experiment from its pictures to its page, in miniature; nothing in it is left out but the size."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from experiments.frame.records import Records
from experiments.frame.stages import CACHE, RECORDS, Options, Run, run_experiment
from experiments.imagenet21k import features, model, training
from experiments.imagenet21k import stages as experiment
from experiments.imagenet21k.model import QUICK
from manyclass.errors import ConfigError

PLAN = replace(
    QUICK, features=64, hidden=32, widths=(4, 6, 8, 8, 6), drawn_classes=2500, batch=64, warm_up_every=50,
    warm_up_steps=60, base_steps=40, examples=5000, tests=600, curve_tests=200, softmax_steps=12, softmax_batch=250,
    head_seconds=0.5, batches=(1, 8), candidates=(10, 300),
)  # fmt: skip


class KilledError(Exception):
    """Stands for the end of a process in the middle of a stage."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the experiment, killed once in the middle of a stage and resumed."""
    out = tmp_path_factory.mktemp("imagenet21k")
    options = Options(quick=True, threads=1, seed=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "QUICK", PLAN)
        original, calls = training.learn_from_nothing, []

        def killed_at_the_third(*arguments: object) -> object:
            calls.append(arguments)
            if len(calls) == 3:
                raise KilledError
            return original(*arguments)

        patch.setattr(training, "learn_from_nothing", killed_at_the_third)
        with pytest.raises(KilledError):
            run_experiment(experiment.EXPERIMENT, out, options, False, Console(quiet=True))
        run_experiment(experiment.EXPERIMENT, out, options, True, Console(quiet=True))
    return out


def run_of(out: Path) -> Run:
    return Run(out, Options(quick=True, threads=1, seed=3), Records(out / RECORDS), Console(quiet=True))


def test_every_stage_ends_and_no_head_is_trained_twice(finished: Path) -> None:
    records = Records(finished / RECORDS)
    assert [end["stage"] for end in records.select(kind="stage_end")] == [
        stage.name for stage in experiment.stages(Options(quick=True))
    ]
    trained = [(end["head"], end["candidates"], end["rule"]) for end in records.select(stage="heads", kind="result")]
    assert sorted(map(str, trained)) == sorted(map(str, (key for key in training.HEADS if key[1] != 3000)))
    assert len(records.select(kind="card")) == 2


def test_the_network_learns_what_it_is_shown_first(finished: Path) -> None:
    warm = Records(finished / RECORDS).last(stage="warm_up", kind="result")
    assert warm is not None
    assert warm["classes"] == 50
    assert warm["accuracy"] > 5 / 50


def test_folded_layer_gives_the_logits_of_the_trained_one(finished: Path) -> None:
    """Rows over features as they are answer as rows over standardized ones do."""
    kept = features.open_features(run_of(finished))
    random = np.random.default_rng(0)
    rows = random.standard_normal((30, PLAN.features)).astype(np.float32)
    bias = random.standard_normal(30).astype(np.float32)
    wanted = kept.standardized(kept.test[:100]) @ torch.from_numpy(rows).T + torch.from_numpy(bias)
    folded, folded_bias = kept.folded(rows, bias)
    found = np.asarray(kept.test[:100], np.float32) @ folded.T + folded_bias
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-3, atol=1e-3)


def test_exact_layer_is_what_the_records_say(finished: Path) -> None:
    run = run_of(finished)
    layer = features.open_layer(run)
    result = run.records.last(stage="softmax_layer", kind="result")
    assert result is not None
    assert result["accuracy"] == layer.exact_accuracy
    measured = run.records.select(stage="layer", kind="result")
    assert {record["exact_accuracy"] for record in measured} == {layer.exact_accuracy}
    assert run.records.done(stage="layer", pipeline="paper", batch=8, candidates=300)


def test_page_stands_with_all_that_was_run(finished: Path) -> None:
    page = (finished / "report.html").read_text(encoding="utf-8")
    for name in ("accuracy", "heads", "end_to_end", "variance"):
        assert f'data-figure="{name}' in page
    assert "2,500" in page
    assert (finished / CACHE / "images").is_dir()


def test_an_output_layer_that_does_not_exist_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="--head wtf: there is no such output layer; give one of "):
        experiment.stages(Options(quick=True, heads=("wta", "wtf")))
