"""What page and docs tell of the stage `literal`: what the paper's rule reaches against how often classes are found."""

from pathlib import Path
from statistics import mean

from experiments.frame.documents import as_markdown
from experiments.frame.drawing import canvas, in_percent, save, series_style
from experiments.frame.page import Figure, Table
from experiments.frame.records import Record, Records
from experiments.frame.wording import ABSENT, number, percent
from experiments.heads.sizes import seconds_stage
from experiments.heads.task_parts import short
from experiments.heads.verdicts import runs_by_head

STAGE = "literal"
TEXT = (
    "Under the paper's rule an example is compared with its own candidates alone. Two suspicions why it learns here "
    "and not there: that the row of a class, once near an example of it, must be found again by the next one; and that "
    "features must not have a large common part, by which everybody finds the same rows. “Found again” is known before "
    "any training: one example of each class is its row, another is asked for 30 candidates by the paper's votes. "
    "Features are made with a common part and noise of several lengths, where what tells a class is one long; they do "
    "not change while the output layer learns. The first suspicion is refuted where the rule keeps up with full "
    "softmax though classes are seldom found again, or falls behind though they mostly are."
)


def by_setting(records: Records) -> dict[tuple[float, float], list[Record]]:
    """Return the runs on made features by common part and noise."""
    found: dict[tuple[float, float], list[Record]] = {}
    for one in records.select(stage=STAGE, kind="result"):
        found.setdefault((one["common"], one["noise"]), []).append(one)
    return dict(sorted(found.items()))


def reached(runs: list[Record]) -> float:
    """Return what the rule reaches, as a share of full softmax."""
    full = mean(run["full"] for run in runs)
    return mean(run["wta"] for run in runs) / full if full else 0.0


def literal_table(records: Records) -> Table:
    """Return the number and what both layers reach, on made features."""
    rows = [
        [f"{common:g}", f"{noise:g}", percent(mean(run["found_again"] for run in runs)),
         percent(mean(run["full"] for run in runs)), percent(mean(run["wta"] for run in runs)), percent(reached(runs))]
        for (common, noise), runs in by_setting(records).items()
    ]  # fmt: skip
    columns = ["common part", "noise", "found again", "full softmax", "the paper's rule", "of full softmax's"]
    return Table(columns, rows, "After as many steps; means of the seeds.", "r" * 6)


def literal_tasks_table(records: Records) -> Table:
    """Return the number of each task, beside what the rule and the best other layer reached there."""
    rows = []
    for one in records.select(stage=STAGE, kind="task"):
        runs = runs_by_head(records, seconds_stage(one["task"]))
        ends = {head: mean(run["score"] for run in some) for head, some in runs.items()}
        rule = ends.pop("wta", None)
        best = max(ends.values(), default=None)
        told = [percent(value) if value is not None else ABSENT for value in (rule, best)]
        rows.append([short(one["task"]), percent(one["found_again"]), _met(runs.get("wta", [])), *told])
    columns = ["task", "found again, before training", "examples of a class that it met", "the paper's rule",
               "best other layer"]  # fmt: skip
    return Table(columns, rows, "Scores are those after the same seconds; its steps are slow.", "lrrrr")


def _met(runs: list[Record]) -> str:
    """Return how many examples of a class came by, in the mean of classes and seeds."""
    return number(mean(run["steps"] * run["batch"] / run["classes"] for run in runs)) if runs else ABSENT


def draw_literal(records: Records, folder: Path) -> Figure:
    """Draw what the rule reaches against the number, a point for each setting."""
    figure, (axis,) = canvas(1, width=7.5, height=4.6)
    settings = by_setting(records)
    for place, common in enumerate(sorted({common for common, _ in settings})):
        some = [runs for (of_setting, _), runs in settings.items() if of_setting == common]
        style = {name: value for name, value in series_style(place).items() if name != "linewidth"}
        axis.plot([mean(run["found_again"] for run in runs) for runs in some], [reached(runs) for runs in some],
                  linestyle="none", label=f"common part {common:g}", **style)  # fmt: skip
    axis.set(xlabel="classes found again, before training", ylabel="accuracy, of full softmax's", xlim=(-0.02, 1.02))
    axis.set_ylim(bottom=0)
    in_percent(axis.xaxis)
    in_percent(axis.yaxis)
    axis.legend(frameon=False)
    return Figure(
        "literal", save(figure, folder, "literal"),
        "Each point is one kind of features; means of the seeds.",
        "What the paper's rule reaches against how often classes are found again",
    )  # fmt: skip


def literal_block(records: Records, figures: str) -> str:
    """Return what docs say."""
    if not records.done(stage=STAGE, kind="result"):
        return f"Not measured yet: stage `{STAGE}` of the experiment `heads`."
    picture = f"![What the paper's rule reaches against how often classes are found again]({figures}/literal.png)"
    parts = [picture, as_markdown(literal_table(records))]
    tasks = literal_tasks_table(records)
    return "\n\n".join([*parts, as_markdown(tasks)] if tasks.rows else parts)
