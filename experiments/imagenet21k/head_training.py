"""Stages `softmax_layer` and `heads`: output layers trained on kept features."""

import shutil
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import manyclass.torch as mct
from experiments.frame.stages import Run
from experiments.frame.whole_folder import whole_folder
from experiments.imagenet21k.base_network import BASE_HEAD, base_checkpoint, new_network
from experiments.imagenet21k.examples import CHUNK, Numbers, held_out
from experiments.imagenet21k.features import Features, Floats, open_features
from experiments.imagenet21k.head_names import Series, fields_of, name_of, record_curve
from experiments.imagenet21k.images import Images
from experiments.imagenet21k.plan import Plan
from experiments.peers.problem import Problem
from manyclass.torch.checkpoint import load_checkpoint
from manyclass.training.evaluation import TrunkAndHead, evaluate
from manyclass.training.loop import Trained, train
from manyclass.training.metrics import Accuracy, Metrics

EVALUATIONS = 8
TRAIN_TESTS = 4000  # training examples whose accuracy is told beside the held-out one

# (head, candidates, rule) → settings. "own": every example its own candidates, as in the paper, with the tail that our
# default has; "paper": the paper's literal rule.
HEADS: dict[Series, dict[str, Any]] = {
    ("wta", None, "shared"): {"shared_limit": 1024, "tail": 1024},
    ("wta", 30, "own"): {"candidates": 30, "shared": False},
    ("wta", 300, "own"): {"candidates": 300, "shared": False},
    ("wta", 3000, "own"): {"candidates": 3000, "shared": False},
    ("wta", 30, "paper"): {"candidates": 30, "paper_exact": True},
    ("wta", 300, "paper"): {"candidates": 300, "paper_exact": True},
    ("wta", 3000, "paper"): {"candidates": 3000, "paper_exact": True},
    ("sampled", None, None): {"samples": 1024},
    ("hierarchical", None, None): {},
    ("full", None, None): {},
}


class FeatureBatches:
    """Step → (features, classes), every example once per epoch in a random order."""

    def __init__(self, features: Features, size: int, seed: int) -> None:
        self.features, self.size = features, size
        self.order = np.random.default_rng(seed).permutation(len(features.train))

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        places = np.arange(step * self.size, (step + 1) * self.size) % len(self.order)
        numbers = np.sort(self.order[places])  # reads the file from front to back
        return _tensors(self.features, "train", numbers)


def test_batches(features: Features, count: int) -> list[tuple[Tensor, Tensor]]:
    """Return held-out examples."""
    numbers = np.arange(min(count, len(features.test)))
    return [_tensors(features, "test", numbers[start : start + CHUNK]) for start in range(0, len(numbers), CHUNK)]


def _tensors(features: Features, split: str, numbers: Numbers) -> tuple[Tensor, Tensor]:
    """Return standardized features and classes of some examples."""
    kept, labels = getattr(features, split), getattr(features, f"{split}_labels")
    return features.standardized(kept[numbers]), torch.from_numpy(labels[numbers].astype(np.int64))


def run_heads(run: Run, images: Images, plan: Plan) -> None:
    """Train every output layer from nothing on the same features, for the same seconds each."""
    torch.set_num_threads(run.options.threads)
    features = open_features(run)
    chosen = [key for key in HEADS if not run.options.heads or key[0] in run.options.heads]
    for name, candidates, rule in chosen:
        key = name, candidates, rule
        if run.records.done(stage="heads", kind="result", **fields_of(key)):
            continue
        if candidates is not None and candidates > images.classes:
            continue
        run.console.print(f"  {name_of(key)}, {plan.head_seconds:.0f} s", highlight=False)
        trained = make_and_train(key, run, features, images.classes, plan)
        record_curve(run.records, "heads", key, trained.evaluations, plan.batch)


def make_and_train(key: Series, run: Run, features: Features, classes: int, plan: Plan) -> Trained:
    """Train one output layer from nothing for the planned seconds."""
    torch.manual_seed(run.options.seed)
    head = mct.make_head(key[0], plan.features, classes, **HEADS[key])
    return _train(
        head, FeatureBatches(features, plan.batch, run.options.seed), plan.rates[1], run,
        seconds=plan.head_seconds, evaluate_on=test_batches(features, plan.curve_tests),
        evaluate_every=plan.head_seconds / EVALUATIONS,
    )  # fmt: skip


def run_softmax_layer(run: Run, images: Images, plan: Plan) -> None:
    """Train an exact softmax layer on the kept features to its end: what all approximations are measured against.

    It starts from the rows the network was trained with, passes over all examples with the approximate layer, because
    that is quick, and ends with exact steps over all classes.
    """
    torch.set_num_threads(run.options.threads)
    features = open_features(run)
    tests = test_batches(features, plan.curve_tests)
    network = new_network(plan, images.classes, BASE_HEAD, run.options.seed)
    load_checkpoint(base_checkpoint(run), network)
    approximate = network.head
    assert isinstance(approximate, mct.CandidateSoftmax)
    batch = plan.softmax_batch
    rate = plan.rates[1] * batch / plan.batch  # the gradient is a mean over the batch: a class meets it as often
    steps = round(plan.softmax_epochs * len(features.train) / batch)
    batches = FeatureBatches(features, batch, run.options.seed)
    first = _train(approximate, batches, rate, run, steps=steps, evaluate_on=tests, evaluate_every=max(1, steps // 5),
                   final_rate=0.1, checkpoint=run.cache / "softmax_layer_1.mc")  # fmt: skip
    exact = mct.FullSoftmax.from_linear(approximate.to_linear())
    last = _train(exact, lambda step: batches(steps + step), 0.1 * rate, run, steps=plan.softmax_steps,
                  evaluate_on=tests, evaluate_every=max(1, plan.softmax_steps // 5), final_rate=0.1,
                  checkpoint=run.cache / "softmax_layer_2.mc")  # fmt: skip
    assert exact.bias is not None
    _keep_layer(run, *features.folded(exact.weight.detach().numpy(), exact.bias.detach().numpy().ravel()))
    for trained, before, seconds in ((first, 0, 0.0), (last, first.step, first.seconds)):
        for point in trained.evaluations:
            moved = {"step": before + point["step"], "seconds": seconds + point["seconds"]}
            run.records.write(stage="softmax_layer", kind="evaluation", exact=trained is last, **{**point, **moved})
    layer = open_layer(run)
    sample = np.random.default_rng(0).choice(len(features.train), min(TRAIN_TESTS, len(features.train)), replace=False)
    numbers = np.sort(sample)
    seen = [_tensors(features, "train", numbers)]
    identity = TrunkAndHead(torch.nn.Identity(), exact)
    run.records.write(
        stage="softmax_layer", kind="result", start=f"{BASE_HEAD} head of the base network",
        accuracy=layer.exact_accuracy, by_style=accuracy_by_style(layer, images, plan),
        train_accuracy=evaluate(identity, seen, Metrics([Accuracy()]))["accuracy"],
        steps=first.step + last.step, exact_steps=last.step, seconds=first.seconds + last.seconds, batch=batch,
    )  # fmt: skip


def accuracy_by_style(layer: Problem, images: Images, plan: Plan) -> dict[str, float]:
    """Return the accuracy of the exact layer in each of the held-out styles."""
    styles = images.styles[held_out(images, plan.tests)]
    return {
        images.style_names[style]: layer.accuracy(layer.exact.classes[:, 0], styles == style)
        for style in np.unique(styles)
    }


def _train(
    head: mct.OutputHead,
    batches: Callable[[int], tuple[Tensor, Tensor]],
    rate: float,
    run: Run,
    final_rate: float = 1.0,
    **settings: Any,
) -> Trained:
    """Train one output layer; a rate that falls does so exponentially over the steps."""
    optimizer = mct.RowSGD(head.parameters(), lr=rate, momentum=0.9)
    gamma = final_rate ** (1 / settings["steps"]) if "steps" in settings else 1.0
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mct.ApproximationWarning)  # 3000 candidates are many of these classes
        return train((torch.nn.Identity(), head), batches, optimizer, schedule=schedule, metrics=Metrics([Accuracy()]),
                     progress=run.progress, **settings)  # fmt: skip


def _keep_layer(run: Run, rows: Floats, bias: Floats) -> None:
    """Write rows and bias in the place of those of a killed session."""
    folder = run.cache / "layer"
    shutil.rmtree(folder, ignore_errors=True)
    with whole_folder(folder) as unfinished:
        np.save(unfinished / "rows.npy", rows)
        np.save(unfinished / "bias.npy", bias)


def open_layer(run: Run, tests: int | None = None) -> Problem:
    """Return the trained softmax layer with so many held-out features as its queries, or all."""
    features = open_features(run)
    rows, bias = (np.load(run.cache / "layer" / f"{name}.npy") for name in ("rows", "bias"))
    return Problem(rows, bias, np.asarray(features.test[:tests], np.float32), features.test_labels[:tests])
