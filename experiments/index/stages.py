"""The stages of the experiment in order, the data of each, and its sizes in a full and in a quick run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from experiments.datasets import wordnet
from experiments.datasets.made_rows import planted, unequal_norms
from experiments.frame.needs import Need
from experiments.frame.page import Page
from experiments.frame.records import Records
from experiments.frame.stages import Experiment, Options, Run, Stage
from experiments.index import sweeps
from experiments.peers import CONTESTANTS, Contestant
from experiments.peers.comparing import compare_peers
from experiments.peers.exact import FastestExact, TorchSoftmax
from experiments.peers.faiss_peers import FaissHNSW, FaissIVFPQ
from experiments.peers.hnswlib_peer import Hnswlib
from experiments.peers.manyclass_peer import Manyclass
from experiments.peers.problem import Problem
from experiments.peers.scann_peer import Scann


@dataclass(frozen=True)
class Sizes:
    """How large everything is; shapes are (classes, features)."""

    glosses: tuple[int, int]
    million: tuple[int, int]
    growth: tuple[int, ...]
    layer: tuple[int, int]
    queries: int
    contestants: tuple[Contestant, ...]


FULL = Sizes(
    glosses=(wordnet.SYNSETS, wordnet.WIDTH),
    million=(1_000_000, 128),
    growth=(100_000, 1_000_000, 10_000_000),
    layer=(21_900, 4096),
    queries=4000,
    contestants=CONTESTANTS,
)
# One of each kind, on rows that are made in a moment.
QUICK = Sizes(
    glosses=(6_000, 64),
    million=(20_000, 64),
    growth=(2_000, 8_000, 32_000),
    layer=(2_000, 256),
    queries=400,
    contestants=(
        *(partial(Manyclass, pipeline=pipeline) for pipeline in ("default", "scan", "cells", "paper")),
        TorchSoftmax,
        FastestExact,
        FaissIVFPQ,
        Scann,
        FaissHNSW,
        Hnswlib,
    ),
)


def sizes_of(quick: bool) -> Sizes:
    """Return the sizes of a run."""
    return QUICK if quick else FULL


def stages(options: Options) -> list[Stage]:
    """Return the stages in order, with the minutes they take on 2 cores."""
    sizes = sizes_of(options.quick)

    def stage(name: str, title: str, full: float, quick: float, run: Callable[[Run], None]) -> Stage:
        # what a title has in brackets is true of the full run only
        return Stage(name, title.partition(" (")[0], quick, run) if options.quick else Stage(name, title, full, run)

    return [
        stage("wordnet", "other libraries (on WordNet's glosses)", 20, 0.2, run_wordnet),
        stage("million", "other libraries, on rows of unequal norm (a million)", 45, 0.4,
              lambda run: compare(run, "million", unequal_norms(*sizes.million, sizes.queries))),
        stage("growth", "time per query as classes grow (15 GB of memory)", 5, 0.1,
              lambda run: sweeps.run_growth(run, sizes.growth)),
        stage("bands", "accuracy and time against bands", 4, 0.1,
              lambda run: sweeps.run_bands(run, partial(like_a_trained_layer, sizes))),
        stage("candidates", "accuracy and time against candidates", 3, 0.1,
              lambda run: sweeps.run_candidates(run, partial(like_a_trained_layer, sizes))),
    ]  # fmt: skip


def run_wordnet(run: Run) -> None:
    """Compare on the glosses; in a quick run on made rows, and where WordNet is missing say so and go on."""
    sizes = sizes_of(run.options.quick)
    if run.options.quick:
        compare(run, "wordnet", planted(*sizes.glosses, sizes.queries))
        return
    try:
        with run.progress(100, "% of the texts") as show:
            problem = wordnet.wordnet(lambda share, text: show(100 * share, text))
    except wordnet.MissingDataError as missing:
        run.console.print(f"  left out: {missing}", highlight=False, markup=False)
        record = {"stage": "wordnet", "kind": "missing", "reason": missing.reason, "install": missing.install}
        if not run.records.done(**record):
            run.records.write(**record)
        return
    compare(run, "wordnet", problem)


def compare(run: Run, stage: str, problem: Problem) -> None:
    """Measure every contestant, and how long it takes to change one row of it."""
    compare_peers(run, stage, problem, sizes_of(run.options.quick).contestants, updates=True)


def like_a_trained_layer(sizes: Sizes) -> Problem:
    """Return the rows of the sweeps."""
    from experiments.datasets.imagenet_like import imagenet_like  # loads torch, which `report` does without

    return imagenet_like(*sizes.layer, queries=min(sizes.queries, 2000))


def page(records: Records, figures: Path) -> Page:
    """Return the page of the experiment."""
    from experiments.index.page import make_page

    return make_page(records, figures)


def documents(records: Records) -> dict[str, str]:
    """Return the figures that README and docs give from these records."""
    from experiments.index.documents import texts

    return texts(records)


def needs() -> list[Need]:
    """Return what WordNet's glosses are made from."""
    return wordnet.needs()


EXPERIMENT = Experiment("index", "The index beside other libraries, and its knobs", stages, page, needs, documents)
