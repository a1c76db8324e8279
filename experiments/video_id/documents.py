"""What README and docs tell of the committed run, every number from its records."""

from experiments.frame.documents import as_markdown
from experiments.frame.records import Records
from experiments.frame.run_section import machine_in_words
from experiments.video_id.goals import verdicts
from experiments.video_id.page import results_table
from experiments.video_id.page_million import latency_text
from experiments.video_id.results import by_head, motions, verdict_on_motion

NOT_YET = "Not measured yet: stage `{}` of the experiment `video_id`."


def texts(records: Records) -> dict[str, str]:
    """Return tables and goals; what was not run is said to be so."""
    found = {stage: by_head(records, stage) for stage in ("end_to_end", "frozen")}
    tables = {stage: as_markdown(results_table(trained)) if trained else NOT_YET.format(stage)
              for stage, trained in found.items()}  # fmt: skip
    series, answers = motions(records), records.select(stage="latency", kind="result")
    told = {
        "machine": machine_in_words(records),
        **tables,
        "motion": verdict_on_motion(series) if series else NOT_YET.format("motion"),
        "latency": latency_text(records, answers) if answers else NOT_YET.format("latency"),
        "goals": goals(records),
    }
    return {f"video_id_{name}": text for name, text in told.items()}


def goals(records: Records) -> str:
    """Return which goals are reached, which are missed, and which nothing is recorded of."""
    groups: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for goal, shown, figures in verdicts(records):
        groups[shown].append(goal if shown is None else f"{goal} ({figures})")
    names = {True: "Reached", False: "Missed", None: "Not measured yet"}
    return " ".join(f"{names[shown]}: {'; '.join(found)}." for shown, found in groups.items() if found)
