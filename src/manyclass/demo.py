"""`make demo`: index 200,000 classes made on the spot, and compare with exact softmax: time, accuracy kept, memory."""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import manyclass as mc

Floats = npt.NDArray[np.float32]
BATCHES = (1, 64)


@dataclass(frozen=True)
class Problem:
    """Rows and biases of an output layer, activations, and the class each activation belongs to."""

    rows: Floats
    bias: Floats
    queries: Floats
    labels: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Result:
    """One line of the table; bytes are beside the rows."""

    name: str
    pipeline: str
    microseconds: dict[int, float]  # batch size -> per query
    accuracy: float
    bytes_per_class: float
    build_seconds: float


def make_problem(classes: int, features: int, queries: int, seed: int = 0) -> Problem:
    """Return an identification task: a class is a random direction of unequal length, an example a noisy copy."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((classes, features), np.float32)
    rows *= np.exp(0.1 * random.standard_normal((classes, 1), np.float32))
    labels = random.integers(0, classes, queries)
    noise = 1.5 * random.standard_normal((queries, features), np.float32)
    return Problem(rows, 0.5 * random.standard_normal(classes, np.float32), rows[labels] + noise, labels)


def exact_softmax(problem: Problem) -> Result:
    """Return the dense layer: every logit, softmax, ten best."""

    def best_ten(queries: Floats) -> npt.NDArray[np.int64]:
        logits = (problem.rows @ queries.T).T + problem.bias
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        top = np.argpartition(-logits, 10, axis=1)[:, :10]
        order = np.argsort(-np.take_along_axis(logits, top, 1), axis=1, kind="stable")
        return np.take_along_axis(top, order, 1)

    best = np.concatenate(
        [best_ten(part)[:, 0] for part in np.array_split(problem.queries, len(problem.queries) // 50)]
    )
    times = {batch: per_query(best_ten, problem.queries, batch) for batch in BATCHES}
    return Result("exact softmax", "exact", times, float((best == problem.labels).mean()), 0, 0)


def indexed(problem: Problem, name: str, config: mc.HashConfig | None, console: Console) -> Result:
    """Build an index, with a progress bar, and measure it."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"building {name}", total=len(problem.rows))
        start = time.perf_counter()
        index = mc.WTAIndex.build(
            problem.rows,
            bias=problem.bias,
            config=config,
            progress=lambda done, _: progress.update(task, completed=done),
        )
        seconds = time.perf_counter() - start
    found = index.search(problem.queries, 1).classes[:, 0]
    times = {batch: per_query(lambda x: index.search(x, 10), problem.queries, batch) for batch in BATCHES}
    own = sum(size for part, size in index.memory_report().items() if part != "rows")
    pipeline = f"{index.config.pipeline}, K={index.config.candidates}"
    return Result(name, pipeline, times, float((found == problem.labels).mean()), own, seconds)


def per_query(search: Callable[[Floats], object], queries: Floats, batch: int) -> float:
    """Return microseconds per query: the best of a few rounds, as other programs only ever add to a time."""
    time.sleep(0.2)  # let the linear-algebra library's threads come to rest
    best = np.inf
    for begin in range(0, min(len(queries), 12 * batch), batch):
        start = time.perf_counter()
        search(queries[begin : begin + batch])
        best = min(best, time.perf_counter() - start)
    return best / batch * 1e6


def show(results: list[Result], console: Console) -> None:
    """Print the table; speed-ups are against the first line."""
    exact = results[0]
    table = Table(
        title="Ten best classes of each query: microseconds per query, accuracy, memory beside the rows",
        title_justify="left",
    )
    for column in (
        "",
        "stages",
        *(f"µs/query, batch {b}" for b in BATCHES),
        "accuracy",
        "kept",
        "bytes/class",
        "build s",
    ):
        table.add_column(column, justify="left" if column in ("", "stages") else "right")
    for r in results:
        times = [f"{r.microseconds[b]:,.0f}  ({exact.microseconds[b] / r.microseconds[b]:,.0f}×)" for b in BATCHES]
        shares = f"{r.accuracy:.3f}", f"{r.accuracy / exact.accuracy:.1%}"
        table.add_row(r.name, r.pipeline, *times, *shares, f"{r.bytes_per_class:,.0f}", f"{r.build_seconds:.1f}")
    console.print(table)


def draw(results: list[Result], path: Path) -> None:
    """Save the comparison as one figure: time per query, with the accuracy kept on each bar."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(BATCHES), figsize=(9, 3), layout="constrained", sharey=True)
    colours = ("#9aa5b1", "#1f6f8b", "#e0a458")
    for axes, batch in zip(panels, BATCHES, strict=True):
        times = [r.microseconds[batch] for r in results]
        axes.scatter(times, [r.name for r in results], color=colours, s=90, zorder=3)  # a log axis has no zero for bars
        axes.grid(axis="x", alpha=0.3)
        axes.margins(y=0.3)
        for row, (r, value) in enumerate(zip(results, times, strict=True)):
            kept = f"{value:,.0f} µs" + (f", {r.accuracy / results[0].accuracy:.1%} of the accuracy" if row else "")
            axes.text(value * 1.4, row, kept, va="center", fontsize=9)
        axes.set(xscale="log", xlim=(min(times) / 2, max(times) * 60))
        axes.set_title("one query at a time" if batch == 1 else f"batches of {batch}", fontsize=10, loc="left")
        axes.set_xlabel("microseconds per query, log scale", fontsize=9)
        axes.invert_yaxis() if batch == BATCHES[0] else None
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("Softmax over 200,000 classes on a CPU", fontsize=12, x=0.01, ha="left", weight="bold")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main() -> None:
    """Make the data, measure three ways, print the table and save the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--figure", type=Path, default=Path("demo-out/demo.png"))
    arguments = parser.parse_args()
    console = Console(width=max(118, Console().width))
    info = mc.backend_info()
    console.print(f"manyclass: {info.backend} backend, {info.simd}, {info.threads} threads")
    with console.status(f"making {arguments.classes:,} classes × {arguments.features} features"):
        problem = make_problem(arguments.classes, arguments.features, arguments.queries)
    with console.status("exact softmax over all classes"):
        results = [exact_softmax(problem)]
    results.append(indexed(problem, "manyclass", None, console))
    results.append(indexed(problem, "manyclass, paper", mc.HashConfig.paper(), console))
    show(results, console)
    draw(results, arguments.figure)
    console.print(f"figure: {arguments.figure}")


if __name__ == "__main__":
    main()
