"""Sections on where we differ from the paper and why, and on what was run."""

from experiments.frame.page import Section, Table, Text
from experiments.frame.records import Records
from experiments.frame.wording import duration, percent, whole
from experiments.imagenet21k.page import paper

NOT_YET = "not run yet"
DATA = {
    "glyphs": "Han characters in many fonts; whole fonts are held out, so that train and test differ in style",
    "strokes": "characters of random strokes, made on the spot",
    "folder": "images of a folder, by class",
}


def differences_section(records: Records) -> Section:
    """Return what is not as in the paper, and the reason for each."""
    network, rule = network_here(records), "candidates shared by the batch and a corrected sample of the other classes"
    if records.done(stage="heads", rule="paper"):
        rule += "; the paper's rule is run beside it"
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
         "what the library picks for this size; the paper's own pipeline is run beside it",
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


def run_section(records: Records) -> Section:
    """Return machine, versions, commit, seed and threads of every session, and the time of every stage."""
    cards = records.select(kind="card")
    if not cards:
        return Section("What was run", "Nothing yet.", short="Run")
    card = cards[-1]
    machine, options = card["machine"], card["options"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version != "missing")
    chosen = ", ".join(f"{name} {value}" for name, value in options.items() if value and name != "seed") or "none"
    threads = sorted({session["threads"] for session in cards})
    commits = list(
        dict.fromkeys(session["commit"][:10] + (" with changes" if session["dirty"] else "") for session in cards)
    )
    rows = [
        ["machine", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB"],
        ["threads", ", ".join(map(str, threads))],
        ["commit", ", ".join(commits)],
        ["versions", f"Python {machine['python']}, {versions}"],
        ["seed", str(card["seed"])],
        ["options", chosen],
        ["started", cards[0]["time"]],
        ["sessions", whole(len(cards))],
    ]
    ends = records.select(kind="stage_end")
    seconds = {end["stage"]: records.seconds_spent(end["stage"]) for end in ends}
    spent = [[stage, duration(taken)] for stage, taken in seconds.items()]
    spent.append(["together", duration(sum(seconds.values()))])
    caption = "Time of the stages that are done."
    stages = Table(["stage", "time"], spent, caption, emphasised={len(spent) - 1})
    quick = " --quick" if options["quick"] else ""
    heads = "".join(f" --head {head}" for head in options["heads"])
    data = " --data …" if options["data"] else ""
    command = f"manyclass experiment {card['experiment']}{quick}{heads}{data}"
    again = f"`{command} --seed {card['seed']} --threads {card['threads']}` runs it again."
    return Section("What was run", "", [Table(["", ""], rows, "", "ll"), stages, Text(again, quiet=True)], "Run")
