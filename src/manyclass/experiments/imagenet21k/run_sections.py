"""Sections on where we differ from the paper and why, and on what was run."""

from manyclass.experiments.recording import Records
from manyclass.report.page import Section, Table, Text
from manyclass.report.wording import duration, percent, whole

DATA = {
    "glyphs": "Han characters in many fonts; whole fonts are held out, so that train and test differ in style",
    "strokes": "characters of random strokes, made on the spot",
    "folder": "images of a folder, by class",
}


def differences_section(records: Records) -> Section:
    """Return what is not as in the paper, and the reason for each."""
    data = records.last(stage="data", kind="result")
    exact = records.last(stage="softmax_layer", kind="result")
    images = DATA.get(data["source"], str(data["source"])) if data else "images that anyone can have"
    classes = f"{whole(data['classes'])} classes" if data else "not run yet"
    accuracy = percent(exact["accuracy"]) if exact else "not run yet"
    rows: list[list[str]] = [
        ["images", "ImageNet 21K, 14 million photographs, half of them for testing", images,
         "ImageNet 21K may not be passed on; a user who has it runs the same command with --data"],
        ["classes", "21,900", classes, "as many as the data has"],
        ["exact accuracy", "27.9%", accuracy,
         "other images: accuracies compare as shares of the exact accuracy, never as such"],
        ["network", "AlexNet on 224×224 photographs", "AlexNet for 64×64 images of one channel, first layer stride 4",
         "two cores must be able to train it; the penultimate layer, which is all the last one sees, is as wide"],
        ["training", "downpour SGD on about 100 machines, rate 0.001", "SGD with momentum 0.9 and exponential decay, "
         "one machine", "one machine is what a reader has"],
        ["baseline in time", "their softmax layer",
         "torch's softmax, and the fastest exact product found on this machine",
         "a speed-up says as much about the baseline as about the method: both are measured here, in the same run"],
        ["retrieval", "tables → votes → exact",
         "what the library picks for this size; the paper's own pipeline is run beside it",
         "votes see neither the length of a row nor its bias; better candidates cost less than more of them"],
        ["training rule", "each example moves its own K candidates",
         "candidates shared by the batch and a corrected sample of the others; the paper's rule is run beside it",
         "with the literal rule, a class that is nobody's candidate is never pushed away"],
    ]  # fmt: skip
    table = Table(["", "the paper", "here", "why"], rows, "", "llll")
    return Section("Where we differ from the paper, and why", "", [table], "Differences")


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
    spent = [[end["stage"], duration(end["seconds"])] for end in ends]
    spent.append(["together", duration(sum(end["seconds"] for end in ends))])
    stages = Table(["stage", "time"], spent, "Time of the stages that are done.", emphasised={len(spent) - 1})
    quick = " --quick" if options["quick"] else ""
    again = f"`manyclass experiment {card['experiment']}{quick} --seed {card['seed']}` runs it again."
    return Section("What was run", "", [Table(["", ""], rows, "", "ll"), stages, Text(again, quiet=True)], "Run")
