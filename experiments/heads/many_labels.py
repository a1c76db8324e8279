"""Many labels per example: articles and their subject headings, precision by where the biases start.

The recipe of docs/many_labels.md: TF-IDF of the words, one hidden layer, logistic outputs. Beside it Omikuji, label
trees of linear classifiers, on the same features in the same run.
"""

import contextlib
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import manyclass.torch as mct
from experiments.datasets.missing import MissingDataError
from experiments.datasets.pubmed_mesh import Bags, LabelledText, in_bags, made_articles, pubmed_mesh
from experiments.frame.stages import Run
from experiments.heads.apart import run_apart
from experiments.heads.many_labels_table import OMIKUJI, STAGE, STARTS
from manyclass.torch.priors import PriorSetting
from manyclass.training.metrics import Metrics, PrecisionAt

HIDDEN, BATCH, RATE = 2048, 256, 0.01
MINED: dict[str, Any] = {"mined_examples": BATCH, "mined_candidates": 8}  # few classes: cheap
TAIL = 1024
BEST = (1, 3, 5)
INSTALL = "pip install omikuji"


@dataclass(frozen=True)
class ManyLabelsSizes:
    """made: articles and labels of made data, None for the real ones; passes: over the training articles."""

    made: tuple[int, int] | None
    passes: int
    seeds: tuple[int, ...]


FULL = ManyLabelsSizes(None, 4, (0,))  # more passes learn the articles by heart; starts differ by far more than seeds
QUICK = ManyLabelsSizes((1500, 200), 2, (0,))


def run_many_labels(run: Run) -> None:
    """Write a record for every start of the bias and seed, and for Omikuji, that the records lack."""
    sizes, key = QUICK if run.options.quick else FULL, {"stage": STAGE, "kind": "result"}
    plans = [(name, seed) for seed in sizes.seeds for name in STARTS] + [(OMIKUJI, 0)]
    left = [(name, seed) for name, seed in plans if not run.records.done(name=name, seed=seed, **key)]
    try:
        text = data(sizes)
    except MissingDataError as missing:
        run.records.write(stage=STAGE, kind="missing", reason=missing.reason, install=missing.install)
        return
    told = {"classes": text.classes, "train": len(text.train), "tests": len(text.test), "passes": sizes.passes}
    calls: list[partial[dict[str, Any]]] = [
        partial(omikuji, sizes, run.options.threads) if name == OMIKUJI else partial(learn, name, seed, sizes)
        for name, seed in left
    ]
    with run.progress(len(left), "runs") as show:
        for done, (number, found) in enumerate(run_apart(calls, run.options.threads, fresh=False), start=1):
            name, seed = left[number]
            if "reason" in found:
                run.records.write(stage=STAGE, kind="missing", **found)
                continue
            run.records.write(**key, name=name, seed=seed, hidden=HIDDEN, batch=BATCH, **told, **found)
            show(done, f"{name}: " + ", ".join(f"{value:.3f}" for value in found["precision"]))


def data(sizes: ManyLabelsSizes) -> LabelledText:
    """Return the articles, or made ones."""
    if sizes.made is None:
        return pubmed_mesh()
    count, classes = sizes.made
    return in_bags(made_articles(count, classes, seed=0), made_articles(count // 4, classes, seed=1))


class WordLayer(nn.Module):
    """A weighted sum of word vectors, and rectified units."""

    def __init__(self, words: int, hidden: int) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(words, hidden, mode="sum", sparse=True)
        nn.init.normal_(self.words.weight, std=0.05)
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, words: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
        """Return (articles, hidden): words and weights of all articles in a row, and where each begins."""
        return torch.relu(self.words(words, starts, per_sample_weights=weights) + self.bias)


def batch_of(bags: Bags, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return words, starts and weights of some articles."""
    begin = torch.from_numpy(bags.starts)
    sizes = begin[rows + 1] - begin[rows]
    starts = sizes.cumsum(0) - sizes
    places = torch.arange(int(sizes.sum())) + (begin[rows] - starts).repeat_interleave(sizes)
    return torch.from_numpy(bags.words)[places], starts, torch.from_numpy(bags.weights)[places]


def prior_of(name: str, text: LabelledText) -> PriorSetting:
    """Return the start of the bias by its name."""
    labels = torch.from_numpy(text.train.labels)
    counts = torch.bincount(labels[labels >= 0], minlength=text.classes)
    priors: dict[str, PriorSetting] = {
        "counts": mct.Prior(counts, len(text.train)), "counted": "counted", "default": None, "half": 0.5,
    }  # fmt: skip
    return priors[name]


def learn(name: str, seed: int, sizes: ManyLabelsSizes) -> dict[str, Any]:
    """Return precision after the last pass, and after each as (step, seconds of training, precisions)."""
    warnings.simplefilter("ignore", mct.ApproximationWarning)
    text = data(sizes)
    torch.manual_seed(seed)
    below = WordLayer(text.vocabulary, HIDDEN)
    head = mct.CandidateSoftmax(
        HIDDEN, text.classes, output="logistic", prior=prior_of(name, text), tail=TAIL, seed=seed,
        meter_every=0, **MINED,
    )  # fmt: skip
    optimizer = mct.RowAdam([*below.parameters(), *head.parameters()], lr=RATE)
    labels = torch.from_numpy(text.train.labels)
    steps = -(-len(labels) // BATCH) * sizes.passes
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    spent = 0.0
    curve: list[tuple[int, float, list[float]]] = []
    for _ in range(sizes.passes):
        started = time.perf_counter()
        for rows in torch.randperm(len(labels)).split(BATCH):
            loss = head(below(*batch_of(text.train, rows)), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        spent += time.perf_counter() - started
        curve.append((schedule.last_epoch, spent, precision(below, head, text.test)))
    return {"precision": curve[-1][2], "curve": curve, "steps": steps, "seconds": spent}


def precision(below: nn.Module, head: mct.CandidateSoftmax, test: Bags) -> list[float]:
    """Return the share of right ones among the best labels, judged by the exact best."""
    metrics = Metrics([PrecisionAt(k) for k in BEST])
    below.eval(), head.eval()
    with torch.no_grad(), head.exact():
        for rows in torch.arange(len(test)).split(512):
            metrics.update(head.topk(below(*batch_of(test, rows)), max(BEST)).classes, test.labels[rows.numpy()])
    below.train(), head.train()
    return [float(value) for value in metrics.compute().values()]


def omikuji(sizes: ManyLabelsSizes, threads: int) -> dict[str, Any]:
    """Return precision and seconds of training of Omikuji with its own settings; or why it is left out."""
    try:
        from omikuji import Model
    except ImportError:
        return {"reason": "no Omikuji to compare with", "install": INSTALL}
    text = data(sizes)
    metrics = Metrics([PrecisionAt(k) for k in BEST])
    with tempfile.TemporaryDirectory() as folder, _quiet():
        file = Path(folder) / "train.txt"
        write_sparse(text, file)
        started = time.perf_counter()
        model = Model.train_on_data(str(file), Model.default_hyper_param(), threads)
        seconds = time.perf_counter() - started
    test = text.test
    for article in range(len(test)):
        its = slice(test.starts[article], test.starts[article + 1])
        found = model.predict(
            [*zip(test.words[its].tolist(), test.weights[its].tolist(), strict=True)], top_k=max(BEST)
        )
        best = [label for label, _ in found] + [-1] * (max(BEST) - len(found))
        metrics.update([best], test.labels[article : article + 1])
    return {"precision": [float(value) for value in metrics.compute().values()], "seconds": seconds, "steps": None}


def write_sparse(text: LabelledText, file: Path) -> None:
    """Write the training articles as the extreme classification repository has them; one without words says nothing."""
    train = text.train
    lines = []
    for labels, begin, end in zip(train.labels, train.starts[:-1], train.starts[1:], strict=True):
        if end > begin:
            pairs = zip(train.words[begin:end].tolist(), train.weights[begin:end].tolist(), strict=True)
            words = " ".join(f"{word}:{weight:.6f}" for word, weight in pairs)
            lines.append(f"{','.join(map(str, labels[labels >= 0].tolist()))} {words}")
    file.write_text("\n".join([f"{len(lines)} {text.vocabulary} {text.classes}", *lines, ""]), encoding="utf-8")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Send what a native library writes to the terminal nowhere."""
    kept = {stream: os.dup(stream) for stream in (1, 2)}
    with open(os.devnull, "wb") as nowhere:
        try:
            for stream in kept:
                os.dup2(nowhere.fileno(), stream)
            yield
        finally:
            for stream, before in kept.items():
                os.dup2(before, stream)
                os.close(before)
