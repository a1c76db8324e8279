"""The layer alone: accuracy and time per batch size and number of candidates, beside the exact products."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from experiments.frame.stages import Run
from experiments.peers.exact import exact_seconds, speedups
from experiments.peers.judging import accuracy_kept
from experiments.peers.problem import Problem
from experiments.peers.timing import PAUSE, ROUNDS, best_seconds, in_turn
from manyclass.config import EXACT_CLASSES, HashConfig
from manyclass.index import ClassIndex

STAGE = "layer"
DEPTH = 10
TIMED_QUERIES = 32  # at least, between two looks at the clock


class Cell(NamedTuple):
    """One record: a pipeline searched with so many candidates, so many queries at a time."""

    pipeline: str
    candidates: int
    batch: int


def pipelines(classes: int, features: int) -> dict[str, HashConfig]:
    """Return what the library picks for such a layer, and the paper's own pipeline.

    So few classes that the library would score all of them get what it picks for more: there is a search to look at.
    """
    return {
        "default": HashConfig.for_problem(max(classes, EXACT_CLASSES + 1), features),
        "paper": HashConfig.paper_imagenet21k(),
    }


def cells_of(layer: Problem, batches: Sequence[int], candidates: Sequence[int]) -> list[Cell]:
    """Return every cell that this layer allows: no more candidates than classes, no larger batch than queries."""
    counts = sorted({min(count, layer.classes) for count in candidates})
    sizes = [batch for batch in batches if batch <= len(layer.queries)]
    names = pipelines(layer.classes, layer.features)
    return [Cell(name, count, batch) for name in names for count in counts for batch in sizes]


def run(run: Run, layer: Problem, batches: Sequence[int], candidates: Sequence[int]) -> None:
    """Write one record per cell that the records lack; the exact products of its batch are timed in the same run."""
    cells = cells_of(layer, batches, candidates)
    missing = [cell for cell in cells if not run.records.done(stage=STAGE, **cell._asdict())]
    if not missing:
        return
    sizes = sorted({cell.batch for cell in missing})
    with run.progress(len(sizes) + len(missing), "timings") as show:
        products = {}
        for completed, batch in enumerate(sizes):
            show(completed, f"exact products, batch {batch}")
            arrays = layer.rows, layer.bias, layer.queries
            products[batch] = exact_seconds(*arrays, batch, run.options.threads, **_effort(run))
        completed = len(sizes)
        for name, config in pipelines(layer.classes, layer.features).items():
            mine = [cell for cell in missing if cell.pipeline == name]
            if mine:
                show(completed, f"building the {name} index")
                index = ClassIndex.build(layer.rows, bias=layer.bias, config=config, threads=run.options.threads)
                for cell, record in _measured(run, layer, index, mine, products):
                    run.records.write(stage=STAGE, kind="result", **record)
                    completed += 1
                    show(completed, f"{name}, K {cell.candidates}, batch {cell.batch}")


def _measured(
    run: Run, layer: Problem, index: ClassIndex, cells: list[Cell], products: dict[int, dict[str, float]]
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Yield each cell with its record; the accuracy over all queries is found once per number of candidates."""
    search = partial(index.search, threads=run.options.threads)
    exact_accuracy = layer.exact_accuracy
    accuracies: dict[int, float] = {}
    for cell in cells:
        count = cell.candidates
        if count not in accuracies:
            accuracies[count] = layer.accuracy(search(layer.queries, 1, candidates=count).classes[:, 0])
        asked = max(1, TIMED_QUERIES // cell.batch)
        ask = asking(search, layer, cell, asked)
        ours = best_seconds({"ours": ask}, **_effort(run))["ours"] / asked
        yield (
            cell,
            {
                **cell._asdict(),
                "stages": index.config.pipeline,
                "accuracy": accuracies[count],
                "exact_accuracy": exact_accuracy,
                "accuracy_kept": accuracy_kept(accuracies[count], exact_accuracy),
                **speedups(ours, products[cell.batch]),
            },
        )


def asking(search: Callable[..., object], layer: Problem, cell: Cell, asked: int) -> Callable[[], None]:
    """Return a call that asks so many batches, every time the next ones."""
    batches = in_turn(layer.queries, cell.batch)

    def ask() -> None:
        for _ in range(asked):
            search(next(batches), min(DEPTH, cell.candidates), candidates=cell.candidates)

    return ask


def _effort(run: Run) -> dict[str, Any]:
    return {"rounds": 1, "pause": PAUSE / 10} if run.options.quick else {"rounds": ROUNDS, "pause": PAUSE}
