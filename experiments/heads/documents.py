"""What docs/training.md says from the committed records: tables and sentences by the names of their markers."""

from statistics import mean

from experiments.frame.documents import as_markdown
from experiments.frame.records import Record, Records
from experiments.frame.run_section import machine_in_words
from experiments.frame.wording import number, percent, times, whole
from experiments.heads import tables, task_parts
from experiments.heads.bfloat16 import rounding_block
from experiments.heads.figures import LOOKS
from experiments.heads.literal_parts import literal_block
from experiments.heads.many_labels_table import many_labels_block
from experiments.heads.page import PER_STEP, TASKS, paper_classes
from experiments.heads.sizes import per_step_stage, seconds_stage
from experiments.heads.ten_million import ten_million_block
from experiments.heads.verdicts import at_the_end, runs_by_head, share_of_full, verdicts

RESULTS = "experiments/results/heads"
PAGE = f"[page]({RESULTS}/report.html)"
K = 10  # of serving.py, without loading torch
PRODUCTS_GOAL = 1.5  # times its three bare products, that a step without look-ups may take


def texts(records: Records) -> dict[str, str]:
    """Return name → Markdown; links are relative to the repository."""
    return {
        "heads_learning": learning_block(records),
        "heads_learning_limit": learning_limit(records),
        "heads_tail": tail_block(records),
        "heads_refresh": refresh_block(records),
        "heads_momentum": momentum_block(records),
        "heads_literal": literal_block(records, f"{RESULTS}/figures"),
        "heads_seconds": seconds_block(records),
        "heads_per_step": per_step_block(records),
        "heads_per_step_sentence": per_step_sentence(records),
        "heads_tasks_sentence": tasks_sentence(records),
        "heads_steps": steps_block(records),
        "heads_step_sentence": step_sentence(records),
        "heads_paper_setting": paper_setting_block(records),
        "heads_serving": serving_block(records),
        "many_labels": many_labels_block(records, PAGE),
        "heads_bfloat16": rounding_block(records),
        "heads_ten_million": ten_million_block(records),
    }


def figure(name: str, alt: str) -> str:
    """Return a figure of the committed page."""
    return f"![{alt}]({RESULTS}/figures/{name}.png)"


def block(*parts: str) -> str:
    """Return paragraphs."""
    return "\n\n".join(parts)


def last(records: Records, stage: str) -> Record:
    """Return the newest result of a stage."""
    found = records.last(stage=stage, kind="result")
    assert found is not None, f"the committed run has no result of stage {stage}"
    return found


def one_thread(records: Records, *stages: str) -> str:
    """Return the machine of stages whose runs have a thread each; where there are several, which is whose."""
    by_machine: dict[str, list[str]] = {}
    for stage in stages:
        by_machine.setdefault(machine_in_words(records, stage).rpartition(", ")[0], []).append(f"`{stage}`")
    if len(by_machine) == 1:
        return f"{next(iter(by_machine))}, one thread per run"
    return "; ".join(f"{', '.join(names)}: {machine}" for machine, names in by_machine.items()) + "; one thread per run"


def learning_block(records: Records) -> str:
    """Return curves and table of what is learned step by step."""
    some = last(records, "learning")
    return block(
        figure("learning", "Accuracy against steps"),
        f"{whole(some['classes'])} classes, hidden 128, batch {some['batch']}, {whole(some['steps'])} steps, momentum "
        f"0.9, rate 0.1 falling exponentially to a tenth of it; {whole(some['tests'])} test examples, judged by the "
        "exact best class; lines are means of the seeds, bands run from least to most; "
        f"{one_thread(records, 'learning')}, {PAGE}.",
        as_markdown(tables.learning_table(records)),
    )


def learning_limit(records: Records) -> str:
    """Return how much of the classes a step of these runs computes."""
    runs = records.select(stage="learning", kind="result", head="candidate")
    classes, distinct = runs[-1]["classes"], mean(run["readings"]["distinct_classes"] for run in runs)
    return f"{whole(distinct)} of {whole(classes)} classes per step"


def tail_block(records: Records) -> str:
    """Return figure and table of the bias of the tail."""
    some = last(records, "tail")
    return block(
        figure("tail", "Bias against samples of the tail"),
        f"{whole(some['classes'])} classes of which the shared candidates miss {some['missed_mass']:.0%} of the "
        f"probability, {whole(some['draws'])} draws, against all classes; "
        f"{machine_in_words(records, 'tail')}, {PAGE}.",
        as_markdown(tables.tail_table(records)),
    )


def refresh_block(records: Records) -> str:
    """Return figure and table of the ways to re-hash."""
    return block(
        figure("refresh", "Recall and accuracy against the refresh period"),
        f"The WordNet task as above, normalized trunk, one seed; {one_thread(records, 'refresh')}, {PAGE}.",
        as_markdown(tables.refresh_table(records)),
    )


def momentum_block(records: Records) -> str:
    """Return the table of lazy momentum and momentum at once."""
    return block(
        f"The WordNet task of above, seed 0, accuracy after so many steps ({PAGE}):",
        as_markdown(tables.momentum_table(records)),
    )


def seconds_block(records: Records) -> str:
    """Return what all tasks say together, and the curves of each that is measured."""
    measured = [task for task in TASKS if records.done(stage=seconds_stage(task), kind="result")]
    if not measured:
        return "Not measured yet: stages `seconds_…` of the experiment `heads`."
    curves = [figure(seconds_stage(task), f"Score against seconds, {task_parts.TITLES[task]}") for task in measured]
    return block(
        as_markdown(task_parts.verdict_table(verdicts(records, TASKS, PER_STEP))),
        as_markdown(task_parts.near_best_table(records, TASKS)),
        as_markdown(task_parts.ahead_table(records, TASKS)),
        f"{one_thread(records, *map(seconds_stage, measured))}; tables at every tenth of the time are on the {PAGE}.",
        *curves,
    )


def per_step_block(records: Records) -> str:
    """Return what is learned in as many steps as full softmax."""
    measured = [stage for stage in map(per_step_stage, PER_STEP) if records.done(stage=stage, kind="result")]
    if not measured:
        return "Not measured yet: stages `per_step_…` of the experiment `heads`."
    return block(
        as_markdown(task_parts.per_step_table(records, PER_STEP)), f"{one_thread(records, *measured)}, {PAGE}."
    )


def per_step_sentence(records: Records) -> str:
    """Return which shares of full softmax's score the default reaches after as many steps."""
    found = [share_of_full(runs_by_head(records, per_step_stage(task))) for task in PER_STEP]
    shares = [share for share in found if share is not None]
    if not shares:
        return "not measured yet"
    told = f"{_range(shares)} of its score on the {len(shares)} tasks where it can finish"
    longer = tables.learned_shares(records)
    if longer:
        run = last(records, "learning")
        passes = run["steps"] * run["batch"] / run["classes"]
        told += f", {_range(longer)} in {passes:.0f} passes over {whole(run['classes'])} classes"
    return told


def _range(shares: list[float]) -> str:
    return f"{min(shares):.0%} to {max(shares):.0%}"


def tasks_sentence(records: Records) -> str:
    """Return how the candidate head and the best other one end on every task, and where ours is behind."""
    ends, behind = [], []
    for task in TASKS:
        runs = runs_by_head(records, seconds_stage(task))
        found = at_the_end(runs)
        if found is None:
            continue
        ours, other, head = found
        name = task_parts.short(task)
        ends.append(f"{name} {percent(ours)} and {percent(other)} ({LOOKS[head][2]})")
        told = task_parts.behind(runs)
        behind += [f"{name} ({told})"] if told else []
    if not ends:
        return "not measured yet"
    where = ", ".join(behind) if behind else "on no task"
    return f"{'; '.join(ends)}. Tenths of the time at which another was ahead of us with every seed: {where}"


def steps_block(records: Records) -> str:
    """Return figure and tables of the time of a step."""
    some = last(records, "steps")
    return block(
        figure("steps", "Time of a training step against classes"),
        f"{some['features']} features, batch {some['batch']}; own candidates: {some['candidates']} for each example; "
        f"momentum kept per row unless it says otherwise; "
        f"{machine_in_words(records, 'steps')}, {PAGE}.",
        as_markdown(tables.steps_table(records)),
        as_markdown(tables.parts_table(records, "steps", tables.middle_size(records))),
        products_sentence(records),
    )


def products_sentence(records: Records) -> str:
    """Return how far the steps without look-ups are from their products alone, beside what we wanted."""
    classes = tables.middle_size(records)
    found = {record["head"]: record for record in records.select(stage="steps", kind="result", classes=classes)}

    def ratio(head: str) -> str:
        record = found.get(head)
        bare = record and record.get("bare_products_ms")
        return times(record["step_ms"] / bare) if record and bare else "– (not measured)"

    return (
        f"We wanted at most {PRODUCTS_GOAL:g}× the three matrix products that a step cannot do without. Of its own "
        f"products the default takes {ratio('candidate')}, and with 2,048 random classes "
        f"{ratio('candidate, 2048 drawn')}; sampled softmax takes {ratio('sampled')} with 512 samples and "
        f"{ratio('sampled 2048')} with 2,048. What a step does beside them takes about as long however few they are."
    )


def step_sentence(records: Records) -> str:
    """Return a step of ours beside one of full softmax."""
    classes = tables.middle_size(records)
    measured = {record["head"]: record for record in records.select(stage="steps", kind="result", classes=classes)}
    found, some = {head: record["step_ms"] for head, record in measured.items()}, measured["candidate"]
    return (
        f"Over {whole(classes)} classes of {some['features']} features, batch {some['batch']}, a training step of the "
        f"output layer takes {number(found['candidate'])} ms early on, when it computes "
        f"{whole(some['distinct_classes'])} of them; one of full softmax takes "
        f"{whole(found['full'] / found['candidate'])} times as long"
    )


def paper_setting_block(records: Records) -> str:
    """Return the time of a step in the paper's second setting."""
    some = last(records, "paper_setting")
    return block(
        f"{some['features']} features, batch {some['batch']}; own candidates: {some['candidates']} for each example; "
        f"{machine_in_words(records, 'paper_setting')}, {PAGE}.",
        as_markdown(tables.parts_table(records, "paper_setting", paper_classes(records))),
    )


def serving_block(records: Records) -> str:
    """Return what serving through a head costs."""
    some = records.last(stage="serving", kind="result")
    if some is None:
        return "Not measured yet: stage `serving` of the experiment `heads`."
    return block(
        f"{whole(some['classes'])} classes of {some['features']} features, {K} best of each query, batch "
        f"{some['batch']} in training; {machine_in_words(records, 'serving')}, {PAGE}.",
        as_markdown(tables.serving_table(records)),
    )
