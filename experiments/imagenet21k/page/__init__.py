"""The page of the experiment: every table and figure of the paper's section, from the records alone."""

from pathlib import Path

from experiments.frame.page import Fact, Page
from experiments.frame.records import Records
from experiments.frame.wording import percent, times, whole
from experiments.imagenet21k.page import paper, reading
from experiments.imagenet21k.page.layer_sections import layer_sections
from experiments.imagenet21k.page.peers_section import peers_section
from experiments.imagenet21k.page.run_sections import differences_section, run_section
from experiments.imagenet21k.page.training_sections import heads_section, task_section, variance_section


def make_page(records: Records, folder: Path) -> Page:
    """Return the page; figures are written into the folder. What was not run says so."""
    sections = [
        task_section(records, folder),
        *layer_sections(records, folder),
        peers_section(records, folder),
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
        "matter by winner-take-all hashing and scores only those exactly. The paper's numbers stand beside ours."
    )
    card = records.last(kind="card")
    if card and card["options"]["quick"]:
        text += "\n\n**This is a quick run** on small data: it shows that everything works, not how well."
    return text


def facts(records: Records) -> list[Fact]:
    """Return the numbers that matter, as far as they are measured."""
    found = []
    cells = reading.layer_cells(records)
    share, wanted = paper.GOAL_TRADE_OFF
    best = reading.fewest(cells, "default", 1, share)
    if best:
        label = f"the speed of the fastest exact product at {percent(best['accuracy_kept'])} of its accuracy, "
        found.append(Fact(times(best["speedup"]), f"{label}one image at a time (goal: {wanted:g}× at {share:.0%})"))
    few = cells.get(("default", 1, 30))
    if few:
        label = f"of the exact accuracy kept with 30 candidates (the paper: {paper.ACCURACY_KEPT[30]:.0%})"
        found.append(Fact(percent(few["accuracy_kept"]), label))
    literal = reading.fewest(cells, "paper", 1, paper.TRADE_OFF[0])
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
