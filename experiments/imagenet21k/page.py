"""The page of the experiment: every table and figure of the paper's section, from the records alone.

Its sections on what is trained are in page_training.py, those on the trained layer in page_layer.py.
"""

from pathlib import Path

from experiments.frame.page import Fact, Page, Section, Table
from experiments.frame.records import Records
from experiments.frame.run_section import run_section
from experiments.frame.wording import percent, times, whole
from experiments.imagenet21k import paper, results
from experiments.imagenet21k.page_layer import layer_sections, learned_from
from experiments.imagenet21k.page_training import heads_section, task_section, variance_section

NOT_YET = "not run yet"
DATA = {
    "glyphs": "Han characters in many fonts; whole fonts are held out, so that train and test differ in style",
    "strokes": "characters of random strokes, made on the spot",
    "folder": "images of a folder, by class",
}


def make_page(records: Records, folder: Path) -> Page:
    """Return the page; figures are written into the folder. What was not run says so."""
    sections = [
        task_section(records, folder),
        *layer_sections(records, folder),
        heads_section(records, folder, "heads"),
        heads_section(records, folder, "end_to_end"),
        variance_section(records, folder),
        differences_section(records),
        run_section(records),
    ]
    return Page(title(records), lead(records), facts(records), sections)


def title(records: Records) -> str:
    """Return the title with the number of classes, once it is known."""
    data = records.last(stage="data", kind="result")
    return f"Softmax over {whole(data['classes']) if data else '21 thousand'} image classes"


def lead(records: Records) -> str:
    """Return what this is, and whether it is a full run."""
    text = (
        "The paper's first experiment, run again: the last layer of an image network looks up the few classes that "
        "matter in an index and scores only those exactly. The paper's own index, winner-take-all hashing, is run "
        "beside our default, and its printed numbers stand beside ours."
    )
    card = records.last(kind="card")
    if card and card["options"]["quick"]:
        text += "\n\n**This is a quick run** on small data: it shows that everything works, not how well."
    return text


def facts(records: Records) -> list[Fact]:
    """Return the numbers that matter, as far as they are measured."""
    found = []
    cells = results.layer_cells(records)
    share, wanted = paper.GOAL_TRADE_OFF
    best = results.fewest(cells, "default", 1, share)
    if best:
        label = f"the speed of the fastest exact product at {percent(best['accuracy_kept'])} of its accuracy, "
        found.append(Fact(times(best["speedup"]), f"{label}one image at a time (goal: {wanted:g}× at {share:.0%})"))
    few = cells.get(("default", 1, 30))
    if few:
        label = f"of the exact accuracy kept with 30 candidates (the paper: {paper.ACCURACY_KEPT[30]:.0%})"
        found.append(Fact(percent(few["accuracy_kept"]), label))
    literal = results.fewest(cells, "paper", 1, paper.TRADE_OFF[0])
    if literal:
        label = f"the speed of torch's softmax with the paper's own pipeline, at {percent(literal['accuracy_kept'])} "
        printed = f"{paper.SPEEDUP[1, 300]:g}× at {paper.ACCURACY_KEPT[300]:.0%}"
        found.append(
            Fact(times(literal["speedup_torch"]), f"{label}of its accuracy (the paper, one at a time: {printed})")
        )
    exact = records.last(stage="softmax_layer", kind="result")
    if exact:
        found.append(Fact(percent(exact["accuracy"]), "accuracy of the exact softmax on held-out images"))
    return found


# Differences from the paper


def differences_section(records: Records) -> Section:
    """Return what is not as in the paper, and the reason for each."""
    network, rule = network_here(records), "candidates shared by the batch and a corrected sample of the other classes"
    if any(head == "wta" for head, *_ in results.head_results(records, "heads")):
        rule += "; the paper's rule is run beside it"
    learned = learned_from(results.layer_cells(records), "default")
    rows = [
        ["images", "ImageNet 21K, 14 million photographs, half of them for testing", *images_here(records)],
        ["classes", whole(paper.CLASSES), classes_here(records), "as many as the data has"],
        ["exact accuracy", percent(paper.EXACT_ACCURACY), accuracy_here(records),
         "other images: accuracies compare as shares of the exact accuracy, and where the right class stands out "
         "more, fewer candidates hold it"],
        ["network", "AlexNet on photographs", network, "two cores must be able to train it"],
        ["normalisation", "local response normalisation, dropout",
         "batch normalisation; also of the features before the last layer, which takes it into its rows and bias",
         "learns in fewer steps; after a rectifier the features have a large common part, on which all heads stumble"],
        ["training", "downpour SGD on about 100 machines, rate 0.001",
         f"SGD with momentum 0.9 and exponential decay, one machine{rates_here(records)}; first on some of the "
         "classes, then on all",
         "one machine is what a reader has; many classes with few pictures each come by too seldom to teach an "
         "untrained network"],
        ["output layers alone", "trained with the network", "on kept features, with one constant rate for all of them",
         "the same features for all, and a time that a reader has; a rate of its own might help any of them"],
        ["baseline in time", "their softmax layer",
         "torch's softmax, and the fastest exact product found on this machine",
         "a speed-up says as much about the baseline as about the method: both are measured here, in the same run"],
        ["retrieval", "tables → votes → exact",
         f"what the library picks for this layer{learned}; the paper's own pipeline is run beside it",
         "votes see neither the length of a row nor its bias, which a sketch does; where rows are about equally long "
         "the two come close"],
        ["training rule", "each example moves its own K candidates", rule,
         "with the literal rule, a class that is nobody's candidate is never pushed away"],
    ]  # fmt: skip
    table = Table(["", "the paper", "here", "why"], rows, "", "llll")
    return Section("Where we differ from the paper, and why", "", [table], "Differences")


def images_here(records: Records) -> tuple[str, str]:
    """Return which images were used, and why."""
    data = records.last(stage="data", kind="result")
    source = data["source"] if data else "glyphs"
    if source == "folder":
        return DATA[source], "chosen by --data; with ImageNet 21K in that folder, its photographs at this size, grey"
    why = "ImageNet 21K may not be passed on; a user who has it runs the same command with --data"
    return DATA.get(source, str(source)), why


def classes_here(records: Records) -> str:
    """Return the number of classes."""
    data = records.last(stage="data", kind="result")
    return whole(data["classes"]) if data else NOT_YET


def accuracy_here(records: Records) -> str:
    """Return the accuracy of the exact layer."""
    exact = records.last(stage="softmax_layer", kind="result")
    return percent(exact["accuracy"]) if exact else NOT_YET


def network_here(records: Records) -> str:
    """Return which network was trained."""
    data, base = records.last(stage="data", kind="result"), records.last(stage="base", kind="result")
    if data is None or base is None:
        return "AlexNet, adapted to small images of one channel"
    return (
        f"AlexNet, about half as wide, adapted to {data['side']}×{data['side']} images of one channel; "
        f"{base['multiply_adds'] / 1e6:,.0f} million multiply-adds, {whole(base['features'])} penultimate features"
    )


def rates_here(records: Records) -> str:
    """Return the learning rates at the start."""
    base = records.last(stage="base", kind="result")
    return f", rates {base['rates'][0]:g} (network) and {base['rates'][1]:g} (classes)" if base else ""
