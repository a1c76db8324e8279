"""Find the fastest config for your own rows and queries, by the clock."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from manyclass._self_configuration.plans import exhaustive_suffices, scans, tables, with_cells
from manyclass._self_configuration.query_sample import FEWEST, MOST_TO_FIT, SPLIT
from manyclass._validation import Ids, check_biases, check_count, check_finite, check_ids, check_rows, check_vectors
from manyclass._windows_and_signs import permutation
from manyclass.config import HashConfig, check_target
from manyclass.errors import InputError
from manyclass.index import ClassIndex
from manyclass.quality import ExactAnswer, compare, exact_answer

LADDER = (10, 20, 30, 50, 80, 120, 200, 300, 500, 800, 1200, 2000, 3000)
CELL_REACHES = (400, 1600)


_Setting = TypeVar("_Setting")


def frontier(
    settings: Iterable[_Setting], cost: Callable[[_Setting], float], quality: Callable[[_Setting], float]
) -> list[_Setting]:
    """Return the settings that no other equals or beats in both cost and quality, cheapest first."""
    best: list[_Setting] = []
    for setting in sorted(settings, key=lambda setting: (cost(setting), -quality(setting))):
        if not best or quality(setting) > quality(best[-1]):
            best.append(setting)
    return best


@dataclass(frozen=True)
class Point:
    """One measured setting: its config (candidates included), what it keeps, and microseconds per query."""

    config: HashConfig
    kept: float  # label accuracy kept, or agreement with the exact best class where there are no labels
    recall: float
    microseconds: float
    bytes_per_class: float


@dataclass(frozen=True)
class Tuned:
    """The chosen config, whether it met the target, and every point that was measured."""

    config: HashConfig
    met: bool
    target: float
    points: list[Point]

    @property
    def frontier(self) -> list[Point]:
        """Points that no other point beats in both time and accuracy, fastest first."""
        return frontier(self.points, lambda point: point.microseconds, lambda point: point.kept)

    def table(self) -> str:
        """Return the frontier as text."""
        lines = [f"{'pipeline':<36}{'candidates':>11}{'kept':>8}{'recall':>8}{'µs/query':>10}{'bytes/class':>13}"]
        for p in self.frontier:
            mark = " ← chosen" if p.config == self.config else ""
            lines.append(
                f"{_label(p.config):<36}{p.config.candidates:>11}{p.kept:>8.3f}{p.recall:>8.3f}"
                f"{p.microseconds:>10.1f}{p.bytes_per_class:>13.0f}{mark}"
            )
        return "\n".join(lines)

    def figure(self, path: str) -> None:
        """Save the points and the frontier as a picture; needs matplotlib (`pip install manyclass[figures]`)."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
        axes.scatter([p.microseconds for p in self.points], [p.kept for p in self.points], s=14, color="#b8c4d0")
        front = self.frontier
        axes.plot([p.microseconds for p in front], [p.kept for p in front], "o-", color="#1f6f8b", label="frontier")
        axes.axhline(self.target, color="#c0392b", linewidth=1, linestyle="--", label=f"target {self.target:g}")
        axes.set(xscale="log", xlabel="microseconds per query", ylabel="accuracy kept")
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right", frameon=False)
        figure.savefig(path, dpi=150)
        pyplot.close(figure)


def tune(
    rows: npt.NDArray[Any],
    queries: npt.ArrayLike,
    labels: npt.ArrayLike | None = None,
    *,
    target: float = 0.99,
    bias: npt.ArrayLike | None = None,
    memory: int | None = None,
    threads: int | None = None,
    most_queries: int = 1000,
) -> Tuned:
    """Return the fastest config that keeps `target` of the exact accuracy on these queries, by the clock.

    `ClassIndex.build(rows, queries=...)` tries the same settings and counts their work, in a fraction of the time.

    rows: floats (classes, features), as for `ClassIndex.build`.
    queries: floats (count, features). At least a few hundred from the real distribution; 2,000 resolve a target of .99.
        Half of them are for balances to be fitted to, the others are asked; fewer than 128 are all asked, and no
        balance is tried. Give them to `build` again with the config that is returned.
    labels: class ids, one per query = None. With them accuracy is kept; without, agreement with the exact answer.
    target: float = 0.99. Share of the exact accuracy to keep. Lower is faster.
    bias: floats (classes,) = None. The layer's bias, where it has one.
    memory: int = None. Bytes the index may take beside the rows; None sets no limit.
    threads: int = None. What searches will run with: None for all cores, 1 where queries come from many processes.
    most_queries: int = 1000. Queries that are asked; fewer for a quicker, coarser answer.

    Cost: builds and searches of a few dozen settings; minutes at a million classes.
    """
    count, features = check_rows("rows", rows)[0].shape
    check_target(target)
    vectors, checked = _checked_queries(queries, labels, rows.shape)
    fit, asked = _parts(len(vectors), check_count("most_queries", most_queries))
    checked_bias = np.zeros(count, np.float32) if bias is None else check_biases("bias", bias, count)
    ClassIndex.build(rows, bias=checked_bias, config=HashConfig.exhaustive(), threads=threads)  # checks the rows
    exact = exact_answer(rows, checked_bias, vectors[asked], min(10, count))
    asked_labels = None if checked is None else checked[asked]
    points: list[Point] = []
    for config in _settings(count, features, balanced=len(fit) > 0):
        if memory is not None and count * config.bytes_per_class(count) > memory:
            continue
        sample = None if config.balance == "none" else vectors[fit]
        index = ClassIndex.build(rows, bias=checked_bias, queries=sample, config=config, threads=threads)
        for reach in CELL_REACHES if config.cells else CELL_REACHES[:1]:
            index.config = config.with_(cell_reach=reach)
            fastest = min((p.microseconds for p in points if p.kept >= target), default=np.inf)
            points += _climb(index, vectors[asked], exact, asked_labels, target, fastest, threads)
    if not points:
        raise InputError(f"memory={memory} is too little for any index of {count} classes; give more, or None")
    good = [p for p in points if p.kept >= target]
    chosen = min(good, key=lambda p: p.microseconds) if good else max(points, key=lambda p: p.kept)
    return Tuned(chosen.config, bool(good), float(target), points)


def _checked_queries(
    queries: npt.ArrayLike, labels: npt.ArrayLike | None, shape: tuple[int, ...]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64] | None]:
    """Return queries and labels for rows of this shape."""
    vectors, _ = check_vectors("queries", queries, shape[1])
    check_finite("queries", vectors)
    if not len(vectors) or not shape[0]:
        raise InputError(f"queries has shape {vectors.shape} and rows {shape}; tuning needs some of both")
    if labels is None:
        return vectors, None
    checked = check_ids("labels", labels, shape[0])
    if len(checked) != len(vectors):
        raise InputError(f"labels has {len(checked)} entries for {len(vectors)} queries; give one each")
    return vectors, checked


def _parts(count: int, most: int) -> tuple[Ids, Ids]:
    """Return which of so many queries balances are fitted to, none where there are few; and which are asked."""
    order = permutation(0, SPLIT, count).astype(np.int64)
    if count < 2 * FEWEST:
        return order[:0], np.arange(min(count, most))
    asked = min(count // 2, most)
    return order[asked:][:MOST_TO_FIT], np.sort(order[:asked])


def _settings(classes: int, features: int, balanced: bool) -> Iterator[HashConfig]:
    """Yield the settings worth trying at this size: those that `build` tries, each with cells and without."""
    if exhaustive_suffices(classes):
        yield HashConfig.exhaustive()
        return
    for config in scans(features, few_bits=True):
        if config.balance == "none" or balanced:
            yield config
            if (parted := with_cells(config, classes)) != config:
                yield parted
    yield from tables(classes, features)


def _climb(
    index: ClassIndex,
    vectors: npt.NDArray[np.float32],
    exact: ExactAnswer,
    labels: npt.NDArray[np.int64] | None,
    target: float,
    fastest: float,
    threads: int | None,
) -> Iterator[Point]:
    """Yield what the index keeps with more and more candidates.

    More only cost more: it stops at the target, or where another config (in `fastest` µs) was already faster.
    """
    size = sum(part for name, part in index.memory_report().items() if name != "rows")
    for candidates in [c for c in LADDER if c <= index.classes] or [index.classes]:
        top, microseconds = _timed_search(index, vectors, candidates, threads)
        quality = compare(top, np.zeros((len(vectors), 0), np.float32), exact, candidates, labels)
        yield Point(index.config.with_(candidates=candidates), quality.kept, quality.recall, microseconds, size)
        if quality.kept >= target or microseconds > 2 * fastest:
            return


def _timed_search(
    index: ClassIndex, vectors: npt.NDArray[np.float32], candidates: int, threads: int | None
) -> tuple[npt.NDArray[np.int64], float]:
    """Return the best classes (queries, up to 10) and the faster of two timings, in microseconds per query."""
    k = min(10, candidates)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        found = index.search(vectors, k, candidates=candidates, threads=threads).classes
        seconds.append(time.perf_counter() - start)
    return found, min(seconds) / len(vectors) * 1e6


def _label(config: HashConfig) -> str:
    bits = config.scan_bits or config.sketch_bits
    return f"{config.pipeline}" + (f" ({bits} bits)" if bits else "")
