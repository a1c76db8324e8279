"""The page of the experiment: every table and figure, from the records alone."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from experiments.frame.page import Fact, Figure, Page, Section, Table, Text
from experiments.frame.records import Records
from experiments.frame.run_section import run_section
from experiments.frame.wording import number, percent, times, whole
from experiments.heads import figures, literal_parts, tables, task_parts
from experiments.heads.bfloat16 import rounding_table
from experiments.heads.many_labels_table import many_labels_table
from experiments.heads.sizes import FULL, per_step_stage, seconds_stage
from experiments.heads.ten_million import ten_million_table
from experiments.heads.verdicts import verdicts

Parts = list[Table | Figure | Text]
TASKS = list(FULL.tasks)
PER_STEP = [task for task, size in FULL.tasks.items() if size.steps]
LEAD = (
    "Output layers that compute few of many classes in a training step, beside full softmax: how long a step takes, "
    "what is learned in as many steps and in as many seconds, and how far the approximations are off."
)
QUICK_LEAD = "**This is a quick run** on small made data: it shows that everything works, not how well."


def make_page(records: Records, folder: Path) -> Page:
    """Return the page; figures are written into the folder. What was not run says so."""

    def section(stage: str, title: str, text: str, parts: Callable[[], Parts]) -> Section:
        short = title.partition(":")[0]
        missing = records.last(stage=stage, kind="missing")
        if missing:
            text += f"\n\nLeft out: {missing['reason']}; `{missing['install']}`."
        if not records.done(stage=stage, kind="result"):
            return Section(title, f"{text}\n\nNot run yet: stage `{stage}`.", short=short)
        return Section(title, text, parts(), short)

    sections = [
        verdict_section(records),
        *(section(seconds_stage(task), task_parts.TITLES[task], task_parts.TEXTS[task],
                  partial(task_part, records, task, folder)) for task in TASKS),
        section("learning", "Step by step: what a head learns of few classes", LEARNING,
                lambda: [figures.draw_learning(records, folder), tables.learning_table(records)]),
        section("steps", "Step times: a head alone", STEPS,
                lambda: [figures.draw_steps(records, folder), tables.steps_table(records),
                         tables.parts_table(records, "steps", tables.middle_size(records))]),
        section("paper_setting", "Paper's setting: its second experiment", paper_setting_text(records),
                lambda: [tables.parts_table(records, "paper_setting", paper_classes(records))]),
        section("momentum", "Momentum: per row or at once", MOMENTUM, lambda: [tables.momentum_table(records)]),
        section("refresh", "Refresh: when rows are re-hashed", REFRESH,
                lambda: [figures.draw_refresh(records, folder), tables.refresh_table(records)]),
        section("bfloat16", "Bytes: rows of 16 bits", BYTES, lambda: [rounding_table(records)]),
        section("ten_million", "Ten million: classes that fill a machine", TEN_MILLION,
                lambda: [ten_million_table(records)]),
        section("tail", "Tail: how far its samples are off", TAIL,
                lambda: [figures.draw_tail(records, folder), tables.tail_table(records)]),
        section(literal_parts.STAGE, "Paper's rule: where it learns, and where not", literal_parts.TEXT,
                lambda: [literal_parts.draw_literal(records, folder), literal_parts.literal_table(records),
                         literal_parts.literal_tasks_table(records)]),
        section("serving", "Serving: a head that answers and changes", SERVING,
                lambda: [tables.serving_table(records)]),
        section("many_labels", "Many labels: where the biases start", MANY_LABELS,
                lambda: [many_labels_table(records)]),
        run_section(records),
    ]  # fmt: skip
    card = records.last(kind="card")
    lead = f"{LEAD}\n\n{QUICK_LEAD}" if card and card["options"]["quick"] else LEAD
    return Page("Output layers in training", lead, facts(records), sections)


def verdict_section(records: Records) -> Section:
    """Return what the runs on all tasks say together."""
    title, short = "Second by second: what a head learns", "Verdicts"
    stages = [*map(seconds_stage, TASKS), *map(per_step_stage, PER_STEP)]
    if not any(records.done(stage=stage, kind="result") for stage in stages):
        return Section(title, f"{SECONDS}\n\nNot run yet: stages `{'`, `'.join(stages)}`.", short=short)
    found = verdicts(records, TASKS, PER_STEP)
    parts = [task_parts.verdict_table(found), task_parts.near_best_table(records, TASKS),
             task_parts.ahead_table(records, TASKS), task_parts.per_step_table(records, PER_STEP)]  # fmt: skip
    return Section(title, SECONDS, parts, short)


def task_part(records: Records, task: str, folder: Path) -> Parts:
    """Return figure and tables of a task."""
    return [task_parts.draw_seconds(records, task, folder), task_parts.tenths_table(records, task),
            task_parts.end_table(records, task)]  # fmt: skip


LEARNING = (
    "Every head sees the same batches in the same order. Of the task “random points” every class is a random point; of "
    "“wordnet”, the embedding of a gloss. An example is its point with half of the features missing, and noise. The "
    "trunk is one hidden layer of rectified units, plain or followed by BatchNorm. The learning rate falls "
    "exponentially to a tenth. Every run has one thread."
)
SECONDS = (
    "Every head learns each of six tasks for the same seconds, with the same data and optimizer. It first tries three "
    "learning rates, each for as long with one seed, judged by a validation part; the best then runs with every seed. "
    "Every run has one thread, and two run at a time. Judging costs none of the seconds, and goes by the exact best "
    "class. The tree of the hierarchical softmax and the samplers by frequency are given the true frequencies, their "
    "best case. The candidate head has its default settings on all tasks. Full softmax is left out where its step "
    "takes more than a second.\n\n"
    "Step by step, full softmax and the candidate head see the same batches with the same learning rate, which falls "
    "exponentially to a tenth."
)
STEPS = (
    "Forward, backward, update, and re-hashing at most 1000 classes, of the head alone; the mean of the steps after "
    "a warm-up, each head in a process of its own."
)
MOMENTUM = (
    "Lazy momentum gives a row the rest of its move whenever it is touched again; at once, the default, makes the "
    "whole move when the gradient comes."
)
REFRESH = "How much of the exact best ten is computed while rows move, for several ways to keep the index up to date."
BYTES = (
    "Rows of bfloat16 and the states of their optimizers, rounded by chance (what row optimizers do), to nearest (what "
    "torch does), and float32; sampled softmax on random points, normalized trunk."
)
TEN_MILLION = (
    "Rows of bfloat16 in the default head, updated in backward: what `memory_budget` says beforehand, and the most "
    "that the process held, with all states of the optimizer touched and its first answer given."
)
TAIL = (
    "The estimate of the normaliser is unbiased. Its logarithm is too low, by about half the relative variance, and so "
    "shrinks as 1 / samples; the gradient likewise."
)
SERVING = (
    "A query through the head beside one to its index, in turns; two threads that ask at once, each with one thread of "
    "its own; and one class that is added or removed, with the query that follows. The first class that is added moves "
    "all rows, and the next ones some tables of the index, to places with room to grow: these stand apart."
)

MANY_LABELS = (
    "Articles and the subject headings that librarians gave them. Bags of words weighted by TF-IDF, one hidden layer, "
    "logistic outputs; the learning rate falls to zero over the passes. Omikuji learns from the same bags with its "
    "own settings until it is done."
)


def paper_classes(records: Records) -> int:
    """Return the number of classes of the paper's setting as it was measured."""
    found = records.last(stage="paper_setting", kind="result")
    return int(found["classes"]) if found else 0


def paper_setting_text(records: Records) -> str:
    """Return the sizes of that setting."""
    found = records.last(stage="paper_setting", kind="result")
    if found is None:
        return "The paper's second experiment: 3000 of 1.2 million classes."
    return (
        f"{whole(found['candidates'])} of {whole(found['classes'])} classes, {whole(found['features'])} features, "
        f"batch {found['batch']}."
    )


def facts(records: Records) -> list[Fact]:
    """Return the few numbers that matter, as far as they are measured."""
    found = []
    for (task, trunk), heads in tables.learning_groups(records).items():
        if trunk == "normalized" and {"full", "candidate"} <= heads.keys():
            ours, full = (tables.mean_curve(heads[head])[-1][1] for head in ("candidate", "full"))
            label = f"accuracy of candidate softmax after as many steps (full softmax: {percent(full)}), {task}"
            found.append(Fact(percent(ours), label))
    classes = tables.middle_size(records) if records.done(stage="steps", kind="result") else 0
    step = records.last(stage="steps", kind="result", head="candidate", classes=classes)
    full_step = records.last(stage="steps", kind="result", head="full", classes=classes)
    if step and full_step:
        found.append(Fact(f"{number(step['step_ms'])} ms", f"a training step over {whole(classes)} classes"))
        found.append(Fact(times(full_step["step_ms"] / step["step_ms"]), "the speed of full softmax's step there"))
    return found
