"""`make demo`: train a network over 100,000 classes with four output layers, the same seconds each, and compare."""

import argparse
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import manyclass as mc
import manyclass.torch as mct
from experiments.demo.task import Identification, trunk
from manyclass.training.loop import Trained, train
from manyclass.training.metrics import Accuracy, Metrics

HIDDEN, BATCH, RATE, MOMENTUM = 128, 256, 0.3, 0.9
SKEW = 1.0  # classes are as unequal as words: a few are met all the time, most of them hardly ever


@dataclass(frozen=True)
class Contestant:
    """One output layer of the comparison."""

    name: str
    make: Callable[[Identification], mct.OutputHead]
    colour: str


def wta(task: Identification, **settings: Any) -> mct.OutputHead:
    """Return the approximate layer, as it comes unless settings say otherwise."""
    return mct.CandidateSoftmax(HIDDEN, len(task.centres), **settings)


def hierarchical(task: Identification) -> mct.OutputHead:
    """Return a Huffman tree over the true frequencies: the best case of a tree."""
    return mct.HierarchicalSoftmax(HIDDEN, len(task.centres), counts=(task.frequencies * 1e9).long())


def full(task: Identification) -> mct.OutputHead:
    """Return the exact layer."""
    return mct.FullSoftmax(HIDDEN, len(task.centres))


CONTESTANTS = (
    Contestant("manyclass", wta, "#d1361f"),
    Contestant("manyclass, the paper's literal rule", partial(wta, paper_exact=True), "#e89a2c"),
    Contestant("hierarchical softmax", hierarchical, "#2c7fb8"),
    Contestant("full softmax", full, "#5b6670"),
)


@dataclass(frozen=True)
class Result:
    """How one contestant fared."""

    contestant: Contestant
    pipeline: str
    run: Trained

    @property
    def curve(self) -> list[tuple[float, float]]:
        """(seconds, accuracy) at every evaluation."""
        return [(point["seconds"], point["accuracy"]) for point in self.run.evaluations]


def compete(contestant: Contestant, task: Identification, seconds: float, tests: int, evaluations: int) -> Result:
    """Train one head for so many seconds; evaluations cost none of them."""
    torch.manual_seed(0)
    below = trunk(task.centres.shape[1], HIDDEN)
    head = contestant.make(task)
    optimizer = mct.RowSGD([*below.parameters(), *head.parameters()], lr=RATE, momentum=MOMENTUM)
    run = train(
        (below, head),
        lambda step: task.batch(step, BATCH),
        optimizer,
        seconds=seconds,
        evaluate_on=[task.test(tests)],
        evaluate_every=seconds / evaluations,
        metrics=Metrics([Accuracy()]),
    )
    return Result(contestant, getattr(head, "pipeline", "–"), run)


def table_of(results: Iterable[Result], seconds: float) -> Table:
    """Return the comparison as a table."""
    table = Table(
        title=f"After {seconds:.0f} seconds of training each, same data, same optimizer", title_justify="left"
    )
    for column in ("output layer", "retrieval", "steps", "ms per step", "accuracy"):
        table.add_column(column, justify="left" if column in ("output layer", "retrieval") else "right")
    for result in results:
        run = result.run
        per_step = f"{1000 * run.seconds / max(1, run.step):,.1f}"
        row = result.contestant.name, result.pipeline, f"{run.step:,}", per_step, f"{result.curve[-1][1]:.1%}"
        table.add_row(*row, style="bold" if result.contestant is CONTESTANTS[0] else "")
    return table


def draw(results: list[Result], classes: int, path: Path) -> None:
    """Save accuracy against seconds as one figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.2), layout="constrained")
    ends = []
    for result in results:
        seconds, accuracy = zip(*[(0.0, 0.0), *result.curve], strict=True)
        own = result.contestant is CONTESTANTS[0]
        axes.plot(seconds, accuracy, color=result.contestant.colour, lw=3 if own else 1.8, marker="o", ms=4)
        ends.append((accuracy[-1], result.contestant))
    top = max(0.02, *(end for end, _ in ends)) * 1.1
    height = -1.0
    for end, contestant in sorted(ends, key=lambda pair: pair[0]):  # labels at the lines' ends, kept apart
        height = max(end, height + 0.06 * top)
        axes.text(1.01, height / top, contestant.name, color=contestant.colour, va="center", transform=axes.transAxes)
    axes.set(ylim=(0, top), xlim=(0, None), xlabel="seconds of training", ylabel="accuracy on new examples")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"Identifying one of {classes:,} classes, on {torch.get_num_threads()} CPU threads", loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main() -> None:
    """Make the data, train every contestant for the same time, print the table and save the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30, help="training time of each output layer")
    parser.add_argument("--tests", type=int, default=1000, help="new examples to evaluate on")
    parser.add_argument("--evaluations", type=int, default=7)
    parser.add_argument("--figure", type=Path, default=Path("demo-out/demo.png"))
    arguments: Any = parser.parse_args()
    console = Console(width=max(110, Console().width))
    info = mc.backend_info()
    torch.set_num_threads(info.threads)
    warnings.simplefilter("ignore", mct.ApproximationWarning)  # small --classes touch a large share of them
    console.print(f"manyclass: {info.backend} backend, {info.simd}, {info.threads} threads")
    task = Identification.random(arguments.classes, arguments.features, skew=SKEW)
    results = []
    for contestant in CONTESTANTS:
        console.print(f"training with [bold]{contestant.name}[/] for {arguments.seconds:.0f} s")
        results.append(compete(contestant, task, arguments.seconds, arguments.tests, arguments.evaluations))
    console.print(table_of(results, arguments.seconds))
    draw(results, arguments.classes, arguments.figure)
    console.print(f"figure: {arguments.figure}")


if __name__ == "__main__":
    main()
