"""The sections of the page on very many scenes, and on identification as something one uses."""

from pathlib import Path

from experiments.frame.page import Figure, Section, Table, Text
from experiments.frame.records import Record, Records
from experiments.frame.wording import duration, number, percent, times, whole
from experiments.video_id import figures, results
from experiments.video_id.goals import head_ms
from experiments.video_id.results import NAMES, share_of

NOT_RUN = "Not measured yet: stage `{}`."


def million_section(records: Records, folder: Path) -> Section:
    """Return training, memory, steps and answers over all made scenes."""
    title, short = "Very many scenes", "Million"
    light, kept, trained, nearest = (
        records.last(stage=stage, kind=kind)
        for stage, kind in (("light_trunk", "result"), ("scene_features", "result"), ("million", "result"),
                            ("million", "nearest_mean"))
    )  # fmt: skip
    if light is None and not records.done(stage="million_steps", kind="result"):
        return Section(title, NOT_RUN.format("light_trunk"), short=short)
    text = (
        "Scenes that are made by their number. A light network is trained on fewer of them; frames of all pass through "
        "it once, and the output layer is trained on what it gives, from nothing."
    )
    rows = [*(light_rows(light) if light else []), *(kept_rows(kept) if kept else []),
            *(trained_rows(trained, nearest) if trained else [])]  # fmt: skip
    parts: list[Table | Figure | Text] = [Table(["", ""], rows, "", "ll")] if rows else []
    points = records.select(stage="million", kind="evaluation")
    if points:
        parts.append(figures.draw_million(points, nearest["accuracy"] if nearest else None, folder))
    steps = results.by_head(records, "million_steps")
    if steps:
        parts += [figures.draw_parts(steps, folder, "million_steps"), steps_table(steps)]
    left_out = records.select(stage="million_steps", kind="left_out")
    parts += [Text(f"Left out: {NAMES[one['head']]}, {one['reason']}") for one in left_out]
    answers = records.select(stage="latency", kind="result")
    if answers:
        parts += [figures.draw_latency(answers, folder), Text(latency_text(records, answers))]
    missing = [stage for stage in ("scene_features", "million", "million_steps", "latency")
               if not records.done(stage=stage, kind="result")]  # fmt: skip
    parts += [Text(NOT_RUN.format(stage)) for stage in missing]
    return Section(title, text, parts, short)


def light_rows(light: Record) -> list[list[str]]:
    """Return how the light network was trained."""
    trained = f"{whole(light['classes'])} scenes, {whole(light['steps'])} steps, {duration(light['seconds'])}"
    return [["light network trained on", trained], ["its accuracy on those", percent(light["accuracy"])]]


def kept_rows(kept: Record) -> list[list[str]]:
    """Return how much was kept."""
    return [
        ["scenes", whole(kept["classes"])],
        ["frames of each whose features are kept", f"{kept['frames']}, {kept['features']} features in 16 bits"],
        ["to make them", f"{duration(kept['seconds'])}, {number(kept['gigabytes'])} GB"],
    ]


def trained_rows(trained: Record, nearest: Record | None) -> list[list[str]]:
    """Return what the layer reached, and what a class takes."""
    parts = ("row_bytes", "state_bytes", "index_bytes", "memory_bytes")
    told = ", ".join(f"{name.removesuffix('_bytes')} {whole(trained[name])}" for name in parts)
    rows = [
        ["output layer trained", f"{whole(trained['steps'])} steps of {trained['batch']}, "
                                 f"{duration(trained['seconds'])}, {number(trained['epochs'])} passes"],
        ["its accuracy on second halves", percent(trained["accuracy"])],
    ]  # fmt: skip
    if nearest:
        rows.append(["the exact nearest class mean's", percent(nearest["accuracy"])])
        rows.append(["of which the layer has", percent(share_of(trained, nearest))])
    total = sum(trained[name] for name in parts)
    return [*rows, ["bytes of a class in training", f"{whole(total)}: {told}"]]


def steps_table(found: dict[str, Record]) -> Table:
    """Return a step over all scenes, and its output layer's part."""
    full = found.get("full")
    rows = [
        [NAMES[head], number(record["step_ms"]), number(record["trunk_ms"]), number(head_ms(record)),
         times(head_ms(full) / head_ms(record) if full and head_ms(record) else None)]
        for head, record in found.items()
    ]  # fmt: skip
    some = next(iter(found.values()))
    columns = ["output layer", "step, ms", "trunk, ms", "output layer, ms", "quicker than full softmax"]
    caption = f"{whole(some['classes'])} classes, {some['features']} features, batches of {some['batch']}."
    return Table(columns, rows, caption, "lrrrr", {place for place, head in enumerate(found) if head == "candidate"})


def latency_text(records: Records, answers: list[Record]) -> str:
    """Return the quickest answer that keeps 99% of the exact accuracy."""
    found, some = results.quickest_at(records, 0.99), answers[0]
    exact = f"The exact answer of the layer is right on {percent(some['exact_accuracy'])} of the frames."
    if found is None:
        return f"{exact} No setting that was tried keeps 99% of that."
    return (
        f"{exact} {found['candidates']} candidates keep 99% of that in {number(found['us'] / 1000)} ms on one core "
        f"({found['pipeline']}, {whole(found['index_bytes'])} bytes per class beside the rows)."
    )


def identification_section(records: Records) -> Section:
    """Return what one question to the saved model takes."""
    found = records.last(stage="model", kind="result")
    title, short = "Identifying a frame", "Identify"
    if found is None:
        return Section(title, NOT_RUN.format("model"), short=short)
    text = (
        "The network, the index over its output layer and the names of the videos are saved in `OUT/model`; "
        "`manyclass identify --model OUT/model FRAME.png` asks it."
    )
    rows = [
        ["videos", whole(found["classes"])],
        ["frames asked, from second halves", whole(found["frames"])],
        ["first answer right", percent(found["first_is_right"])],
        *([f"{part}, ms", number(found[f"{part}_ms"])] for part in ("reading", "network", "classes", "total")),
    ]
    return Section(title, text, [Table(["", ""], rows, "Median times of one frame at a time.", "lr")], short)
