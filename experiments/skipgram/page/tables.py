"""The tables of the experiment, made of records."""

import statistics

from experiments.frame.page import Table
from experiments.frame.records import Record, Records
from experiments.frame.wording import ABSENT, number, percent, times, whole
from experiments.skipgram.chosen_rates import chosen_rates, tried_rates
from experiments.skipgram.names import FALLING, NAMES, PEER_NAMES, SHORT, falling, stage_of
from experiments.skipgram.page import paper

GUESS = "most frequent words"
CALIBRATED = {GUESS, *(SHORT[name] for name in ("hierarchical", "full", "candidate", "sampled", "gensim hierarchical"))}


def results(records: Records) -> dict[str, Record]:
    """Return the newest result of each output layer and of each peer, in order."""
    found = {head: records.last(stage=head, kind="result") for head in NAMES}
    found |= {peer: records.last(stage=stage_of(peer), kind="result") for peer in PEER_NAMES}
    return {name: record for name, record in found.items() if record}


def falling_results(records: Records) -> dict[str, Record]:
    """Return the newest result of each output layer that learned with a rate that falls."""
    found = {head: records.last(stage=falling(head), kind="result") for head in FALLING}
    return {head: record for head, record in found.items() if record}


def falling_table(records: Records) -> Table:
    """Return what they learn with a rate that falls, beside one that stays."""
    kept, rows = results(records), []
    for head, record in falling_results(records).items():
        for name, run in ((f"{SHORT[head]}, falls", record), (f"{SHORT[head]}, stays", kept.get(head))):
            if run:
                rows.append([name, f"{run['rate']:g}", *precisions(run["prediction"]), percent(analogy(run))])
    return Table(["", "rate", *(f"@{k}" for k in paper.PRECISION), "average", "Google analogies"], rows)


def results_table(records: Records) -> Table:
    """Return what each learned in the same CPU seconds: words, precision, analogies, similarity."""
    rows = []
    for name, record in results(records).items():
        told = record["prediction"]
        rows.append([
            (NAMES | PEER_NAMES)[name], number(record["cpu_seconds"]), whole(words_per_second(record)),
            percent(told["precision"]["1"]), percent(told["precision"]["10"]), percent(told["precision"]["100"]),
            percent(analogy(record)), percent((record.get("msr") or {}).get("right")), number(mean_similarity(record)),
        ])  # fmt: skip
    own = {place for place, name in enumerate(results(records)) if name == "candidate"}
    return Table(
        ["", "CPU seconds", "words per CPU second", "precision@1", "@10", "@100", "Google analogies", "MSR analogies",
         "similarity"],
        rows, "Precision over held-out pairs, frequent words left out as in training. Similarity: mean of Spearman's "
        "correlation over the sets. Words are those that stay when frequent ones are left out.", emphasised=own,
    )  # fmt: skip


def rates_table(records: Records) -> Table:
    """Return what every output layer reaches with every rate on validation articles, the chosen one marked."""
    tried, chosen = tried_rates(records), chosen_rates(records)
    rates = sorted({rate for found in tried.values() for rate in found})

    def cell(head: str, rate: float) -> str:
        if rate not in tried[head]:
            return ABSENT
        return percent(tried[head][rate]["average_precision"]) + (" ←" if chosen[head] == rate else "")

    text = records.last(stage="corpus", kind="corpus")

    def tried_on(head: str) -> str:
        fewer = [record["classes"] for record in tried[head].values() if text and "classes" in record]
        return f", on {whole(fewer[0])} words" if text and fewer and fewer[0] < text["classes"] else ""

    rows = [[NAMES[head] + tried_on(head), *(cell(head, rate) for rate in rates), words_of_a_trial(tried[head])]
            for head in NAMES if head in tried]  # fmt: skip
    columns = ["average precision at rate", *(f"{rate:g}" for rate in rates), "words of a trial"]
    return Table(columns, rows, "Chosen: ←. A layer that learns few words in a trial chooses by little.")


def words_of_a_trial(tried: dict[float, Record]) -> str:
    """Return how many words an output layer has learned from in a trial, of one in the middle."""
    words = sorted(record["words"] for record in tried.values() if "words" in record)
    return whole(words[len(words) // 2]) if words else ABSENT


def precision_table(records: Records, prediction: str = "prediction") -> Table:
    """Return the paper's table: its two output layers, ours of each and all others, and the most frequent words."""
    found, base = results(records), records.last(stage="corpus", kind="baseline")
    rows = []
    for place, name in enumerate(("paper, hierarchical", "paper, WTA")):
        shares = [*(theirs[place] for theirs in paper.PRECISION.values()), paper.AVERAGE_PRECISION[place]]
        rows.append([name, *(f"{share:g}%" for share in shares), ABSENT])
    order = [name for name in ("hierarchical", "wta", "full", "candidate", "negative", "sampled", *PEER_NAMES)
             if name in found]  # fmt: skip
    named: list[tuple[str, Record | None]] = [(SHORT[name], found[name]) for name in order]
    for title, record in [*named, (GUESS, base)]:
        if told := (record or {}).get(prediction):
            perplexity = number(told["perplexity"]) if title in CALIBRATED else ABSENT
            rows.append([title, *precisions(told), perplexity])
    own = {place for place, row in enumerate(rows) if row[0] == SHORT["candidate"]}
    columns = ["precision", *(f"@{k}" for k in paper.PRECISION), "average", "perplexity"]
    caption = (
        "Share of held-out pairs whose neighbour is among the k likeliest of all words. Perplexity is of those that "
        "learn probabilities."
    )
    return Table(columns, rows, caption, emphasised=own)


def precisions(prediction: Record) -> list[str]:
    """Return the cells of a row: precision at each of the paper's k, and average precision."""
    return [percent(share) for share in (*(prediction["precision"][k] for k in paper.PRECISION),
                                         prediction["average_precision"])]  # fmt: skip


def bands_table(records: Records) -> Table:
    """Return precision@10 by how frequent the neighbour is."""
    rows = []
    for name, record in results(records).items():
        bands = record["prediction"]["bands"]
        rows.append([SHORT[name], *(percent(bands[band]["precision"]["10"]) for band in ("head", "torso", "tail"))])
    return Table(
        ["", "head", "torso", "tail"], rows,
        "precision@10 by the neighbour's frequency: words that make half of the text, up to nine tenths, the rest.",
    )  # fmt: skip


def similarity_table(records: Records) -> Table:
    """Return Spearman's correlation on each set."""
    found = {name: record for name, record in results(records).items() if record.get("similarity")}
    sets = sorted({name for record in found.values() for name in record["similarity"]})
    rows = [[name, *(number(record["similarity"].get(name, {}).get("correlation")) for record in found.values())]
            for name in sets]  # fmt: skip
    return Table(["set", *(SHORT[name] for name in found)], rows, "Spearman's correlation with people's judgements.")


def ablations_table(records: Records) -> Table:
    """Return what each change costs, beside what it is compared with."""
    newest = {record["head"]: record for record in records.select(stage="ablations", kind="result")}
    rows = []
    for name, record in newest.items():
        share, reference = analogy(record), analogy(newest.get(record["beside"], {}))
        ratio = None if share is None or not reference else share / reference
        rows.append([
            name, record["question"], whole(record["words"]), percent(record["prediction"]["precision"]["10"]),
            percent(share), f"{times(ratio)} {record['beside']}" if record["beside"] else ABSENT,
        ])  # fmt: skip
    columns = ["layer", "suspicion", "words", "precision@10", "analogies", "compared with"]
    return Table(columns, rows, align="llrrrr")


def growth_table(records: Records) -> Table:
    """Return time of a step and bytes per word by vocabulary."""
    found = {(record["head"], record["classes"]): record for record in records.select(stage="growth", kind="result")}
    sizes = sorted({classes for _, classes in found})
    heads = list(dict.fromkeys(head for head, _ in found))
    rows = []
    for head in heads:
        told = [found.get((head, size), {}) for size in sizes]
        rows.append([NAMES[head], *(number(record.get("step_ms")) for record in told),
                     *(whole(record.get("bytes_per_class")) for record in told)])  # fmt: skip
    columns = [f"{unit} at {whole(size)}" for unit in ("ms per step", "bytes per word") for size in sizes]
    return Table(["vocabulary", *columns], rows, "Batches of words drawn as unequally often as in a text.")


def seeds_table(records: Records) -> Table:
    """Return the mean over seeds on the smaller vocabulary, with the least and the most."""
    rows = []
    for head, name in NAMES.items():
        runs = list({run["seed"]: run for run in records.select(stage="seeds", kind="result", head=head)}.values())
        if runs:
            precision = [run["prediction"]["precision"]["10"] for run in runs]
            right = [share for run in runs if (share := analogy(run)) is not None]
            rows.append([name, whole(len(runs)), spread(precision), spread(right)])
    return Table(["", "seeds", "precision@10", "analogies"], rows, "Mean (least … most).")


def spread(values: list[float]) -> str:
    """Return the mean, and from least to most."""
    return f"{percent(statistics.mean(values))} ({percent(min(values))} … {percent(max(values))})" if values else ABSENT


def words_per_second(record: Record) -> float | None:
    """Return words learned from in a CPU second."""
    return record["words"] / max(record["cpu_seconds"], 1e-9) if "words" in record else None


def analogy(record: Record) -> float | None:
    """Return the share of Google's analogies answered right."""
    share: float | None = ((record.get("google") or {}).get("all") or {}).get("right")
    return share


def mean_similarity(record: Record) -> float | None:
    """Return the mean correlation over the sets that have one."""
    found = [
        told["correlation"] for told in (record.get("similarity") or {}).values() if told["correlation"] is not None
    ]
    return statistics.mean(found) if found else None
