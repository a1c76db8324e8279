"""Stages `layer` and `peers`: the trained layer alone, at every batch size and number of candidates beside the exact
products, and other libraries over the same rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from experiments.frame.stages import Run
from experiments.peers import Contestant
from experiments.peers.bfloat16 import TorchBfloat16
from experiments.peers.comparing import compare_peers
from experiments.peers.exact import FastestExact, TorchSoftmax, exact_seconds, speedups
from experiments.peers.faiss_peers import FaissFlatPQ, FaissHNSW, FaissIVFPQ
from experiments.peers.hnswlib_peer import Hnswlib
from experiments.peers.judging import accuracy_kept
from experiments.peers.manyclass_peer import Manyclass
from experiments.peers.measuring import LARGE_BATCH
from experiments.peers.problem import Problem
from experiments.peers.scann_peer import Scann
from experiments.peers.timing import PAUSE, ROUNDS, best_seconds, in_turn
from manyclass.config import EXACT_CLASSES, HashConfig
from manyclass.index import ClassIndex
from manyclass.tuning import tune

DEPTH = 10  # classes that a search is asked for
TIMED_QUERIES = 32  # at least, between two looks at the clock
PEER_BATCHES = (64, LARGE_BATCH)
TARGET = 0.99  # accuracy kept that manyclass is tuned for


# The layer alone


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


def run_layer(run: Run, layer: Problem, batches: Sequence[int], candidates: Sequence[int]) -> None:
    """Write one record per cell that the records lack; the exact products of its batch are timed in the same run."""
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
        for name, config in pipelines(layer.classes, layer.features).items():
            mine = [cell for cell in missing if cell.pipeline == name]
            if mine:
                show(completed, f"building the {name} index")
                index = ClassIndex.build(layer.rows, bias=layer.bias, config=config, threads=run.options.threads)
                for cell, record in _measured(run, layer, index, mine, products):
                    run.records.write(stage="layer", kind="result", **record)
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


# Other libraries

# A quick run has one of each kind, at few settings.
QUICK_CONTESTANTS: tuple[Contestant, ...] = (
    partial(Manyclass, pipeline="default"),
    partial(Manyclass, pipeline="paper"),
    TorchSoftmax,
    FastestExact,
    TorchBfloat16,
    FaissHNSW,
    Hnswlib,
    partial(FaissIVFPQ, dims_per_code=8, most_probed=1.0),
    partial(FaissFlatPQ, dims_per_code=8),
    partial(Scann, to_all_leaves=True),
)
CONTESTANTS: tuple[Contestant, ...] = (
    *QUICK_CONTESTANTS,
    *(partial(FaissIVFPQ, dims_per_code=dims, most_probed=1.0) for dims in (4, 16)),
    *(partial(FaissFlatPQ, dims_per_code=dims) for dims in (4, 16, 32)),
)


def run_peers(run: Run, layer: Problem, contestants: Iterable[Contestant] | None = None) -> None:
    """Measure every peer over the layer, and beside them what tuning finds, where that is not the default."""
    if contestants is None:
        contestants = QUICK_CONTESTANTS if run.options.quick else CONTESTANTS
    config = tuned_config(run, layer)
    tuned = [] if config is None else [partial(Manyclass, pipeline="tuned", config=config)]
    compare_peers(run, "peers", layer, [*contestants, *tuned], PEER_BATCHES)


def tuned_config(run: Run, layer: Problem) -> HashConfig | None:
    """Return the fastest config that `manyclass.tune` finds, None if that is the default's. Tuned once per run."""
    default = HashConfig.for_problem(layer.classes, layer.features)
    if not run.records.done(stage="peers", kind="tuning"):
        run.console.print("  tuning manyclass to this layer", highlight=False)
        tuned = tune(
            layer.rows, layer.queries, layer.labels,
            target=TARGET, bias=layer.bias, threads=run.options.threads,
        )  # fmt: skip
        chosen = tuned.config if tuned.met else default
        run.records.write(
            stage="peers", kind="tuning", target=TARGET, met=tuned.met, config=asdict(chosen), stages=chosen.pipeline
        )
    recorded: dict[str, Any] | None = run.records.last(stage="peers", kind="tuning")
    config = HashConfig(**recorded["config"]) if recorded else default
    return None if config.with_(candidates=default.candidates) == default else config
