"""Stage `layer`: the trained layer alone, at every batch size and number of candidates beside the exact products.

Other libraries over the same layer are compared by the experiment `index`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from experiments.frame.stages import Run
from experiments.imagenet21k.results import PIPELINES
from experiments.peers.exact import exact_seconds, speedups
from experiments.peers.judging import judge
from experiments.peers.manyclass_peer import self_configured
from experiments.peers.peer import Floats
from experiments.peers.problem import Problem
from experiments.peers.timing import PAUSE, ROUNDS, best_seconds, in_turn
from manyclass.config import HashConfig
from manyclass.index import ClassIndex

DEPTH = 10  # classes that a search is asked for
TIMED_QUERIES = 32  # at least, between two looks at the clock


class Cell(NamedTuple):
    """One record: a pipeline searched with so many candidates, so many queries at a time."""

    pipeline: str
    candidates: int
    batch: int


def built(pipeline: str, layer: Problem, sample: Floats, threads: int) -> ClassIndex:
    """Return the index of a pipeline: what the library makes of rows and a sample of queries, or the paper's."""
    if pipeline == "default":
        return self_configured(layer.rows, layer.bias, sample, threads)
    return ClassIndex.build(layer.rows, bias=layer.bias, config=HashConfig.paper_imagenet21k(), threads=threads)


def cells_of(layer: Problem, batches: Sequence[int], candidates: Sequence[int]) -> list[Cell]:
    """Return every cell that this layer allows: no more candidates than classes, no larger batch than queries."""
    counts = sorted({min(count, layer.classes) for count in candidates})
    sizes = [batch for batch in batches if batch <= len(layer.queries)]
    return [Cell(name, count, batch) for name in PIPELINES for count in counts for batch in sizes]


def run_layer(run: Run, layer: Problem, sample: Floats, batches: Sequence[int], candidates: Sequence[int]) -> None:
    """Write one record per cell that the records lack; the exact products of its batch are timed in the same run.

    sample: queries that the default may learn from, none of which is asked afterwards.
    """
    cells = cells_of(layer, batches, candidates)
    missing = [cell for cell in cells if not run.records.done(stage="layer", **cell._asdict())]
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
        for name in PIPELINES:
            mine = [cell for cell in missing if cell.pipeline == name]
            if mine:
                show(completed, f"building the {name} index")
                index = built(name, layer, sample, run.options.threads)
                learned_from = len(sample) if name == "default" else 0
                for cell, record in _measured(run, layer, index, mine, products):
                    run.records.write(stage="layer", kind="result", learned_from=learned_from, **record)
                    completed += 1
                    show(completed, f"{name}, K {cell.candidates}, batch {cell.batch}")


def _measured(
    run: Run, layer: Problem, index: ClassIndex, cells: list[Cell], products: dict[int, dict[str, float]]
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Yield each cell with its record; what it keeps of the answers is found once per number of candidates."""
    search = partial(index.search, threads=run.options.threads)
    worth: dict[int, dict[str, Any]] = {}
    for cell in cells:
        count = cell.candidates
        if count not in worth:
            worth[count] = judge(search(layer.queries, min(DEPTH, count), candidates=count).classes, layer)
        asked = max(1, TIMED_QUERIES // cell.batch)
        ask = asking(search, layer, cell, asked)
        ours = best_seconds({"ours": ask}, **_effort(run))["ours"] / asked
        yield (
            cell,
            {
                **cell._asdict(),
                "stages": index.config.pipeline,
                **worth[count],
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
