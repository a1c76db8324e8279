"""What goes over the wire: bytes of the three ways of sharing the work, counted, beside the formulas."""

from pathlib import Path

from experiments.distributed.traffic import KINDS
from experiments.frame.drawing import Line, canvas, draw_lines, in_plain_numbers, save, series_style
from experiments.frame.page import Figure, Section, Table
from experiments.frame.records import Records
from experiments.frame.wording import number, times, whole


def traffic_table(records: Records) -> Table:
    """Return the bytes of each transport beside the formula."""
    found = records.select(kind="bytes")
    rows = []
    for key in sorted({(record["batch"], record["shards"]) for record in found}):
        by = {record["transport"]: record for record in found if (record["batch"], record["shards"]) == key}
        if len(by) < 3:
            continue
        cells = [f"{number(by[kind]['bytes'] / 1e6)} ({number(by[kind]['predicted'] / 1e6)})"
                 for kind in KINDS]  # fmt: skip
        ratio = times(by["rows"]["bytes"] / by["activations"]["bytes"])
        rows.append([*map(whole, key), whole(by["rows"]["computed_classes"]), *cells, ratio])
    columns = ["batch", "shards", "rows touched", "rows", "activations", "shared sets", "fewer"]
    sizes = found[0] if found else None
    caption = (f"MB per step and worker, counted, and by formula in brackets; {whole(sizes['classes'])} × "
               f"{sizes['features']}, {sizes['candidates']} candidates per example." if sizes else "")  # fmt: skip
    return Table(columns, rows, caption, "rrrrrrr")


def traffic_section(records: Records, folder: Path) -> Section:
    """Return the section; empty where nothing was counted yet."""
    found = records.select(kind="bytes")
    if not found:
        return Section("Over the wire", "", [])
    batches = sorted({record["batch"] for record in found})
    figure, axes = canvas(len(batches), width=9, height=4.2)
    for axis, batch in zip(axes, batches, strict=True):
        lines = []
        for position, kind in enumerate(KINDS):
            points = sorted((record["shards"], record["bytes"] / 1e6) for record in found
                            if record["batch"] == batch and record["transport"] == kind)  # fmt: skip
            if points:
                counts, sizes = [point[0] for point in points], [point[1] for point in points]
                lines.append(Line(kind, counts, sizes, series_style(position) | {"marker": "o"}))
        axis.set_yscale("log")
        in_plain_numbers(axis.yaxis)
        draw_lines(axis, lines, xlabel="shards", ylabel="MB per step", title=f"batch of {batch}", xlim=(0, None))
    drawing = Figure("bytes", save(figure, folder, "bytes"), "Bytes that a worker sends and receives in a step.",
                     "MB per step against shards for three ways of sharing the work")  # fmt: skip
    text = ("The paper's way pulls rows and pushes their gradients; activations sent to the shards bring back logits "
            "of candidates; with shared sets, sums alone.")  # fmt: skip
    return Section("Over the wire", text, [drawing, traffic_table(records)])
