"""What faults do: the pause after a kill, the learning curve through kills, and what the counter's ledger says."""

from pathlib import Path
from statistics import median

from experiments.frame.drawing import Line, canvas, draw_lines, in_percent, in_plain_numbers, save, series_style
from experiments.frame.page import Figure, Section, Table, Text
from experiments.frame.records import Records
from experiments.frame.wording import number, whole


def faults_section(records: Records, folder: Path) -> Section:
    """Return curve and pauses."""
    parts: list[Table | Figure | Text] = []
    curves = records.select(kind="curve")
    if curves:
        figure, (axis,) = canvas(1, width=9, height=4.2)
        in_percent(axis.yaxis)
        in_plain_numbers(axis.xaxis)
        lines = []
        for position, record in enumerate(curves):
            name = {"calm": "undisturbed", "faults": "with faults"}[record["run"]]
            examples, accuracies = (
                [0, *(at for at, _ in record["curve"])],
                [0.0, *(found for _, found in record["curve"])],
            )
            lines.append(Line(name, examples, accuracies, series_style(position) | {"marker": "o"}))
        draw_lines(axis, lines, xlabel="examples", ylabel="accuracy", xlim=(0, None), ylim=(0, None))
        faults = sum(count for record in curves for count in record["done"].values())
        caption = f"Accuracy against examples on Ray with 2 workers, undisturbed and with {faults} faults."
        parts.append(Figure("faults", save(figure, folder, "faults"), caption, "Accuracy with and without faults"))
    kills = records.select(kind="recovery")
    if kills:
        rows = []
        for what, field in (("push", "pause_seconds"), ("step, with its look-up", "step_pause_seconds")):
            pauses = sorted(record[field] for record in kills)
            rows.append([what, number(kills[0]["gigabytes"]), whole(len(pauses)), number(median(pauses)),
                         number(pauses[-1])])  # fmt: skip
        parts.append(Table(["until the next applied", "GB of rows", "kills", "median seconds", "longest"], rows,
                           "From SIGKILL of a shard. A step waits for the index, which is built anew.",
                           "lrrrr"))  # fmt: skip
    return Section("Through faults", "Shards come back from their newest checkpoint, workers are replaced.", parts)


def counter_section(records: Records) -> Section:
    """Return the ledger's verdicts."""
    rows = []
    for durability in ("log", "checkpoint"):
        record = records.last(kind="chaos", durability=durability)
        if record:
            faults = ", ".join(f"{count} × {kind}" for kind, count in record["faults"].items())
            found = [
                whole(record[name]) for name in ("doubled", "lost", "lost_early", "in_doubt_applied", "wrong_cells")
            ]
            rows.append([durability, whole(record["acknowledged"]), faults, *found])
    columns = ["durability", "acknowledged", "faults", "doubled", "lost", "of these, in a checkpoint",
               "in doubt, applied", "wrong cells"]  # fmt: skip
    text = (
        "Every push adds exactly 1 to a few rows; a ledger outside of the cluster knows which. Messages are lost at "
        "random all the while. With durability “checkpoint”, a killed shard may lose what it acknowledged after its "
        "newest whole checkpoint began; with “log”, nothing. In doubt is what was never acknowledged."
    )
    return Section("Exactly once", text, [Table(columns, rows, "", "lrlrrrrr")] if rows else [])
