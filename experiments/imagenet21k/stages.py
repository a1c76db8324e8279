"""The stages of the experiment in order, and what must be installed for them.

torch is loaded when something is to be run, not by `report` and `doctor`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.frame.needs import Need
from experiments.frame.stages import Experiment, Options, Run, Stage
from experiments.imagenet21k import sources
from experiments.imagenet21k.documents import texts
from experiments.imagenet21k.page import make_page
from experiments.imagenet21k.sources import Collection

if TYPE_CHECKING:
    from experiments.imagenet21k.data import Images

Work = Callable[[Run], None]


def stages(options: Options) -> list[Stage]:
    """Return the stages in order, with the minutes they take on 2 cores."""
    from experiments.imagenet21k import features, layer, model, training
    from manyclass.torch import HEADS

    plan = model.plan_of(options)
    options.heads_among(HEADS)

    def stage(name: str, title: str, full: float, quick: float, work: Work, *after: str) -> Stage:
        return options.stage(name, title, full, quick, with_chosen_threads(work), *after)

    return [
        stage("data", "draw the pictures, or read them", 2, 0.2, run_data),
        stage("warm_up", "train the network on some of the classes", 6, 0.3,
              lambda run: training.run_warm_up(run, images_of(run), plan), "data"),
        stage("base", "train the network on all classes", 14, 0.5,
              lambda run: training.run_base(run, images_of(run), plan), "warm_up"),
        stage("features", "keep its last layer for the pictures", 3, 0.15,
              lambda run: features.run_features(run, images_of(run), plan), "base"),
        stage("variance", "how far the pictures of a class lie apart", 0.3, 0.02, features.run_variance, "features"),
        stage("softmax_layer", "train the exact softmax layer on them", 11, 0.1,
              lambda run: training.run_softmax_layer(run, images_of(run), plan), "features"),
        stage("layer", "time and accuracy of the layer alone", 9, 0.1,
              lambda run: layer.run_layer(run, features.open_layer(run), features.query_sample(run), plan.batches,
                                          plan.candidates), "softmax_layer"),
        stage("heads", "train output layers on the kept features", 24, 0.6,
              lambda run: training.run_heads(run, images_of(run), plan), "features"),
        stage("end_to_end", "train the whole network with the exact softmax", 15, 0.2,
              lambda run: training.run_end_to_end(run, images_of(run), plan), "base"),
    ]  # fmt: skip


def with_chosen_threads(work: Work) -> Work:
    """Return the work of a stage, done with as many of torch's threads as the user chose."""

    def run_with_threads(run: Run) -> None:
        import torch

        torch.set_num_threads(run.options.threads)
        work(run)

    return run_with_threads


def collect(options: Options) -> Collection:
    """Return where pictures come from: a folder that is given, fonts, or strokes made on the spot with --quick."""
    from experiments.imagenet21k.model import plan_of

    if options.data is not None:
        return sources.from_folder(options.data)
    if options.quick:
        return sources.from_strokes(plan_of(options).drawn_classes, options.seed)
    return sources.from_fonts()


def images_of(run: Run) -> "Images":
    """Return the pictures, made and kept if this is the first time."""
    from experiments.imagenet21k.data import open_images

    with run.progress(100, "% of the pictures") as show:
        return open_images(
            run.cache / "images", lambda: collect(run.options), lambda share, text: show(100 * share, text)
        )


def run_data(run: Run) -> None:
    """Draw or read the pictures."""
    run.records.write(stage="data", kind="result", **images_of(run).facts())


def needs() -> list[Need]:
    """Return the fonts by package; without them there are --quick and --data."""
    missing = set(sources.missing_packages())
    return [
        Need(package, None if package in missing else "installed", "glyphs to draw; not for --quick",
             f"apt-get install {package}", optional=True)
        for package in sources.PACKAGES
    ]  # fmt: skip


EXPERIMENT = Experiment(
    "imagenet21k", "The paper's first experiment: an image network of 21 thousand classes", stages, make_page, needs,
    texts,
)  # fmt: skip
