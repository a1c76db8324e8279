"""The page of the experiment, made of records."""

from pathlib import Path

from experiments.frame.page import Fact, Figure, Page, Section, Table, Text
from experiments.frame.records import Records
from experiments.frame.run_section import run_section
from experiments.frame.wording import number, percent, whole
from experiments.skipgram.names import FALLING, NAMES, PEER_NAMES, SHORT, falling, stage_of
from experiments.skipgram.page import paper
from experiments.skipgram.page.figures import draw_curves
from experiments.skipgram.page.tables import (
    ablations_table,
    analogy,
    bands_table,
    falling_results,
    falling_table,
    growth_table,
    precision_table,
    rates_table,
    results,
    results_table,
    seeds_table,
    similarity_table,
)
from experiments.skipgram.page.verdicts import explanation, verdicts

NOT_RUN = "Not run yet: stage `{}`."


def make_page(records: Records, folder: Path) -> Page:
    """Return the page; what was not run yet is said to be so."""
    text = records.last(stage="corpus", kind="corpus")
    words = f"{whole(text['classes'])} words" if text else "a whole vocabulary"
    sections = [
        goals_section(records), results_section(records, folder), precision_section(records), vectors_section(records),
        falling_section(records), ablations_section(records), growth_section(records), seeds_section(records),
        rates_section(records), lookup_section(records), text_section(records), run_section(records),
    ]  # fmt: skip
    lead = (
        "Which words stand near a word? Every output layer learns the same text for the same CPU seconds. The paper's "
        "layer predicted twice as well as a tree, and its word vectors failed at analogies: 5% against 50%."
    )
    return Page(f"Skip-gram over {words}", lead, facts(records), sections)


def facts(records: Records) -> list[Fact]:
    """Return the numbers at the top."""
    found = results(records).get("candidate")
    if found is None:
        return []
    told = [Fact(percent(found["prediction"]["precision"]["10"]), "precision@10 with candidate softmax")]
    if (right := analogy(found)) is not None:
        told.append(Fact(percent(right), "of Google's analogies right"))
    pace = found["words"] / max(found["seconds"], 1e-9)
    told.append(
        Fact(whole(pace), f"examples per second; the paper's cluster made {number(paper.EXAMPLES_PER_SECOND[1])}")
    )
    return told


def goals_section(records: Records) -> Section:
    """Return what was to be shown, and whether it is."""
    rows = [["reached" if shown else "missed", goal, figures] for goal, shown, figures in verdicts(records)]
    if not rows:
        return Section("What was to be shown", "Nothing yet.", short="Goals")
    card = records.last(kind="card")
    quick = " A quick run shows that everything works, not how well." if card and card["options"]["quick"] else ""
    return Section(
        "What was to be shown", f"Goals and figures.{quick}", [Table(["", "goal", ""], rows, "", "lll")], "Goals"
    )


def results_section(records: Records, folder: Path) -> Section:
    """Return curves and the table of all contestants."""
    found = results(records)
    missing = [head for head in NAMES if head not in found]
    absent = [*records.select(kind="left_out"), *records.select(kind="missing")]
    left_out = {record["head"]: record["reason"] for record in absent if record["head"] not in found}
    not_run = [head for head in missing if head not in left_out]
    notes = [Text(f"Left out: {SHORT[name]}, {reason}.") for name, reason in left_out.items()]
    peers = [stage_of(peer) for peer in PEER_NAMES if peer not in found and peer not in left_out]
    told = " ".join(NOT_RUN.format(stage) for stage in [*not_run, *peers])
    text = (
        "All learn with the same input vectors, window, order of the text and optimizer, each with the learning rate "
        "that was best for it on validation articles; peers as they come. Candidate softmax looks nothing up, as by "
        f"default, and then computes what sampled softmax does: what tells them apart is the rate. {told}"
    )
    parts: list[Table | Figure | Text] = [*notes]
    if found:
        parts = [draw_curves(found, folder), results_table(records), *notes]
    return Section("The same CPU seconds", text.strip(), parts, "Results")


def falling_section(records: Records) -> Section:
    """Return what a rate that falls changes."""
    title = "A rate that falls"
    if not falling_results(records):
        return Section(title, " ".join(NOT_RUN.format(falling(head)) for head in FALLING), short="Falling")
    text = (
        "Adagrad's own steps grow smaller, so that all learn at a rate that stays. The peers' rates fall in a straight "
        "line to nothing. Here two output layers learn like that, at the rate that is then best on validation articles."
    )
    return Section(title, text, [falling_table(records)], "Falling")


def rates_section(records: Records) -> Section:
    """Return how learning rates were chosen."""
    if not records.done(stage="rates", kind="rate"):
        return Section("Learning rates", NOT_RUN.format("rates"), short="Rates")
    text = (
        "The same few for every output layer, the same CPU seconds for each, chosen on validation articles: no test "
        "looks at them. Short runs choose for long ones."
    )
    return Section("Learning rates", text, [rates_table(records)], "Rates")


def precision_section(records: Records) -> Section:
    """Return the paper's table, with and without frequent words, and by frequency."""
    if not results(records):
        return Section("Precision", "Not run yet.")
    text = (
        "The paper's figures are of another text and vocabulary: ratios can be compared, shares cannot. Its average "
        "precision agrees with the mean of 1 / rank over its own precision rows, and is read so here."
    )
    parts: list[Table | Figure | Text] = [
        precision_table(records), Text("With all words, none left out for being frequent:"),
        precision_table(records, "prediction_all_words"), bands_table(records),
    ]  # fmt: skip
    return Section("Precision", text, parts)


def vectors_section(records: Records) -> Section:
    """Return analogies by kind, and similarities."""
    found = {name: record for name, record in results(records).items() if record.get("google")}
    if not found:
        return Section("Word vectors", "No analogies were asked: no word sets were found, or nothing was trained yet.")
    rows = []
    for name, record in found.items():
        google, msr = record["google"], record["msr"]
        rows.append([SHORT[name], percent(google["semantic"]["right"]), percent(google["syntactic"]["right"]),
                     percent(google["all"]["right"]), whole(google["all"]["asked"]), whole(google["all"]["left_out"]),
                     percent(msr["right"]), whole(msr["asked"])])  # fmt: skip
    table = Table(
        ["", "semantic", "syntactic", "Google, all", "asked", "left out", "MSR", "asked"], rows,
        "Analogies answered right by b - a + c. Left out: questions with a word that is not in the vocabulary.",
    )  # fmt: skip
    return Section("Word vectors", "", [table, similarity_table(records)], "Vectors")


def ablations_section(records: Records) -> Section:
    """Return what explains the paper's gap."""
    title = "What explains the paper's failure at analogies"
    if not records.done(stage="ablations", kind="result"):
        return Section(title, NOT_RUN.format("ablations"), short="Why")
    text = (
        "Each row changes one thing and learns the same words as what it is compared with, but for the row that asks "
        "about their number; on the smaller vocabulary. A suspicion is borne out where its change costs more than a "
        f"fifth of the analogies, and refuted where it costs less. {diverged(records, 'ablations')}"
    )
    return Section(title, text.strip(), [ablations_table(records), Text(explanation(records))], "Why")


def diverged(records: Records, stage: str) -> str:
    """Return which runs of a stage came to no end."""
    names = [f"{record['head']}, seed {record['seed']}" for record in records.select(stage=stage, kind="diverged")]
    return f"Diverged: {'; '.join(names)}." if names else ""


def growth_section(records: Records) -> Section:
    """Return step time and memory by vocabulary."""
    if not records.done(stage="growth", kind="result"):
        return Section("A growing vocabulary", NOT_RUN.format("growth"), short="Growth")
    return Section("A growing vocabulary", "", [growth_table(records)], "Growth")


def seeds_section(records: Records) -> Section:
    """Return several seeds on the smaller vocabulary."""
    if not records.done(stage="seeds", kind="result"):
        return Section("Several seeds", NOT_RUN.format("seeds"), short="Seeds")
    text = f"On a smaller vocabulary, where full softmax takes part. {diverged(records, 'seeds')}"
    return Section("Several seeds", text.strip(), [seeds_table(records)], "Seeds")


def lookup_section(records: Records) -> Section:
    """Return nearest words, and how long the index took for them."""
    found = records.last(stage="lookup", kind="result")
    if found is None:
        return Section("Nearest words", NOT_RUN.format("lookup"), short="Look-up")
    text = (
        f"From the saved vectors of {SHORT[found['head']]}: {number(found['milliseconds'])} ms per question through "
        f"the index, the exact nearest word in {percent(found['agrees'])} of {whole(found['asked'])}."
    )
    rows = [[word, ", ".join(near)] for word, near in found["nearest"]]
    return Section("Nearest words", text, [Table(["word", "nearest"], rows, "", "ll")], "Look-up")


def text_section(records: Records) -> Section:
    """Return what was learned from."""
    told = records.last(stage="corpus", kind="corpus")
    if told is None:
        return Section("The text", NOT_RUN.format("corpus"), short="Text")
    rows = [
        ["vocabulary", whole(told["classes"])], ["words of text", whole(told["tokens"])],
        ["held out", whole(told["held_out"])], ["least count", whole(told["min_count"])],
        ["phrases joined", whole(told["phrases"])], ["window", whole(told["window"])],
        ["frequent words left out, t", f"{told['sample']:g}"], ["features", whole(told["features"])],
    ]  # fmt: skip
    text = "Made on the spot, with known analogies." if told["made"] else "As given."
    missing = ", ".join(told["missing_sets"])
    return Section("The text", text + (f" Word sets that were not found: {missing}." if missing else ""),
                   [Table(["", ""], rows)], "Text")  # fmt: skip
