"""The stages of the experiment in order, and the data of each."""

from functools import partial

from experiments.datasets import wordnet
from experiments.datasets.made_rows import planted, unequal_norms
from experiments.frame.stages import Experiment, Options, Run, Stage
from experiments.index import sweeps
from experiments.index.documents import texts
from experiments.index.outliers import run_outliers
from experiments.index.page import make_page
from experiments.index.sizes import Sizes, sizes_of
from experiments.peers.comparing import compare_peers
from experiments.peers.problem import Problem


def stages(options: Options) -> list[Stage]:
    """Return the stages in order, with the minutes they take on 2 cores."""
    sizes = sizes_of(options.quick)

    return [
        options.stage("wordnet", "other libraries (on WordNet's glosses)", 20, 0.2, run_wordnet),
        options.stage("million", "other libraries, on rows of unequal norm (a million)", 45, 0.4,
              lambda run: compare(run, "million", unequal_norms(*sizes.million, sizes.queries))),
        options.stage("outliers", "what one hostile class costs the others", 4, 0.2,
              lambda run: run_outliers(run, planted(*sizes.outliers, sizes.queries), sizes.contestants)),
        options.stage("growth", "time per query as classes grow (15 GB of memory)", 5, 0.1,
              lambda run: sweeps.run_growth(run, sizes.growth)),
        options.stage("bands", "accuracy and time against bands", 4, 0.1,
              lambda run: sweeps.run_bands(run, partial(like_a_trained_layer, sizes))),
        options.stage("candidates", "accuracy and time against candidates", 3, 0.1,
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
    except MissingDataError as missing:
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


EXPERIMENT = Experiment(
    "index", "The index beside other libraries, and its knobs", stages, make_page, wordnet.needs, texts
)
