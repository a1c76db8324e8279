"""The tasks are what they say: families are families, known places are no answers, test articles have their ids."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import manyclass.torch as mct
from experiments.datasets.gowalla import Visits
from experiments.datasets.kept_features import Features
from experiments.heads.sizes import FULL, QUICK
from experiments.heads.tasks import Task, Where, open_task
from experiments.heads.tasks.articles import COMMON, WINDOW, ArticlesTask
from experiments.heads.tasks.curve import Budget, Learner, learn
from experiments.heads.tasks.han import HanTask, han
from experiments.heads.tasks.places import PlacesTask
from experiments.heads.tasks.points import family_centres

NAMES = tuple(FULL.tasks)


def quick(name: str, seed: int = 0) -> Task:
    return open_task(name, QUICK.tasks[name], Where(quick=True), seed)


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_functions_of_step_and_seed(name: str) -> None:
    task, again, other = quick(name), quick(name), quick(name, seed=1)
    for mine, same in zip(task.batch(7, 16), again.batch(7, 16), strict=True):
        assert mine.equal(same)
    assert not task.batch(7, 16)[0].equal(task.batch(8, 16)[0])
    assert not task.batch(7, 16)[0].equal(other.batch(7, 16)[0])


@pytest.mark.parametrize("name", NAMES)
def test_targets_are_classes_and_validation_is_no_test(name: str) -> None:
    task = quick(name)
    assert task.classes == QUICK.tasks[name].classes
    assert (task.frequencies is not None) == QUICK.tasks[name].skewed == FULL.tasks[name].skewed
    validation, test = task.validation(50), task.test(50)
    for targets in (task.batch(0, 16)[1], validation.targets, test.targets):
        assert int(targets.max()) < task.classes
        assert int(targets.min()) >= -1
    same = validation.inputs.shape == test.inputs.shape and validation.inputs.equal(test.inputs)
    assert not (same and validation.targets.equal(test.targets))
    read = task.trunk()(task.batch(0, 16)[0])
    assert read.shape == (16, task.features)


def test_frequencies_are_those_of_the_targets() -> None:
    task = quick("articles")
    assert task.frequencies is not None
    assert float(task.frequencies.sum()) == pytest.approx(1)
    drawn = torch.cat([task.batch(step, 500)[1] for step in range(40)])
    counted = drawn.bincount(minlength=task.classes) / len(drawn)
    assert float((counted - task.frequencies).abs().max()) < 0.003


def test_families_are_families() -> None:
    classes, in_families = 2000, 40
    centres = family_centres(classes, in_families, seed=0)
    family = torch.arange(classes) % in_families
    middles = torch.stack([centres[family == number].mean(0) for number in range(in_families)])
    own = (centres - middles[family]).square().mean().sqrt()
    between = middles.std()
    assert float(own) == pytest.approx(0.6, rel=0.05)
    assert float(between) == pytest.approx(1, rel=0.1)
    nearest = torch.cdist(centres, centres).fill_diagonal_(torch.inf).argmin(1)
    assert float((family[nearest] == family).float().mean()) > 0.99


# Places


def small_places() -> PlacesTask:
    """Return two users and 30 places: what is known, nothing to validate by, and what is held out."""
    known = Visits.of([np.array([3, 4, 5]), np.array([0, 1])])
    held_out = Visits.of([np.array([6, 7, 28]), np.array([2])])
    return PlacesTask(known, held_out, held_out, 30, seed=0)


class FixedLearner(Learner):
    """A learner whose layer gives the logits that it is told."""

    def __init__(self, task: Task, logits: Tensor) -> None:
        self.task, self.trunk = task, torch.nn.Identity()
        self.head = mct.FullSoftmax(logits.shape[0], logits.shape[1])
        with torch.no_grad():
            self.head.get_parameter("weight").copy_(logits.T)
            self.head.get_parameter("bias").zero_()


def test_recall_and_ndcg_are_those_of_a_hand_computed_case() -> None:
    task = small_places()
    examples = task.tests_at_the_end()["all users"]
    users = [0 if 28 in row else 1 for row in examples.targets.tolist()]
    # Every user ranks the places by number. User 0 knows 3, 4, 5: its ranking is 0 1 2 6 7 8 … 22, so that 6 and 7 are
    # at ranks 4 and 5 and 28 is beyond 20. User 1 knows 0 and 1: place 2 is first.
    by_number = -torch.arange(30.0)
    learner = FixedLearner(task, torch.stack([by_number, by_number]))
    asked = type(examples)(torch.eye(2)[users], examples.targets, examples.excluded)
    found = learner.scores(asked)
    assert found["recall@20"] == pytest.approx((2 / 3 + 1) / 2)
    best = sum(1 / math.log2(rank + 1) for rank in (1, 2, 3))
    gained = sum(1 / math.log2(rank + 1) for rank in (4, 5))
    assert found["ndcg@20"] == pytest.approx((gained / best + 1) / 2)


def test_what_is_read_is_not_wanted() -> None:
    task = quick("places")
    read, wanted = task.batch(3, 64)
    for places, others in zip((read - 1).tolist(), wanted.tolist(), strict=True):
        assert any(place >= 0 for place in others)
        assert any(place >= 0 for place in places)
        assert not {place for place in places if place >= 0} & {place for place in others if place >= 0}


# Articles


def test_test_articles_have_the_ids_of_their_words() -> None:
    """A made article has twenty words of its own: those of a test window belong to the class that it is said to be."""
    task = quick("articles")
    assert isinstance(task, ArticlesTask)
    words_of: list[set[int]] = [set() for _ in range(task.classes)]
    train = task.texts.train
    for article, label in enumerate(train.labels.tolist()):
        words_of[label] |= set(train.words[train.starts[article] : train.starts[article + 1]].tolist())
    for part in (task.test(40), task.validation(40)):
        assert part.inputs.shape[1] == WINDOW
        assert not ((part.inputs > 0) & (part.inputs <= COMMON)).any()
        for window, label in zip(part.inputs.tolist(), part.targets.tolist(), strict=True):
            known = [word in words_of[label] for word in window if word]
            assert np.mean(known) > 0.15  # of another article's words they would be one in forty


def test_editions_are_split_into_validation_and_test() -> None:
    task = quick("articles")
    validation, test = (set(part(10_000).targets.tolist()) for part in (task.validation, task.test))
    assert not validation & test
    assert len(validation | test) == task.classes


# Han


def test_han_features_are_those_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "features"
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    kept = {"train": random.random((30, 8)).astype(np.float16), "train_labels": np.arange(30) % 7,
            "test": random.random((20, 8)).astype(np.float16), "test_labels": np.arange(20) % 7,
            "mean": np.full(8, 0.5, np.float32), "scale": np.full(8, 2, np.float32)}  # fmt: skip
    for name, array in kept.items():
        np.save(folder / f"{name}.npy", array)
    task = han(tmp_path, seed=0)
    assert isinstance(task, HanTask)
    assert isinstance(task.kept, Features)
    assert (task.classes, task.features) == (7, 8)
    inputs, labels = task.batch(0, 12)
    for row, label in zip(inputs.numpy(), labels.tolist(), strict=True):
        place = int(np.argmin(np.abs((kept["train"] - 0.5) * 2 - row).sum(1)))
        assert kept["train_labels"][place] == label
    assert len(task.validation(100).inputs) + len(task.test(100).inputs) == 20


# A run


def test_a_run_is_judged_at_every_tenth() -> None:
    task = quick("demo")
    _, found = learn(task, "sampled", 0.1, 0, 16, Budget(steps=20), task.test(50))
    assert [step for step, _, _ in found["curve"]] == list(range(2, 21, 2))
    assert found["steps"] == 20
    _, slow = learn(task, "full", 0.1, 0, 16, Budget(seconds=1e-6), task.test(50))
    assert slow["steps"] == 1
    assert len(slow["curve"]) == 10  # one step that took all of the time stands at every tenth


def test_a_run_that_diverges_says_so() -> None:
    task = quick("demo")
    _, found = learn(task, "full", 1e18, 0, 16, Budget(steps=20), task.test(50))
    assert found["diverged"]
    assert found["curve"][-1][2] == 0
    assert len(found["curve"]) == 10


def test_judging_goes_by_the_exact_best_class() -> None:
    task = quick("demo")
    examples = task.test(60)
    learner, _ = learn(task, "hierarchical", 0.3, 0, 64, Budget(steps=60), examples)
    learner.trunk.eval()
    best = learner.head.topk(learner.trunk(examples.inputs), 1).classes[:, 0]
    assert learner.scores(examples)["accuracy"] == pytest.approx(float((best == examples.targets).float().mean()))
