"""The page of the experiment, made of records: the paper's section with its three figures, and what goes beyond it.

The sections on the 1.2 million scenes and on identification are in page_million.py.
"""

from pathlib import Path
from typing import NamedTuple

from experiments.frame.page import Fact, Figure, Page, Section, Table, Text
from experiments.frame.records import Record, Records
from experiments.frame.run_section import run_section
from experiments.frame.wording import ABSENT, duration, number, percent, times, whole
from experiments.video_id import figures, results
from experiments.video_id.goals import verdicts
from experiments.video_id.page_million import identification_section, million_section
from experiments.video_id.results import NAMES

NOT_RUN = "Not measured yet: stage `{}`."
SOURCES = {
    "photographs": "Every photograph of Tiny-ImageNet is one video: a camera moves over it on a smooth path that is "
    "drawn by its number, from one side to the other, while it turns, comes nearer or goes away and the light changes. "
    "The second half of the path shows other parts at other scales than the first.",
    "scenes": "Every video is a scene that is made by its number and seen by a camera on a smooth path; nothing is "
    "stored. The second half of the path shows other parts at other scales than the first.",
    "films": "Videos of a folder, their frames taken at even distances over the first five minutes.",
}


def make_page(records: Records, folder: Path) -> Page:
    """Return the page; figures are written into the folder. What was not run says so."""
    sections = [
        task_section(records, folder),
        training_section(records, folder, "end_to_end"),
        training_section(records, folder, "fewer_videos"),
        rates_section(records),
        parts_section(records, folder),
        training_section(records, folder, "frozen"),
        variance_section(records, folder),
        motion_section(records, folder),
        million_section(records, folder),
        identification_section(records),
        goals_section(records),
        differences_section(),
        run_section(records),
    ]
    return Page(title(records), lead(records), facts(records), sections)


def title(records: Records) -> str:
    """Return the title with the number of videos, once it is known."""
    data = records.last(stage="frames", kind="result")
    return f"Identifying one of {whole(data['classes']) if data else 'very many'} videos"


def lead(records: Records) -> str:
    """Return what this is, and whether it is a full run."""
    text = (
        "The paper's third experiment, run again: the class is the video, the example is a frame. The first half of "
        "each video's frames is for training, the second for evaluation."
    )
    card = records.last(kind="card")
    if card and card["options"]["quick"]:
        text += "\n\n**This is a quick run** on few made scenes: it shows that everything works, not how well."
    return text


def facts(records: Records) -> list[Fact]:
    """Return the numbers that matter, as far as they are measured."""
    found = []
    trained, steps = results.by_head(records, "end_to_end"), results.by_head(records, "step_parts")
    if "candidate" in trained:
        found.append(Fact(percent(trained["candidate"]["accuracy"]), "of unseen frames identified, candidate softmax"))
    if {"candidate", "full"} <= set(steps):
        ratio = steps["full"]["step_ms"] / steps["candidate"]["step_ms"]
        found.append(Fact(times(ratio), "as quick a step as full softmax's, trunk included (the paper: 4×)"))
    query = results.quickest_at(records, 0.99)
    if query:
        said = f"one query among {whole(query['classes'])} scenes on one core, 99% of the exact accuracy"
        found.append(Fact(f"{number(query['us'] / 1000)} ms", said))
    return found


def task_section(records: Records, folder: Path) -> Section:
    """Return what the videos are, with the contact sheet, and the network before it meets them all."""
    data, warm = (records.last(stage=stage, kind="result") for stage in ("frames", "warm_up"))
    if data is None:
        return Section("The task", NOT_RUN.format("frames"), short="Task")
    rows = [
        ["videos", whole(data["classes"])],
        ["frames of each", f"{data['frames']}, the first {data['training_frames']} for training"],
        ["frame", f"{data['side']} × {data['side']} pixels in colour"],
        ["frames made in a second", f"{whole(data['frames_per_second'])} by {data['workers']} threads"],
        *(warm_up_rows(warm) if warm else []),
    ]
    parts: list[Table | Figure | Text] = []
    sheet = records.last(stage="frames", kind="sheet")
    if sheet:
        parts.append(figures.draw_sheet(sheet, folder))
    parts.append(Table(["", ""], rows, "", "ll"))
    return Section("The task", SOURCES.get(data["source"], ""), parts, "Task")


def warm_up_rows(warm: Record) -> list[list[str]]:
    """Return what the network is and where every training starts."""
    return [
        ["multiply-adds of a forward pass, without the last layer", f"{warm['multiply_adds'] / 1e6:,.1f} million"],
        ["features of the penultimate layer", whole(warm["features"])],
        ["first trained on", f"{whole(warm['classes'])} videos, {whole(warm['steps'])} steps, "
                             f"{duration(warm['seconds'])}"],
        ["its accuracy on second halves of those", percent(warm["accuracy"])],
    ]  # fmt: skip


class Training(NamedTuple):
    """How a training is told. what: the caption's and the figure's subject."""

    title: str
    short: str
    what: str
    text: str


TRAININGS = {
    "end_to_end": Training(
        "Training the whole network", "Training", "The whole network",
        "All start from the same network, which knows some of the videos, and see the same batches, each at the best "
        "of the paper's learning rates. The number of steps was fixed beforehand: those of full softmax and of the "
        "paper's layer take so long that they get only as many as last about as long as the others' training. Early in "
        "a pass over the videos accuracy falls back: rows that were just met again are longer than those that wait. "
        "Our layer is there twice: as it is by default, and where every example looks up the classes that it is "
        "mistaken for, in every step.",
    ),
    "fewer_videos": Training(
        "… step by step, with fewer videos", "Fewer", "The whole network, fewer videos",
        "The same with a part of the videos, where every output layer, full softmax too, takes all steps: what is "
        "learned from the same examples. The paper's layer has the same share of the classes as its candidates.",
    ),
    "frozen": Training(
        "Training on frozen features", "Frozen", "The output layer alone",
        "The network stands still; all output layers learn from the same kept features for the same seconds.",
    ),
}  # fmt: skip


def training_section(records: Records, folder: Path, stage: str) -> Section:
    """Return how the output layers learn: with the whole network, or alone on kept features."""
    told = TRAININGS[stage]
    learned, trained = results.curves(records, stage), results.by_head(records, stage)
    if not trained:
        return Section(told.title, NOT_RUN.format(stage), short=told.short)
    missing = [NAMES[head] for head in NAMES if head not in trained]
    notes = [Text(f"Not trained: {', '.join(missing)}.")] if missing else []
    drawn = [figures.draw_curves(learned, folder, stage, told.what)] if learned else []
    return Section(told.title, told.text, [*drawn, results_table(trained), *notes], told.short)


def results_table(trained: dict[str, Record]) -> Table:
    """Return rate, steps, time and accuracy of every output layer."""
    full = trained.get("full")
    rows = [
        [NAMES[head], f"{record['rate']:g}", whole(record["steps"]), duration(record["seconds"]),
         number(record["ms_per_step"]), times(full["ms_per_step"] / record["ms_per_step"] if full else None),
         percent(record["accuracy"])]
        for head, record in trained.items()
    ]  # fmt: skip
    columns = ["output layer", "rate", "steps", "time", "ms per step", "quicker than full softmax", "accuracy"]
    batch = next(record["batch"] for record in trained.values())
    own = {place for place, head in enumerate(trained) if head == "candidate"}
    caption = f"Batches of {batch}. Accuracy on frames of second halves."
    waited = [record["waited_seconds"] / record["seconds"] for record in trained.values() if "waited_seconds" in record]
    if waited:
        caption += f" At most {percent(max(waited))} of the time went into waiting for frames."
    return Table(columns, rows, caption, "lrrrrrr", own)


def rates_section(records: Records) -> Section:
    """Return what each of the paper's rates gave."""
    tried = records.select(stage="rates", kind="result")
    if not tried:
        return Section("Learning rates", NOT_RUN.format("rates"), short="Rates")
    rates = sorted({one["rate"] for one in tried}, reverse=True)
    found = {(one["head"], one["rate"]): one for one in tried}
    rows = []
    for head in NAMES:
        cells = [found.get((head, rate)) for rate in rates]
        if any(cells):
            rows.append([NAMES[head], *(rate_cell(cell) for cell in cells)])
    caption = (
        f"Accuracy on second halves after {whole(tried[0]['steps'])} steps on {whole(tried[0]['classes'])} videos."
    )
    return Section("Learning rates", "The paper tried four and reported the best of each; so do we.",
                   [Table(["output layer", *(f"{rate:g}" for rate in rates)], rows, caption)], "Rates")  # fmt: skip


def rate_cell(found: Record | None) -> str:
    """Return what one rate gave."""
    if found is None:
        return ABSENT
    return "diverged" if found["diverged"] else percent(found["accuracy"])


def parts_section(records: Records, folder: Path) -> Section:
    """Return what a step's time goes into."""
    found = results.by_head(records, "step_parts")
    if not found:
        return Section("A training step", NOT_RUN.format("step_parts"), short="Step")
    some = next(iter(found.values()))
    text = (
        f"A step on {some['batch']} frames over {whole(some['classes'])} videos of {whole(some['features'])} features, "
        "trunk and waiting for frames included. The paper: its step took a quarter of softmax's and four times "
        "hierarchical softmax's."
    )
    return Section("A training step", text, [figures.draw_parts(found, folder, "step_parts")], "Step")


def variance_section(records: Records, folder: Path) -> Section:
    """Return the in-class variance of both tasks."""
    videos = records.last(stage="variance", kind="result")
    if videos is None:
        return Section("In-class variance", NOT_RUN.format("variance"), short="Variance")
    text = (
        "The paper: frames of a video lie nearer to each other than the pictures of a class of its first task, which "
        "could explain why updates of few classes do so well on videos. " + variance_text(records)
    )
    drawn = figures.draw_variance(videos, records.last(stage="variance", kind="of_21k"), folder)
    return Section("In-class variance", text, [drawn], "Variance")


def variance_text(records: Records) -> str:
    """Return both variances in a sentence; nothing where one of them is not known."""
    videos, pictures = (records.last(stage="variance", kind=kind) for kind in ("result", "of_21k"))
    if not videos or not pictures:
        return ""
    return (
        f"Here a video's frames have a variance of {number(videos['mean'])} on average, and a class of the 21k-class "
        f"task {number(pictures['mean'])}; beside the mean squared distance of two classes' means that is "
        f"{percent(videos['mean'] / videos['between'])} and {percent(pictures['mean'] / pictures['between'])}."
    )


def motion_section(records: Records, folder: Path) -> Section:
    """Return the test of the paper's explanation."""
    name, short = "Does low variance explain it?", "Motion"
    left_out = records.last(stage="motion", kind="left_out")
    series = results.motions(records)
    if left_out:
        return Section(name, f"Left out: {left_out['reason']}.", short=short)
    if not series:
        return Section(name, NOT_RUN.format("motion"), short=short)
    text = (
        "The same videos and the same frozen network, with a camera that moves more and more: the in-class variance "
        "grows and nothing else changes. If low variance is what makes updates of few classes efficient, the paper's "
        f"layer must fall behind full softmax as it grows.\n\n{results.verdict_on_motion(series)}"
    )
    heads = [head for head in NAMES if all(head in one.accuracy for one in series)]
    others = [head for head in heads if head != "full"]
    rows = [
        [f"{one.motion:g}", number(one.variance), *(percent(one.accuracy[head]) for head in heads),
         *(percent(one.shares[head]) for head in others), *(percent(one.seen[head]) for head in others)]
        for one in series
    ]  # fmt: skip
    groups = [("", 2), ("accuracy at the end", len(heads)), ("of full softmax's, on the way", len(others)),
              ("of full softmax's, on frames trained on", len(others))]  # fmt: skip
    columns = ["motion", "variance", *heads, *others, *others]
    table = Table(columns, rows, "", "r" * len(columns), groups=groups)
    return Section(name, text, [figures.draw_motion(series, folder), table], short)


def goals_section(records: Records) -> Section:
    """Return what was to be shown, and whether it is."""
    said = {True: "reached", False: "missed", None: ABSENT}
    rows = [[said[shown], goal, told] for goal, shown, told in verdicts(records)]
    return Section("What was to be shown", "", [Table(["", "goal", ""], rows, "", "lll")], "Goals")


def differences_section() -> Section:
    """Return what differs from the paper."""
    text = (
        "The paper has 1.2 million videos of Sports-1M with about 150 frames for training each, and clusters. Here are "
        "photographs under a moving camera, or scenes that are made, on one small machine. The network is AlexNet with "
        "two thirds of the width of one of its two towers and a narrower dense layer before the last, for small "
        "frames, with batch normalisation. It starts from a network that has learned some of the videos, because all "
        "of them come by too seldom to teach an untrained one; rates are tried on some of the videos, too. At 1.2 "
        "million classes the output layer stands on 256 features of a light network that itself is not trained with "
        "it. `--data FOLDER` takes real videos: whoever has Sports-1M runs the real thing."
    )
    return Section("What differs from the paper", text, short="Differences")
