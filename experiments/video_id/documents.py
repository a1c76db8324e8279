"""What README and docs tell of the committed run, every number from its records."""

from collections.abc import Callable

from experiments.frame.documents import as_markdown
from experiments.frame.page import Table
from experiments.frame.records import Record, Records
from experiments.frame.run_section import machine_in_words
from experiments.frame.wording import duration, number, percent, whole
from experiments.video_id.goals import verdicts
from experiments.video_id.page import results_table, variance_text
from experiments.video_id.page_million import latency_text, steps_table
from experiments.video_id.results import NAMES, by_head, motions, share_of, verdict_on_motion

NOT_YET = "Not measured yet: stage `{}` of the experiment `video_id`."


def texts(records: Records) -> dict[str, str]:
    """Return tables and goals; what was not run is said to be so."""
    series, answers = motions(records), records.select(stage="latency", kind="result")
    told = {
        "machine": machine_in_words(records).rpartition(", ")[0],  # stages differ in their threads
        **{stage: table_of(records, stage, results_table) for stage in ("end_to_end", "fewer_videos", "frozen")},
        **{stage: table_of(records, stage, steps_table) for stage in ("step_parts", "million_steps")},
        "motion": verdict_on_motion(series) if series else NOT_YET.format("motion"),
        "variance": variance_text(records) or NOT_YET.format("variance"),
        "million": million_text(records),
        "latency": latency_text(records, answers) if answers else NOT_YET.format("latency"),
        "model": model_text(records),
        "summary": summary(records),
        "goals": goals(records),
    }
    return {f"video_id_{name}": text for name, text in told.items()}


def table_of(records: Records, stage: str, make: Callable[[dict[str, Record]], Table]) -> str:
    """Return the table of a stage."""
    found = by_head(records, stage)
    return as_markdown(make(found)) if found else NOT_YET.format(stage)


def million_text(records: Records) -> str:
    """Return what the layer over all scenes learned, beside the nearest class mean."""
    kept, trained = (records.last(stage=stage, kind="result") for stage in ("scene_features", "million"))
    nearest = records.last(stage="million", kind="nearest_mean")
    if not kept or not trained or not nearest:
        return NOT_YET.format("million")
    share = percent(share_of(trained, nearest))
    return (
        f"Over {whole(trained['classes'])} scenes, from {kept['frames']} frames of each, the output layer is right on "
        f"{percent(trained['accuracy'])} of the frames of second halves after {duration(trained['seconds'])}, the "
        f"exact nearest class mean on {percent(nearest['accuracy'])}: {share} of it."
    )


def model_text(records: Records) -> str:
    """Return what one question to the saved model takes."""
    found = records.last(stage="model", kind="result")
    if found is None:
        return NOT_YET.format("model")
    parts = ", ".join(f"{part} {number(found[f'{part}_ms'])}" for part in ("reading", "network", "classes"))
    return f"One frame among {whole(found['classes'])} videos takes {number(found['total_ms'])} ms ({parts})."


def summary(records: Records) -> str:
    """Return what the output layers reach over all videos, in a sentence."""
    trained = by_head(records, "end_to_end")
    if not trained:
        return NOT_YET.format("end_to_end")
    told = "; ".join(f"{NAMES[head]} {percent(one['accuracy'])} ({whole(one['steps'])} steps in "
                     f"{duration(one['seconds'])})" for head, one in trained.items())  # fmt: skip
    classes = whole(next(iter(trained.values()))["classes"])
    return f"Which of {classes} videos an unseen frame is from: {told}."


def goals(records: Records) -> str:
    """Return which goals are reached, which are missed, and which nothing is recorded of."""
    groups: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for goal, shown, figures in verdicts(records):
        groups[shown].append(goal if shown is None else f"{goal} ({figures})")
    names = {True: "Reached", False: "Missed", None: "Not measured yet"}
    return " ".join(f"{names[shown]}: {'; '.join(found)}." for shown, found in groups.items() if found)
