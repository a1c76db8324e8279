"""The page of the experiment: every table and figure, from the records alone."""

from pathlib import Path

from experiments.frame.page import Fact, Figure, Page, Section, Table, Text
from experiments.frame.records import Record, Records
from experiments.frame.run_section import run_section
from experiments.frame.wording import number, percent, times, whole
from experiments.index import defaults, growth, outliers, paper_table
from experiments.index.contest_tables import (
    UPDATE_GOAL,
    UPDATE_LAYERS,
    standings_table,
    summary_table,
    update_ratio,
    updates_table,
    won,
)
from experiments.index.figures import draw_growth, draw_sweep
from experiments.index.layers import LAYERS, layer_in_words
from experiments.index.sizes import Sizes, sizes_of
from experiments.index.tables import (
    defaults_table,
    growth_lines,
    growth_table,
    lines_of,
    missed_defaults,
    outliers_table,
    speedup_quality,
    speedup_table,
    sweep_table,
)
from experiments.peers.entries import TARGETS
from experiments.peers.figure import draw_peers
from experiments.peers.judging import WINNER
from experiments.peers.verdicts import MODES, judged_of, remarks

Parts = list[Table | Figure | Text]
LEAD = (
    "`ClassIndex` finds the best classes of a query without scoring all of them. Here it stands beside other libraries "
    "on four layers: everybody chooses builds and settings on one half of the queries and is judged on the other, by "
    "how often the winner is the exact one. Then it stands alone, with what it chooses by itself, as its classes grow "
    "and its knobs turn."
)
QUICK_LEAD = "**This is a quick run** on small made rows: it shows that everything works, not how well."


def make_page(records: Records, folder: Path) -> Page:
    """Return the page; figures are written into the folder. What was not run says so."""
    quick = is_quick(records)
    sizes = sizes_of(quick)
    sections = [
        *(contest_section(records, folder, name, quick) for name in LAYERS),
        defaults_section(records),
        paper_section(records),
        updates_section(records),
        growth_section(records, folder),
        outliers_section(records),
        sweep_section(records, folder, "bands", sizes),
        sweep_section(records, folder, "candidates", sizes),
        run_section(records),
    ]
    lead = f"{LEAD}\n\n{QUICK_LEAD}" if quick else LEAD
    return Page("The index alone", lead, facts(records), sections)


def is_quick(records: Records) -> bool:
    """Return whether these are the records of a quick run."""
    card = records.last(kind="card")
    return bool(card and card["options"]["quick"])


def not_run(records: Records, stage: str) -> str:
    """Return why a stage has no results."""
    missing = records.last(stage=stage, kind="missing")
    return f"Left out: {missing['reason']}; {missing['install']}." if missing else f"Not run yet: stage `{stage}`."


def contest_section(records: Records, folder: Path, name: str, quick: bool) -> Section:
    """Return figure and tables of the contest over a layer."""
    title, text = LAYERS[name].title, layer_in_words(name, quick)
    judged = judged_of(records, name)
    if not judged:
        return Section(title, f"{text}\n\n{not_run(records, name)}", short=name)
    fields = {f"us_{mode}": words for mode, words in MODES.items()}
    parts: Parts = [summary_table(records, name), draw_peers(judged, folder, name, fields, WINNER)]
    parts += [standings_table(records, name, target, mode) for target in TARGETS for mode in MODES]
    some = max((one for found in judged.values() for one in found), key=lambda one: int(one["queries"]))
    return Section(title, f"{text} {resolution(some)} {MEMORY}", [*parts, *remarks(records, name)], name)


MEMORY = "Bytes contain the library's own copy of the rows; ScaNN's and LoRANN's are estimates, as they tell none."


def resolution(found: Record) -> str:
    """Return how finely accuracy kept can be read: with few right answers, one query moves it visibly."""
    right = round(found["exact_accuracy"] * found["queries"])
    if not right:
        return "The exact product is right on no query: read the share of queries with the exact winner."
    return (
        f"Judged on {whole(found['queries'])} queries. The exact product is right on {whole(right)} of them "
        f"({percent(found['exact_accuracy'])}), so that one query more or less moves the accuracy kept by "
        f"{1 / right:.2%}."
    )


def defaults_section(records: Records) -> Section:
    """Return what `build` gives by itself, what it says of itself, and what a bad sample costs."""
    title, table = "Nothing but rows and queries", defaults_table(records)
    if not table.rows:
        return Section(title, not_run(records, defaults.STAGE), short="Defaults")
    text = (
        "What a user gets who passes rows and a few thousand queries, at the candidates that `build` chose. In a "
        "misleading sample every other query is noise of the same length. "
    )
    missed = missed_defaults(records)
    reports = {
        f"{one['layer']}, {defaults.SAMPLES[one['sample']]}: {one['report']}": None
        for one in records.select(stage=defaults.STAGE, kind="result")
        if one["report"]
    }
    told = [Text(report, quiet=True) for report in reports]
    return Section(title, text + " ".join(missed), [table, *told], "Defaults")


def paper_section(records: Records) -> Section:
    """Return the paper's table with its ceilings."""
    title = "The paper's table"
    if not records.done(stage=paper_table.STAGE, kind="result"):
        return Section(title, not_run(records, paper_table.STAGE), short=title)
    text = (
        "Speed-up of the last layer over the fastest exact product, by the queries asked at once and the candidates. "
        "Every query is a new one. The ceiling of a cell is the speed-up of reading the rows of its candidates once "
        "and multiplying them, and of nothing else."
    )
    return Section(title, text, [speedup_table(records), speedup_quality(records)], title)


def updates_section(records: Records) -> Section:
    """Return the time to re-index a row, beside hnswlib's."""
    measured = [name for name in LAYERS if records.done(stage=name, kind="update")]
    if not measured:
        return Section("Changing one row", "Not run yet: the stages of the layers measure it.", short="Updates")
    ratios = {name: update_ratio(records, name) for name in measured}
    told = ", ".join(f"{times(found)} on {name}" for name, found in ratios.items() if found)
    text = "Rows that move in training have to be indexed again."
    if told:
        text += f" Ours is cheaper than hnswlib's by {told} (goal: {UPDATE_GOAL}× on {' and '.join(UPDATE_LAYERS)})."
    return Section("Changing one row", text, [updates_table(records, measured)], "Updates")


def outliers_section(records: Records) -> Section:
    """Return what one hostile class costs the others, by library."""
    table = outliers_table(records)
    if not table.rows:
        return Section("Outliers", not_run(records, outliers.STAGE))
    cases = "; ".join(f"{name}: {what}" for name, what in outliers.CASES.items() if name != "none")
    text = (
        "One class is made hostile, and all others are asked for: the share of queries whose exact winner is found, "
        f"among those whose winner is not the outlier itself. {cases}."
    )
    return Section("Outliers", text, [table])


def growth_section(records: Records, folder: Path) -> Section:
    """Return time against classes, in batches and one at a time, for both kinds of rows."""
    title, parts = "Growth with the classes", Parts()
    for rows_of in growth.ROWS:
        lines = growth_lines(records, rows_of)
        if lines:
            parts += [draw_growth(lines, folder, rows_of), growth_table(records, rows_of)]
    if not parts:
        return Section(title, not_run(records, growth.STAGE), short="Growth")
    text = "A flat scan reads a sketch of every class, so its time grows with them; tables and cells read part of them."
    return Section(title, text, parts, "Growth")


def sweep_section(records: Records, folder: Path, knob: str, sizes: Sizes) -> Section:
    """Return accuracy and time against one knob."""
    title, lines = f"Against the number of {knob}", lines_of(records, knob, knob)
    if not lines:
        return Section(title, not_run(records, knob), short=knob.capitalize())
    text = (
        f"{whole(sizes.layer[0])} classes × {whole(sizes.layer[1])} features, made to resemble a trained layer after "
        "ReLU: sparse and aligned with the coordinates, which suits winner codes."
    )
    return Section(title, text, [draw_sweep(lines, folder, knob), sweep_table(records, knob)], knob.capitalize())


def facts(records: Records) -> list[Fact]:
    """Return the few numbers that matter, as far as they are measured."""
    found = []
    places = [won(records, name, target, mode) for name in LAYERS for target in TARGETS for mode in MODES]
    known = [place for place in places if place is not None]
    if known:
        label = "comparisons (layer, agreement, way of asking) in which no other library is quicker"
        found.append(Fact(f"{sum(known)} of {len(known)}", label))
    real = [one[WINNER] for one in records.select(stage=defaults.STAGE, kind="result", sample="real")]
    if real:
        found.append(
            Fact(percent(min(real)), "least agreement of an index that chose for itself from rows and queries")
        )
    speedup = records.last(stage=paper_table.STAGE, kind="result", batch=1, candidates=paper_table.CANDIDATES[0])
    if speedup:
        found.append(Fact(times(speedup["speedup"]), "the speed of the fastest exact product, a query at a time"))
    tables = growth_lines(records, next(iter(growth.ROWS))).get("probed tables")
    if tables:
        last = tables[-1]
        label = f"a query in a batch over {whole(last['classes'])} classes"
        found.append(Fact(f"{number(last['us_batch'])} µs", label))
    return found
