"""The stages of the experiment in order, and the data of each."""

from functools import partial

from experiments.datasets import han_layer, language_model, wordnet
from experiments.datasets.made_rows import planted
from experiments.frame.needs import Need, package
from experiments.frame.stages import Experiment, Options, Run, Stage
from experiments.index import sweeps
from experiments.index.defaults import run_defaults
from experiments.index.documents import texts
from experiments.index.growth import run_growth
from experiments.index.layers import open_layer
from experiments.index.outliers import run_outliers
from experiments.index.page import make_page
from experiments.index.paper_table import run_paper_table
from experiments.index.sizes import Sizes, sizes_of
from experiments.peers.contest import entries_left, hold_contest
from experiments.peers.problem import Problem

MORE_PEERS = "pip install '.[more-peers]'"


def stages(options: Options) -> list[Stage]:
    """Return the stages in order, with the minutes they take on 2 cores."""
    sizes = sizes_of(options.quick)
    return [
        options.stage("language_model", "other libraries (on a language model's output layer)", 8, 0.5,
              lambda run: run_contest(run, "language_model")),
        options.stage("han", "other libraries (on a trained image layer)", 9, 0.5, lambda run: run_contest(run, "han")),
        options.stage("wordnet", "other libraries (on WordNet's glosses)", 9, 0.5,
              lambda run: run_contest(run, "wordnet")),
        options.stage("million", "other libraries, on rows of unequal norm (a million)", 20, 0.6,
              lambda run: run_contest(run, "million")),
        options.stage("defaults", "build(rows, queries) and nothing else, on every layer", 6, 0.2,
              lambda run: run_defaults(run, sizes.made)),
        options.stage("paper_table", "speed-up by batch and candidates, with ceilings", 2, 0.1,
              lambda run: run_paper_table(run, lambda: open_layer(run, "paper_table", "han", sizes.made["han"]))),
        options.stage("growth", "time per query as classes grow (15 GB of memory)", 10, 0.2,
              lambda run: run_growth(run, sizes.growth)),
        options.stage("outliers", "what one hostile class costs the others", 4, 0.2,
              lambda run: run_outliers(run, planted(*sizes.outliers, sizes.queries), sizes.contestants)),
        options.stage("bands", "accuracy and time against bands", 4, 0.1,
              lambda run: sweeps.run_bands(run, partial(like_a_trained_layer, sizes))),
        options.stage("candidates", "accuracy and time against candidates", 3, 0.1,
              lambda run: sweeps.run_candidates(run, partial(like_a_trained_layer, sizes))),
    ]  # fmt: skip


def run_contest(run: Run, name: str) -> None:
    """Let every library choose and be judged on a layer; where the layer cannot be made, say so and go on."""
    sizes = sizes_of(run.options.quick)
    if not entries_left(run, name, sizes.entries):
        return
    problem = open_layer(run, name, name, sizes.made[name])
    if problem is not None:
        hold_contest(run, name, problem, sizes.entries, sizes.entry_seconds)


def like_a_trained_layer(sizes: Sizes) -> Problem:
    """Return the rows of the sweeps."""
    from experiments.datasets.imagenet_like import imagenet_like  # loads torch, which `report` does without

    return imagenet_like(*sizes.layer, queries=min(sizes.queries, 2000))


def needs() -> list[Need]:
    """Return what the layers are made from, and the libraries that only this experiment compares with."""
    return [
        *wordnet.needs(),
        *language_model.needs(),
        *han_layer.needs(),
        *(package(name, "peers", MORE_PEERS, optional=True) for name in ("lorann", "rabitqlib", "scalable-vs")),
    ]


EXPERIMENT = Experiment("index", "The index beside other libraries, and its knobs", stages, make_page, needs, texts)
