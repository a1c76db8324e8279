"""The stages of the experiment in order, and what they hand to each other."""

from collections.abc import Callable
from pathlib import Path

from experiments.frame.needs import Need
from experiments.frame.page import Page
from experiments.frame.records import Records
from experiments.frame.stages import Experiment, Options, Run, Stage
from experiments.imagenet21k import glyphs, image_folder, strokes
from experiments.imagenet21k.images import Collection, Images, open_images
from experiments.imagenet21k.plan import FULL, QUICK, Plan
from manyclass.errors import InputError


def plan_of(options: Options) -> Plan:
    """Return the sizes of a run."""
    return QUICK if options.quick else FULL


def collect(options: Options) -> Collection:
    """Return where pictures come from: a folder that is given, fonts, or strokes made on the spot with --quick."""
    if options.data is not None:
        return image_folder.collect(Path(options.data))
    if options.quick:
        return strokes.collect(plan_of(options).drawn_classes, options.seed)
    return glyphs.collect()


def images_of(run: Run) -> Images:
    """Return the pictures, made and kept if this is the first time."""
    folder = run.cache / "images"
    with run.progress(100, "% of the pictures") as show:
        return open_images(folder, lambda: collect(run.options), lambda share, text: show(100 * share, text))


def run_data(run: Run) -> None:
    """Draw or read the pictures."""
    run.records.write(stage="data", kind="result", **images_of(run).facts())


def stages(options: Options) -> list[Stage]:
    """Return the stages in order, with the minutes they take on 2 cores."""
    # torch is loaded when something is to be run, not by `report` and `doctor`
    from experiments.imagenet21k import base_network, features, head_training, layer_times, peers_compared
    from manyclass.torch import HEADS

    plan = plan_of(options)
    for head in options.heads:
        if head not in HEADS:
            raise InputError(f"--head {head}: there is no such output layer; give one of {', '.join(HEADS)}")

    def stage(name: str, title: str, full: float, quick: float, run: Callable[[Run], None]) -> Stage:
        return Stage(name, title, quick if options.quick else full, run)

    return [
        stage("data", "draw the pictures, or read them", 4, 0.2, run_data),
        stage("warm_up", "train the network on some of the classes", 9, 0.3,
              lambda run: base_network.run_warm_up(run, images_of(run), plan)),
        stage("base", "train the network on all classes", 32, 0.5,
              lambda run: base_network.run_base(run, images_of(run), plan)),
        stage("features", "keep its last layer for the pictures", 5, 0.15,
              lambda run: features.run_features(run, images_of(run), plan)),
        stage("variance", "how far the pictures of a class lie apart", 0.3, 0.02, features.run_variance),
        stage("softmax_layer", "train the exact softmax layer on them", 15, 0.1,
              lambda run: head_training.run_softmax_layer(run, images_of(run), plan)),
        stage("layer", "time and accuracy of the layer alone", 12, 0.1,
              lambda run: layer_times.run(run, head_training.open_layer(run), plan.batches, plan.candidates)),
        stage("peers", "other libraries over the same layer", 13, 0.3,
              lambda run: peers_compared.run(run, head_training.open_layer(run, plan.peer_tests))),
        stage("heads", "train output layers on the kept features", 34, 0.6,
              lambda run: head_training.run_heads(run, images_of(run), plan)),
        stage("end_to_end", "train the whole network with the exact softmax", 34, 0.2,
              lambda run: base_network.run_end_to_end(run, images_of(run), plan)),
    ]  # fmt: skip


def page(records: Records, figures: Path) -> Page:
    """Return the page of the experiment."""
    from experiments.imagenet21k.page import make_page

    return make_page(records, figures)


def needs() -> list[Need]:
    """Return the fonts by package; without them there are --quick and --data."""
    missing = set(glyphs.missing_packages())
    return [
        Need(package, None if package in missing else f"{len(fonts)} font files", "glyphs to draw; not for --quick",
             f"apt-get install {package}", optional=True)
        for package, fonts in glyphs.PACKAGES.items()
    ]  # fmt: skip


EXPERIMENT = Experiment("imagenet21k", "Twenty thousand image classes", stages, page, needs)
