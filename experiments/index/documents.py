"""What README and docs say from the committed records: tables and sentences by the names of their markers."""

from experiments.datasets import wordnet
from experiments.frame.documents import as_markdown
from experiments.frame.records import Record, Records
from experiments.frame.run_section import machine_in_words
from experiments.frame.wording import number, percent, whole
from experiments.index.sizes import FULL
from experiments.index.tables import (
    BATCHES,
    KINDS,
    SHARE,
    cells_table,
    exponent,
    growth_table,
    kinds_of,
    lines_of,
    short_table,
)
from experiments.peers.reading import ACCURACY, WINNER, peers_of, quality, quickest

RESULTS = "experiments/results/index"
PAGE = f"[page]({RESULTS}/report.html)"


def texts(records: Records) -> dict[str, str]:
    """Return name → Markdown; links are relative to the repository."""
    return {
        "index_growth_sentence": growth_sentence(records),
        "index_wordnet_table": as_markdown(short_table(records, "wordnet", ACCURACY)),
        "index_wordnet_note": wordnet_note(records),
        "index_million_table": as_markdown(short_table(records, "million", WINNER)),
        "index_million_note": million_note(records),
        "index_cells": cells_block(records),
        "index_crossover": crossover_block(records),
        "index_bands": bands_block(records),
        "index_growth": growth_block(records),
    }


def growth_sentence(records: Records) -> str:
    """Return time per query at each size, of probed tables."""
    line = lines_of(records, "growth", "classes")["probed tables"]
    sizes, times = (_listed([number_of(found) for found in line]) for number_of in (_size, _batch_time))
    least = min(found["recall"] for found in line)
    return (
        f"With {sizes} classes (planted neighbours, at least {percent(least)} of them found) a query takes {times} µs "
        "in batches."
    )


def wordnet_note(records: Records) -> str:
    """Return how finely the accuracy can be read, and where the scan with cells stays above 99%."""
    cells = peers_of(records, "wordnet")["manyclass cells"]
    right = round(cells[0]["exact_accuracy"] * cells[0]["queries"])
    settled, before = settled_setting(cells)
    return (
        f"Label accuracy rests on the {right} queries that the exact product gets right, so that one of them is "
        f"{1 / right:.2%}: with {before['setting']['candidates']} candidates the scan with cells keeps "
        f"{percent(before[ACCURACY])}; from {settled['setting']['candidates']} on, where it never falls below "
        f"{SHARE:.0%} again, it takes {number(settled['us_batch1'])} and {number(settled['us_batch1000'])} µs. By the "
        f"share of exact winners the order is another: all settings are on the {PAGE}."
    )


def settled_setting(settings: list[Record]) -> tuple[Record, Record]:
    """Return the first setting from which on all larger ones keep 99%, and the one before, which does not."""
    ordered = sorted(settings, key=lambda found: int(found["setting"]["candidates"]))
    place = max(place for place, found in enumerate(ordered) if quality(found) < SHARE)
    return ordered[place + 1], ordered[place]


def million_note(records: Records) -> str:
    """Return how far the others get, and what label accuracy says on these rows."""
    peers = peers_of(records, "million")
    kinds = {kind: found for kind, found in kinds_of(peers).items() if found}
    most = {kind: max(quality(found, WINNER) for found in settings) for kind, settings in kinds.items()}
    short = sorted((kind for kind in KINDS if most.get(kind, 1) < SHARE), key=lambda kind: -most[kind])
    stops = ", ".join(f"{kind} at {percent(most[kind])}" for kind in short)
    everything = [found for settings in peers.values() for found in settings]
    by_label = quickest(everything, "us_batch1", SHARE)
    exact = everything[0]["exact_accuracy"]
    assert by_label is not None
    return (
        f"At any setting, these find fewer of the exact winners of a million such rows: {stops}. The default is probed "
        "tables there, which `for_problem` picks without "
        "seeing the rows; `tune` looks at them and tries the cells. Label accuracy says little on this set: the exact "
        f"product itself is right in {percent(exact)} of the queries, and a method that misses the long rows scores "
        f"more; by that rule {by_label['peer']} is the fastest, with {percent(by_label[WINNER])} of the winners. All "
        f"settings are on the {PAGE}."
    )


def cells_block(records: Records) -> str:
    """Return the scan with and without cells."""
    cells = peers_of(records, "wordnet")["manyclass cells"]
    right, asked = round(cells[0]["exact_accuracy"] * cells[0]["queries"]), cells[0]["queries"]
    build = {peer: peers_of(records, "wordnet")[f"manyclass {peer}"][-1]["build_seconds"] for peer in ("scan", "cells")}
    return "\n\n".join([
        f"WordNet glosses ({whole(wordnet.SYNSETS)} × {wordnet.WIDTH}, 256 bits, {wordnet.SYNSETS // 256} cells; "
        f"{machine_in_words(records)}), µs per query in batches of 1000 / one at a time, label accuracy kept, and how "
        "often the winner is the exact one:",
        as_markdown(cells_table(records)),
        f"Label accuracy rests on the {right} queries that the exact product gets right, so that one of them is "
        f"{1 / right:.2%}; winners are compared on all {whole(asked)}. With 300 candidates most cells are "
        f"scanned, and they gain nothing. Building takes {number(build['cells'])} seconds instead of "
        f"{number(build['scan'])}.",
    ])  # fmt: skip


def crossover_block(records: Records) -> str:
    """Return both pipelines by the number of classes, and what tables do not see."""
    peers = peers_of(records, "million")
    tables = max(quality(found, WINNER) for found in peers["manyclass default"])
    scan = next(found for found in peers["manyclass scan"] if quality(found, WINNER) >= SHARE)
    return "\n\n".join([
        "Made rows with planted neighbours at cosine .8, 64 features, recall of at least .9 "
        f"({machine_in_words(records)}), µs per query in batches / one at a time:",
        as_markdown(growth_table(records)),
        "At the smallest of these sizes they are level. `for_problem` changes over at 400,000 classes, without seeing "
        "the rows; `tune` measures both on yours.",
        f"Tables see directions, not lengths. On {whole(FULL.million[0])} rows of very unequal norm (lognormal, sigma "
        ".5) the exact winner is mostly a long row. Probed tables find the class a query was made from, but at most "
        f"{percent(tables)} of the exact winners, at any number of candidates; a scan of 256 bits finds "
        f"{percent(scan[WINNER])} with {scan['setting']['candidates']} candidates, in {number(scan['us_batch1000'])} "
        f"µs per query in {BATCHES['us_batch1000']}. For such rows pass `HashConfig.flat_sketch(256)`, or let `tune` "
        "choose.",
    ])  # fmt: skip


def bands_block(records: Records) -> str:
    """Return what bands and candidates do, as two figures and a paragraph."""
    bands = {found["bands"]: found for found in lines_of(records, "bands", "bands")["paper, K=30"]}
    lines = lines_of(records, "candidates", "candidates")
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
    """Return the figure of growth and the exponents."""
    lines = lines_of(records, "growth", "classes")
    tables, scan = lines["probed tables"], lines["flat scan"]
    return "\n\n".join([
        f"![Time per query as classes grow]({RESULTS}/figures/growth.png)",
        f"From {_size(tables[0])} to {_size(tables[-1])} classes the time of probed tables grows with exponent "
        f"{exponent(tables, 'us_batch'):.2f} in batches and {exponent(tables, 'us_batch1'):.2f} one at a time, that of "
        f"the flat scan with {exponent(scan, 'us_batch'):.2f} and {exponent(scan, 'us_batch1'):.2f}.",
    ])  # fmt: skip


def _size(found: Record) -> str:
    return whole(found["classes"])


def _batch_time(found: Record) -> str:
    return number(found["us_batch"])


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
