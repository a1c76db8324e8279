"""What README and docs say from the committed records: tables and sentences by the names of their markers."""

from collections.abc import Callable

from experiments.frame.documents import as_markdown
from experiments.frame.page import Table
from experiments.frame.records import Record, Records
from experiments.frame.run_section import machine_in_words
from experiments.frame.wording import ABSENT, number, percent, times, whole
from experiments.index import growth, paper_table
from experiments.index.contest_tables import UPDATE_GOAL, UPDATE_LAYERS, ratio, short_table, update_ratio
from experiments.index.layers import LAYERS
from experiments.index.sizes import FULL
from experiments.index.tables import (
    defaults_table,
    exponent,
    growth_lines,
    growth_table,
    lines_of,
    missed_defaults,
)
from experiments.peers.entries import OURS, TARGETS
from experiments.peers.judging import ACCURACY, WINNER
from experiments.peers.verdicts import MODES, best_peer, standings

RESULTS = "experiments/results/index"
PAGE = f"[page]({RESULTS}/report.html)"
NOT_YET = "Not measured yet."


def texts(records: Records) -> dict[str, str]:
    """Return name → Markdown; links are relative to the repository. What was not run says so."""
    made: dict[str, Callable[[Records], str]] = {
        "index_summary": summary,
        "index_missed": missed,
        "index_defaults": defaults_block,
        "index_speedups": speedups,
        "index_updates": updates,
        "index_recall_of_ten": recall_of_ten,
        "index_growth_sentence": growth_sentence,
        "index_crossover": crossover_block,
        "index_bands": bands_block,
        "index_growth": growth_block,
    }
    told = {name: make(records) or NOT_YET for name, make in made.items()}
    return told | {f"index_{layer}_table": _table(short_table(records, layer)) for layer in LAYERS}


def _table(table: Table) -> str:
    return as_markdown(table) if table.rows else NOT_YET


def summary(records: Records) -> str:
    """Return our time and the best other library's on every layer, by agreement."""
    rows = []
    for name, layer in LAYERS.items():
        for mode, words in MODES.items():
            cells = [_beside(records, name, target, mode) for target in TARGETS]
            if any(cell != ABSENT for cell in cells):
                shape = " × ".join(map(whole, layer.shape))
                rows.append([f"{layer.title}, {shape}" if mode == "single" else "", words, *cells])
    columns = ["µs per query: manyclass, best other", "", *(f"agreement ≥ {target:g}" for target in TARGETS)]
    return as_markdown(Table(columns, rows, "", "ll" + "r" * len(TARGETS))) if rows else ""


def _beside(records: Records, stage: str, target: float, mode: str) -> str:
    found = standings(records, stage, target, mode)
    peer, ours = best_peer(found), found.get(OURS)
    if peer is None and ours is None:
        return ABSENT
    told = number(ours[f"us_{mode}"]) if ours else ABSENT
    return f"{told}, {number(found[peer][f'us_{mode}'])} ({peer})" if peer else f"{told}, none gets there"


def missed(records: Records) -> str:
    """Return where another library is quicker, where the default agrees too seldom, and where a speed-up is short."""
    slower = [
        f"“{LAYERS[name].title}” at ≥ {target:g} {words} ({times(1 / found)})"
        for name in LAYERS for target in TARGETS for mode, words in MODES.items()
        if (found := ratio(records, name, target, mode)) is not None and found < 1
    ]  # fmt: skip
    short = [
        f"batch {batch}, K = {count}: {times(one['speedup'])} of {goal:g}×"
        for batch, goals in paper_table.GOALS.items()
        for count, goal in zip(paper_table.CANDIDATES, goals, strict=True)
        if (one := records.last(stage=paper_table.STAGE, kind="result", batch=batch, candidates=count)) is not None
        and (one["speedup"] < goal or (one[ACCURACY] or 0) < paper_table.KEPT)
    ]
    told = [f"Another library is quicker on {', '.join(slower)}."] if slower else []
    told += missed_defaults(records)
    told += [
        f"Re-indexing a row of “{LAYERS[name].title}” is {times(found)} as cheap as hnswlib's (we wanted "
        f"{UPDATE_GOAL}×)."
        for name in UPDATE_LAYERS
        if (found := update_ratio(records, name)) is not None and found < UPDATE_GOAL
    ]
    told += [f"In the paper's table we wanted more at {'; '.join(short)}."] if short else []
    if told or not any(records.done(stage=name, kind="judged") for name in LAYERS):
        return " ".join(told)
    return "Nothing: every goal is reached."


def defaults_block(records: Records) -> str:
    """Return what `build` gives by itself on every layer."""
    table = defaults_table(records)
    if not table.rows:
        return ""
    kept = [place for place, name in enumerate(table.columns) if name not in ("what it chose", "build, s")]
    shorter = Table([table.columns[place] for place in kept], [[row[place] for place in kept] for row in table.rows],
                    "", "".join(table.alignment[place] for place in kept))  # fmt: skip
    return as_markdown(shorter)


def speedups(records: Records) -> str:
    """Return the paper's table, each speed-up with its ceiling."""
    rows = []
    for batch in paper_table.GOALS:
        found = [records.last(stage=paper_table.STAGE, kind="result", batch=batch, candidates=count)
                 for count in paper_table.CANDIDATES]  # fmt: skip
        if any(found):
            rows.append([whole(batch), *(f"{times(one['speedup'])} of {times(one['ceiling'])}" if one else ABSENT
                                         for one in found)])  # fmt: skip
    return as_markdown(Table(["batch", *(f"K = {count}" for count in paper_table.CANDIDATES)], rows)) if rows else ""


def updates(records: Records) -> str:
    """Return how much cheaper a changed row is than hnswlib's."""
    ratios = {name: update_ratio(records, name) for name in LAYERS}
    told = [f"{times(found)} on {LAYERS[name].title.lower()}" for name, found in ratios.items() if found]
    return f"Re-indexing one row is cheaper than hnswlib's by {_listed(told)}." if told else ""


def recall_of_ten(records: Records) -> str:
    """Return how many of the exact ten are found on the trained layer where the winner nearly always is."""
    found = standings(records, "han", max(TARGETS), "single")
    told = [
        f"{entry} {percent(found[entry]['recall_at_10'])}{_candidates(found[entry])}"
        for entry in (OURS, "faiss HNSW", "hnswlib") if entry in found
    ]  # fmt: skip
    return f"with the winner found in {max(TARGETS):.0%} of the cases, of the exact ten {_listed(told)}" if told else ""


def _candidates(found: Record) -> str:
    count = found["setting"].get("candidates")
    return f" (with {count} candidates)" if count else ""


def growth_sentence(records: Records) -> str:
    """Return time per query at each size, in batches and one at a time, for both kinds of rows."""
    told = []
    for rows_of in growth.ROWS:
        line = growth_lines(records, rows_of).get(growth.CHOSEN)
        if line:
            sizes, batch, single = (
                _listed([say(found) for found in line])
                for say in (_size, lambda found: number(found["us_batch"]), lambda found: number(found["us_single"]))
            )
            least = percent(min(found[WINNER] for found in line))
            told.append(f"With {sizes} classes ({rows_of}, at least {least} of the winners found) a query takes "
                        f"{batch} µs in batches and {single} µs one at a time.")  # fmt: skip
    return " ".join(told)


def crossover_block(records: Records) -> str:
    """Return the pipelines by the number of classes."""
    tables = [growth_table(records, rows_of) for rows_of in growth.ROWS]
    blocks = [f"{table.caption}\n\n{as_markdown(Table(table.columns, table.rows, '', table.align))}"
              for table in tables if table.rows]  # fmt: skip
    machine = f"Made rows of {growth.FEATURES} features, the fewest candidates that find {growth.SHARE:.0%} of the " \
              f"exact winners ({machine_in_words(records)})."  # fmt: skip
    return "\n\n".join([machine, *blocks]) if blocks else ""


def bands_block(records: Records) -> str:
    """Return what bands and candidates do, as two figures and a paragraph."""
    bands = {found["bands"]: found for found in lines_of(records, "bands", "bands").get("paper, K=30", [])}
    lines = lines_of(records, "candidates", "candidates")
    if not {125, 1000} <= bands.keys() or not lines:
        return ""
    at_30 = {name: next(found for found in line if found["candidates"] == 30) for name, line in lines.items()}
    classes, features = FULL.layer
    return "\n\n".join([
        f"![Accuracy and time against bands]({RESULTS}/figures/bands.png)",
        f"![Accuracy and time against candidates]({RESULTS}/figures/candidates.png)",
        f"The rows are made to resemble a trained layer of {whole(classes)} classes × {whole(features)} features after "
        "ReLU (`experiments/datasets/imagenet_like.py` says how): sparse, aligned with the coordinates, which suits "
        f"winner codes. There the paper's 1000 bands keep {percent(bands[1000][ACCURACY])} of the accuracy with 30 "
        f"candidates, and 125 bands keep {percent(bands[125][ACCURACY])}. Re-scoring by norm and bias keeps "
        f"{percent(at_30['paper + re-score'][ACCURACY])} there, votes alone {percent(at_30['paper'][ACCURACY])}.",
    ])  # fmt: skip


def growth_block(records: Records) -> str:
    """Return the figures of growth and the exponents."""
    blocks = []
    for rows_of in growth.ROWS:
        lines = growth_lines(records, rows_of)
        if lines and all(len(line) > 1 for line in lines.values()):
            some = next(iter(lines.values()))
            told = "; ".join(f"{name}: {exponent(line, 'us_batch'):.2f} in batches, {exponent(line, 'us_single'):.2f} "
                             "one at a time" for name, line in lines.items())  # fmt: skip
            blocks += [
                f"![Time per query as classes grow]({RESULTS}/figures/growth_{rows_of.replace(' ', '_')}.png)",
                f"From {_size(some[0])} to {_size(some[-1])} classes of {rows_of} time grows with the exponents: "
                f"{told}.",
            ]
    return "\n\n".join(blocks)


def _size(found: Record) -> str:
    return whole(found["classes"])


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
