"""Figures and tables of the runs on the tasks, from the records."""

from pathlib import Path
from statistics import mean

from experiments.frame.drawing import canvas, draw_lines, in_percent, in_plain_numbers, save
from experiments.frame.page import Figure, Table
from experiments.frame.records import Record, Records
from experiments.frame.wording import ABSENT, number, percent, times, whole
from experiments.heads.figures import LOOKS, line_of
from experiments.heads.sizes import per_step_stage, seconds_stage
from experiments.heads.tables import NAMES, least_to_most
from experiments.heads.verdicts import (
    LEAST_PER_STEP,
    MOST_TIME,
    OURS,
    Runs,
    Verdict,
    ahead_or_equal,
    at_the_end,
    behind_at,
    mean_against_time,
    runs_by_head,
    share_of_full,
    tenths,
    time_to_near_best,
)

TITLES = {
    "demo": "Demo: random points",
    "families": "Families: points that lie together",
    "wordnet": "WordNet: points that are glosses",
    "han": "Han: features of characters",
    "places": "Places: where a user goes next",
    "articles": "Articles: whose words these are",
}
TEXTS = {
    "demo": "The task of `make demo`: a class is a random point, an example shows half of its features, with noise; "
    "classes are as unequal as words.",
    "families": "The same, but the points lie in families of fifty, so that a class has rivals that it keeps.",
    "wordnet": "The points are embeddings of all glosses of WordNet, met equally often.",
    "han": "The kept 4096 features of the network that the experiment imagenet21k trains, with the output layer "
    "directly on them; tested on fonts that were not trained on.",
    "places": "Gowalla: from a random part of the places that a user has visited, tell the others. The score is "
    "Recall@20 over places that the user is not known to have visited; the tenths are judged by some users, the end "
    "by all of them. LightGCN's authors report 0.183, and NDCG@20 of 0.155, after training to the end.",
    "articles": "Which article of Wikipedia a window of words comes from. Tested on other editions of the articles, "
    "the English one of 2020 and the Simple English one.",
}
SCORES = {"accuracy": "accuracy on new examples", "recall@20": "Recall@20"}
YES_OR_NO = {True: "yes", False: "no", None: "not measured yet"}


def draw_seconds(records: Records, task: str, folder: Path) -> Figure:
    """Draw score against seconds of all heads on a task, mean of the seeds, band from least to most."""
    stage = seconds_stage(task)
    runs = runs_by_head(records, stage)
    figure, (axis,) = canvas(1, width=9.5, height=5)
    lines = []
    for head in in_order(runs):
        seconds, means = zip((0.0, 0.0), *mean_against_time(runs[head]), strict=True)
        lines.append(line_of(head, seconds, means))
        scores = tenths(runs[head])
        low, high = [0.0, *map(min, scores)], [0.0, *map(max, scores)]
        axis.fill_between(seconds, low, high, color=LOOKS[head][0], alpha=0.13, linewidth=0)
    some = runs[next(iter(runs))][0]
    draw_lines(axis, lines, gap=0.055, xlim=(0, some["budget"]), ylim=(0, None), xlabel="seconds of training",
               ylabel=SCORES[some["metric"]], title=f"{TITLES[task]}, {whole(some['classes'])} classes")  # fmt: skip
    in_percent(axis.yaxis)
    in_plain_numbers(axis.xaxis)
    return Figure(
        stage, save(figure, folder, stage), "Lines are means of the seeds, bands run from least to most.",
        f"Score against seconds, {TITLES[task]}",
    )  # fmt: skip


def tenths_table(records: Records, task: str) -> Table:
    """Return the mean score at every tenth of the time."""
    runs = runs_by_head(records, seconds_stage(task))
    seconds = [place for place, _ in mean_against_time(next(iter(runs.values())))]
    rows = [
        [LOOKS[head][2], *(percent(score) for _, score in mean_against_time(runs[head]))] for head in in_order(runs)
    ]
    columns = ["seconds", *(f"{place:.3g}" for place in seconds)]
    return Table(columns, rows, "Mean of the seeds after so many seconds.", emphasised=_ours(runs))


def end_table(records: Records, task: str) -> Table:
    """Return how every head ended: its rate, its steps, its score, and what else the end was judged by."""
    runs = runs_by_head(records, seconds_stage(task))
    judged: dict[str, Record] = next(
        (run["at_the_end"] for found in runs.values() for run in found if run.get("at_the_end")), {}
    )
    others = [(tests, metric) for tests, metrics in judged.items() for metric in metrics]
    rows = []
    for head in in_order(runs):
        found = runs[head]
        steps, seconds, score = (mean(run[name] for run in found) for name in ("steps", "seconds", "score"))
        more = [percent(mean(run["at_the_end"][tests][metric] for run in found)) if
                all(run.get("at_the_end") for run in found) else ABSENT for tests, metric in others]  # fmt: skip
        rows.append([NAMES[head], f"{found[0]['rate']:.2g}", whole(steps), number(1000 * seconds / steps),
                     percent(score), least_to_most([run["score"] for run in found]), *more])  # fmt: skip
    columns = ["head", "rate", "steps", "ms per step", "at the end", "of the seeds",
               *(f"{metric}, {tests}" for tests, metric in others)]  # fmt: skip
    return Table(columns, rows, "At the end of the time, means of the seeds.", emphasised=_ours(runs))


def in_order(runs: Runs) -> list[str]:
    """Return the heads in the order of all tables and figures."""
    return sorted(runs, key=list(LOOKS).index)


def _ours(runs: Runs) -> set[int]:
    return {place for place, head in enumerate(in_order(runs)) if head == OURS}


def near_best_table(records: Records, tasks: list[str]) -> Table:
    """Return for each task the seconds to 95% of the best final score, ours and those of the best other head."""
    rows = []
    for task in tasks:
        soon = time_to_near_best(runs_by_head(records, seconds_stage(task)))
        if soon is None:
            rows.append([short(task), *[ABSENT] * 4, _why_not(records, task)])
            continue
        bound = "< " if soon.other is None else ""
        other = f" ({LOOKS[soon.other_head][2]})" if soon.other_head else ""
        rows.append([
            short(task), percent(soon.level), _seconds(soon.ours), f"{_seconds(soon.other)}{other}",
            ABSENT if soon.ratio is None else f"{bound}{soon.ratio:.2f}×", YES_OR_NO[soon.in_time],
        ])  # fmt: skip
    columns = ["task", "95% of the best", "candidate, seconds to it", "best other, seconds to it", "ratio",
               f"at most {MOST_TIME}×"]  # fmt: skip
    return Table(columns, rows, "Seconds to 95% of the best final score, on the means of the seeds.", "lrrrrl")


def ahead_table(records: Records, tasks: list[str]) -> Table:
    """Return for each task how ours and the best other head end, and where ours is behind."""
    rows = []
    for task in tasks:
        runs = runs_by_head(records, seconds_stage(task))
        ends = at_the_end(runs)
        if ends is None:
            rows.append([short(task), *[ABSENT] * 3, _why_not(records, task)])
            continue
        ours, other, head = ends
        rows.append([short(task), percent(ours), f"{percent(other)} ({LOOKS[head][2]})", behind(runs) or ABSENT,
                     YES_OR_NO[ahead_or_equal(runs)]])  # fmt: skip
    columns = ["task", "candidate, at the end", "best other, at the end", "candidate is behind, at tenths of the time",
               "ahead or equal"]  # fmt: skip
    return Table(columns, rows, "Means of the seeds; behind: with every seed.", "lrrll")


def short(task: str) -> str:
    """Return a task's name in tables of all tasks."""
    return TITLES[task].partition(":")[0]


def _why_not(records: Records, task: str) -> str:
    missing = records.last(stage=seconds_stage(task), kind="missing")
    return f"left out: {missing['reason']}" if missing else YES_OR_NO[None]


def _seconds(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.1f}"


def behind(runs: Runs) -> str:
    """Return to whom ours is behind with every seed, and at which tenths; nothing where to nobody."""
    found = {head: behind_at(runs[OURS], other) for head, other in runs.items() if head != OURS}
    told = [f"{LOOKS[head][2]} at {spans(places)}" for head, places in found.items() if places]
    return "; ".join(told)


def spans(places: list[int]) -> str:
    """Return ascending numbers with neighbours joined: 1–3, 7."""
    groups: list[list[int]] = []
    for place in places:
        if groups and groups[-1][-1] == place - 1:
            groups[-1].append(place)
        else:
            groups.append([place])
    return ", ".join(f"{group[0]}–{group[-1]}" if len(group) > 1 else f"{group[0]}" for group in groups)


def per_step_table(records: Records, tasks: list[str]) -> Table:
    """Return the score after as many steps, beside full softmax's."""
    rows = []
    for task in tasks:
        runs = runs_by_head(records, per_step_stage(task))
        share = share_of_full(runs)
        if share is None:
            rows.append([short(task), *[ABSENT] * 5, YES_OR_NO[None]])
            continue
        some: Record = runs[OURS][0]
        ends = {head: [run["score"] for run in runs[head]] for head in (OURS, "full")}
        cells = [f"{percent(mean(ends[head]))} ({least_to_most(ends[head])})" for head in (OURS, "full")]
        faster = mean(run["seconds"] for run in runs["full"]) / mean(run["seconds"] for run in runs[OURS])
        rows.append([short(task), whole(some["budget_steps"]), *cells, percent(share), times(faster),
                     YES_OR_NO[share >= LEAST_PER_STEP]])  # fmt: skip
    columns = ["task", "steps", "candidate (seeds)", "full softmax (seeds)", "of full softmax's", "its speed",
               "at least 99%"]  # fmt: skip
    return Table(columns, rows, "After as many steps; speed of a step with one thread, trunk included.", "lrrrrrl")


def verdict_table(found: list[Verdict]) -> Table:
    """Return the claims and whether they hold."""
    rows = [[verdict.claim, YES_OR_NO[verdict.holds], verdict.detail] for verdict in found]
    return Table(["candidate softmax with its default settings is …", "holds", "by task"], rows, "", "lll")
