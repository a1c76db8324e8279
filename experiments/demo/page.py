"""The page of the demo: one figure, one table; and what README and docs tell of it."""

from pathlib import Path

from experiments.frame.documents import as_markdown
from experiments.frame.drawing import Line, canvas, draw_lines, in_percent, in_plain_numbers, save
from experiments.frame.page import Fact, Figure, Page, Section, Table
from experiments.frame.records import Record, Records
from experiments.frame.run_section import machine_in_words, run_section
from experiments.frame.wording import ABSENT, number, percent, whole

NAMES = {  # output layers in the order they are trained
    "candidate": "candidate softmax (manyclass)",
    "wta": "WTA softmax (the paper's layer)",
    "hierarchical": "hierarchical softmax",
    "sampled": "sampled softmax",
    "full": "full softmax",
}
COLOURS = {
    "candidate": "#d1361f", "wta": "#e89a2c", "hierarchical": "#2c7fb8", "sampled": "#2a9d4a", "full": "#5b6670",
}  # fmt: skip


def results(records: Records) -> dict[str, Record]:
    """Return the newest result of each output layer, in order."""
    found = {head: records.last(stage=head, kind="result") for head in NAMES}
    return {head: record for head, record in found.items() if record}


def make_page(records: Records, folder: Path) -> Page:
    """Return the page; what was not trained yet is not on it."""
    found = results(records)
    facts = [Fact(percent(record["accuracy"]), f"with {NAMES[head]}") for head, record in found.items()]
    compared = Section(
        "Five output layers",
        "Each learns for the same seconds on the same data: pictures of one of very many things, half of whose "
        "features are missing, and noise. Things are met as unequally often as words are.",
        [draw_curves(found, folder), results_table(records)] if found else [],
    )
    lead = "Which output layer learns most in the same time?"
    return Page(title(found), lead, facts, [compared, run_section(records)])


def title(found: dict[str, Record]) -> str:
    """Return what the demo does, with its number of classes."""
    classes = next((record["classes"] for record in found.values()), None)
    return f"Identifying one of {whole(classes)} classes" if classes else "Identifying one of very many classes"


def draw_curves(found: dict[str, Record], folder: Path) -> Figure:
    """Draw accuracy against seconds."""
    figure, (axis,) = canvas(1, width=9, height=4.4)
    in_percent(axis.yaxis)
    in_plain_numbers(axis.xaxis)
    lines = []
    for head, record in found.items():
        seconds, accuracy = zip((0.0, 0.0), *record["curve"], strict=True)
        own = head == "candidate"
        style = {"color": COLOURS[head], "linewidth": 3 if own else 1.8, "marker": "o", "markersize": 4}
        lines.append(Line(NAMES[head], seconds, accuracy, style | {"zorder": 5 if own else 3, "clip_on": False}))
    draw_lines(axis, lines, xlabel="seconds of training", ylabel="accuracy on new examples", title=title(found),
               xlim=(0, None), ylim=(0, None))  # fmt: skip
    caption = "Accuracy on examples that were not trained on, against seconds of training."
    return Figure("demo", save(figure, folder, "demo"), caption, "Accuracy against seconds for five output layers")


def results_table(records: Records) -> Table:
    """Return steps, time of a step and accuracy of each output layer."""
    found = results(records)
    rows = [
        [NAMES[head], record["retrieval"] or ABSENT, whole(record["steps"]),
         number(1000 * record["seconds"] / max(1, record["steps"])), percent(record["accuracy"])]
        for head, record in found.items()
    ]  # fmt: skip
    budget = next((record["budget"] for record in found.values()), 0.0)
    return Table(
        ["output layer", "retrieval", "steps", "ms per step", "accuracy"], rows,
        f"After {budget:.0f} seconds of training each, same data, same optimizer.", "llrrr",
        {number for number, head in enumerate(found) if head == "candidate"},
    )  # fmt: skip


TOLD = ("candidate", "wta")  # of these a sentence tells


def documents(records: Records) -> dict[str, str]:
    """Return the table, and accuracies for a sentence."""
    found = results(records)
    budget = next(f"{record['budget']:.0f} seconds" for record in found.values())
    accuracies = {f"demo_{head}_accuracy": percent(found[head]["accuracy"]) for head in TOLD if head in found}
    return {
        "demo_table": as_markdown(results_table(records)),
        "demo_machine": machine_in_words(records),
        "demo_seconds": budget,
        **accuracies,
    }
