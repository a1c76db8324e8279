"""The page of the experiment: every table and figure, from the records alone."""

from pathlib import Path

from experiments.frame.page import Fact, Figure, Page, Section, Table, Text
from experiments.frame.records import Record, Records
from experiments.frame.run_section import run_section
from experiments.frame.wording import number, percent, times, whole
from experiments.index.figures import draw_growth, draw_sweep
from experiments.index.outliers import CASES, STAGE
from experiments.index.sizes import Sizes, sizes_of
from experiments.index.tables import (
    BATCHES,
    SHARE,
    all_peers_table,
    cells_table,
    costs_table,
    growth_table,
    kinds_of,
    lines_of,
    outliers_table,
    sweep_table,
)
from experiments.peers.figure import draw_peers
from experiments.peers.reading import ACCURACY, WINNER, absent_peers, peers_of, quickest

MEASURES = ((ACCURACY, "accuracy"), (WINNER, "winner"))
LEAD = (
    "`ClassIndex` finds the best classes of a query without scoring all of them. Here it stands beside faiss, ScaNN, "
    "hnswlib and exact products on the same rows and queries, and then alone, as its classes grow and its knobs turn."
)
QUICK_LEAD = "**This is a quick run** on small made rows: it shows that everything works, not how well."


def make_page(records: Records, folder: Path) -> Page:
    """Return the page; figures are written into the folder. What was not run says so."""
    quick = is_quick(records)
    sizes = sizes_of(quick)
    sections = [
        peers_section(records, folder, "wordnet", wordnet_title(quick), wordnet_text(sizes, quick)),
        peers_section(records, folder, "million", f"{whole(sizes.million[0])} rows of unequal norm",
                      million_text(sizes)),
        cells_section(records),
        outliers_section(records),
        growth_section(records, folder),
        sweep_section(records, folder, "bands", sizes),
        sweep_section(records, folder, "candidates", sizes),
        run_section(records),
    ]  # fmt: skip
    lead = f"{LEAD}\n\n{QUICK_LEAD}" if quick else LEAD
    return Page("The index alone", lead, facts(records), sections)


def is_quick(records: Records) -> bool:
    """Return whether these are the records of a quick run."""
    card = records.last(kind="card")
    return bool(card and card["options"]["quick"])


def wordnet_title(quick: bool) -> str:
    """Return what the first comparison is made on."""
    return "Made rows in place of WordNet's glosses" if quick else "WordNet's glosses"


def wordnet_text(sizes: Sizes, quick: bool) -> str:
    """Return what rows and queries are."""
    classes, features = sizes.glosses
    if quick:
        return f"{whole(classes)} rows × {features}, planted neighbours: quick runs need no WordNet."
    return (
        f"{whole(classes)} glosses embedded in {features} features by a small sentence encoder. A query is a word with "
        "one of the example sentences that WordNet prints after the gloss, its label the gloss."
    )


def million_text(sizes: Sizes) -> str:
    """Return what rows and queries are."""
    return (
        f"{whole(sizes.million[0])} made rows × {sizes.million[1]}, of lognormal length (sigma .5), with biases. A "
        "query is a row with half of its features missing, and noise. The exact winner is mostly another, longer row, "
        "and a search that misses the long rows has more labels right than the exact product: what counts here is the "
        "share of the exact winners."
    )


def resolution(found: Record) -> str:
    """Return how finely accuracy kept can be read: with few right answers, one query moves it visibly."""
    right = round(found["exact_accuracy"] * found["queries"])
    if not right:
        return "The exact product is right on no query: read the share of queries with the exact winner."
    return (
        f"The exact product is right on {whole(right)} of {whole(found['queries'])} queries "
        f"({percent(found['exact_accuracy'])}), so that one query more or less moves the accuracy kept by "
        f"{1 / right:.2%}; the share of queries with the exact winner is read on all of them."
    )


def peers_section(records: Records, folder: Path, stage: str, title: str, text: str) -> Section:
    """Return figures and tables of a comparison, by both measures of quality."""
    peers = peers_of(records, stage)
    remarks: list[Table | Figure | Text] = [*absent_peers(records, stage)]
    if not peers:
        missing = records.last(stage=stage, kind="missing")
        why = f"Left out: {missing['reason']}; `{missing['install']}`." if missing else f"Not run yet: stage `{stage}`."
        return Section(title, f"{text}\n\n{why}", remarks, title)
    parts: list[Table | Figure | Text] = []
    for measure, name in MEASURES:
        parts.append(draw_peers(peers, folder, f"{stage}_{name}", BATCHES, measure))
        parts += [all_peers_table(records, stage, field, measure) for field in BATCHES]
    some = next(iter(peers.values()))[0]
    memory = "Bytes contain the peer's own copy of the rows; ScaNN's are an estimate, as it tells none."
    costs = costs_table(records, stage)
    return Section(title, f"{text} {resolution(some)} {memory}", [*parts, costs, *remarks], title)


def cells_section(records: Records) -> Section:
    """Return the scan with and without cells."""
    text = (
        "With `cells` the scan is parted: a query looks only into the cells that promise most. The more candidates, "
        "the more cells are scanned. The same rows as in the first section."
    )
    table = cells_table(records)
    return Section("Cells", text if table.rows else "Not run yet: stage `wordnet`.", [table] if table.rows else ())


def outliers_section(records: Records) -> Section:
    """Return what one hostile class costs the others, by library."""
    table = outliers_table(records)
    if not table.rows:
        return Section("Outliers", f"Not run yet: stage `{STAGE}`.")
    cases = "; ".join(f"*{name}*: {what}" for name, what in CASES.items() if name != "none")
    text = (
        "One class is made hostile, and all others are asked for: the share of queries whose exact winner is found, "
        f"among those whose winner is not the outlier itself. {cases.replace('*', '')}."
    )
    return Section("Outliers", text, [table])


def growth_section(records: Records, folder: Path) -> Section:
    """Return time against classes."""
    lines = lines_of(records, "growth", "classes")
    if not lines:
        return Section("Growth with the classes", "Not run yet: stage `growth`.", short="Growth")
    text = "A flat scan reads a sketch of every class, so its time grows with them; probed tables read part of them."
    return Section("Growth with the classes", text, [draw_growth(lines, folder), growth_table(records)], "Growth")


def sweep_section(records: Records, folder: Path, knob: str, sizes: Sizes) -> Section:
    """Return accuracy and time against one knob."""
    title, lines = f"Against the number of {knob}", lines_of(records, knob, knob)
    if not lines:
        return Section(title, f"Not run yet: stage `{knob}`.", short=knob.capitalize())
    text = (
        f"{whole(sizes.layer[0])} classes × {whole(sizes.layer[1])} features, made to resemble a trained layer after "
        "ReLU: sparse and aligned with the coordinates, which suits winner codes."
    )
    return Section(title, text, [draw_sweep(lines, folder, knob), sweep_table(records, knob)], knob.capitalize())


def facts(records: Records) -> list[Fact]:
    """Return the few numbers that matter, as far as they are measured."""
    found = []
    kinds = kinds_of(peers_of(records, "wordnet"))
    ours = [record for kind, settings in kinds.items() if kind.startswith("manyclass") for record in settings]
    best = quickest(ours, "us_batch1", SHARE)
    exact = quickest(kinds["fastest exact product"], "us_batch1", SHARE)
    if best and exact:
        label = f"a query, one at a time, at {SHARE:.0%} of the exact accuracy or more"
        found.append(Fact(f"{number(best['us_batch1'])} µs", label))
        found.append(
            Fact(times(exact["us_batch1"] / best["us_batch1"]), "the speed of the fastest exact product there")
        )
    tables = lines_of(records, "growth", "classes").get("probed tables")
    if tables:
        last = tables[-1]
        label = f"a query in a batch over {whole(last['classes'])} classes, {percent(last['recall'])} found"
        found.append(Fact(f"{number(last['us_batch'])} µs", label))
    return found
