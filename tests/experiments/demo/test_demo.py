"""The demo: every output layer is trained and told of, on its page, in the terminal and in the documents."""

from pathlib import Path

import pytest
import tiny_demo
import torch
from browser import assert_page_is_whole
from rich.console import Console

from experiments.demo import stages as demo_stages
from experiments.demo.page import NAMES, documents, make_page, results_table
from experiments.demo.task import Identification, trunk
from experiments.frame.page import write_page
from experiments.frame.records import Records
from experiments.frame.stages import Options, run_experiment
from manyclass.errors import ConfigError
from manyclass.torch import HEADS


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the whole demo in miniature."""
    folder = tmp_path_factory.mktemp("demo")
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_stages, "QUICK", tiny_demo.PLAN)
        run_experiment(tiny_demo.EXPERIMENT, folder, Options(quick=True, threads=1), False, Console(quiet=True))
    torch.set_num_threads(threads)
    return folder


def test_every_head_of_the_library_is_trained(out: Path) -> None:
    records = Records(out / "records.jsonl")
    assert sorted(NAMES) == sorted(HEADS)
    for head in NAMES:
        result = records.last(stage=head, kind="result")
        assert result is not None
        assert result["steps"] > 0
        assert result["seconds"] >= tiny_demo.PLAN.seconds
        assert result["curve"][-1][1] == result["accuracy"]
    assert [row[0] for row in results_table(records).rows] == list(NAMES.values())


def test_the_page_has_the_figure_and_the_table(out: Path) -> None:
    text = (out / "report.html").read_text()
    assert all(name.replace("'", "&#39;") in text for name in NAMES.values())
    assert (out / "figures" / "demo.png").exists()
    assert_page_is_whole(out / "report.html", {"demo"})


def test_a_page_of_nothing_can_be_drawn(tmp_path: Path) -> None:
    assert write_page(make_page(Records(tmp_path / "records.jsonl"), tmp_path), tmp_path).exists()


def test_documents_have_a_row_for_each_head(out: Path) -> None:
    texts = documents(Records(out / "records.jsonl"))
    assert len(texts["demo_table"].splitlines()) == 2 + len(NAMES)
    assert texts["demo_wta_accuracy"].endswith("%")


# The task


def test_batches_are_functions_of_their_number_and_tests_are_apart() -> None:
    task = Identification.random(100, 8, seed=3, skew=1.0)
    first, labels = task.batch(5, 32)
    again, labels_again = Identification.random(100, 8, seed=3, skew=1.0).batch(5, 32)
    assert torch.equal(first, again)
    assert torch.equal(labels, labels_again)
    assert not torch.equal(first, task.batch(6, 32)[0])
    assert not torch.equal(first, task.test(32)[0])


def test_skewed_classes_are_met_as_often_as_they_say() -> None:
    task = Identification.random(20, 4, skew=1.0)
    _, labels = task.batch(0, 20_000)
    found = labels.bincount(minlength=20) / len(labels)
    assert torch.allclose(found.double(), task.frequencies, atol=0.015)


def test_an_unknown_trunk_is_refused() -> None:
    with pytest.raises(ConfigError, match="kind='round' is unknown; choose 'plain' or 'normalized'"):
        trunk(4, 8, "round")
