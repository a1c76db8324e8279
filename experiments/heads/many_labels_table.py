"""What the records say of many labels: the table of the page and of docs/many_labels.md."""

from statistics import mean

from experiments.frame.documents import as_markdown
from experiments.frame.page import Table
from experiments.frame.records import Record, Records
from experiments.frame.run_section import machine_in_words
from experiments.frame.wording import ABSENT, whole

STAGE, OMIKUJI = "many_labels", "omikuji"
STARTS = {
    "counts": "how often each label was given",
    "counted": "the same, counted on the way",
    "default": "the default: one of all labels is right",
    "half": "every label as likely as not",
}


def many_labels_table(records: Records) -> Table:
    """Return precision, steps and seconds for every start of the bias, means over the seeds, and for Omikuji."""
    rows = []
    for name, label in (*STARTS.items(), (OMIKUJI, "Omikuji, label trees of linear classifiers")):
        runs: list[Record] = records.select(stage=STAGE, kind="result", name=name)
        if runs:
            found = [f"{mean(run['precision'][place] for run in runs):.3f}" for place in range(3)]
            steps = [run["steps"] for run in runs if run["steps"] is not None]
            seconds = f"{mean(run['seconds'] for run in runs):.0f}"
            rows.append([label, *found, whole(mean(steps)) if steps else ABSENT, seconds])
    return Table(
        ["where the biases start", "P@1", "P@3", "P@5", "steps", "seconds"],
        rows,
        "Share of right ones among the best label, the best three and the best five.",
    )


def many_labels_block(records: Records, page: str) -> str:
    """Return the table with its setting, for the documents."""
    some = records.last(stage=STAGE, kind="result")
    if some is None:
        return f"Not measured yet: stage `{STAGE}` of the experiment `heads`."
    seeds = len({run["seed"] for run in records.select(stage=STAGE, kind="result")})
    of_seeds = "one seed" if seeds == 1 else f"means of {seeds} seeds"
    return (
        f"{whole(some['train'])} articles to learn from, {whole(some['tests'])} to be judged on, "
        f"{whole(some['classes'])} labels; {some['passes']} passes of training, hidden {some['hidden']}, "
        f"batch {some['batch']}, {of_seeds}; {machine_in_words(records, STAGE)}, {page}.\n\n"
        f"{as_markdown(many_labels_table(records))}"
    )
