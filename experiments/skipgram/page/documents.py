"""What README and docs tell of the experiment, from its committed records."""

from experiments.frame.documents import as_markdown
from experiments.frame.records import Records
from experiments.frame.run_section import machine_in_words
from experiments.frame.wording import number, percent, whole
from experiments.skipgram.names import SHORT
from experiments.skipgram.page.tables import (
    ablations_table,
    analogy,
    falling_results,
    falling_table,
    growth_table,
    precision_table,
    results,
    results_table,
    seeds_table,
)
from experiments.skipgram.page.verdicts import explanation, verdicts

NOT_YET = "Not measured yet."
SUMMED_UP = ("candidate", "hierarchical", "sampled", "gensim hierarchical", "gensim negative", "fastText")


def texts(records: Records) -> dict[str, str]:
    """Return tables and goals; what was not run is said to be so."""
    judged = verdicts(records)
    reached = [f"{goal} ({figures})" for goal, shown, figures in judged if shown]
    missed = [f"{goal} ({figures})" for goal, shown, figures in judged if not shown]
    budgets = {number(record["budget"]) for record in results(records).values()}
    told = {
        "skipgram_table": as_markdown(results_table(records)) if results(records) else NOT_YET,
        "skipgram_precision": as_markdown(precision_table(records)) if results(records) else NOT_YET,
        "skipgram_ablations": NOT_YET,
        "skipgram_explanation": NOT_YET,
        "skipgram_machine": machine_in_words(records).rpartition(", ")[0],  # stages differ in their threads
        "skipgram_seconds": f"{' or '.join(sorted(budgets))} CPU seconds" if budgets else "the same CPU seconds",
        "skipgram_text": NOT_YET,
        "skipgram_seeds": NOT_YET,
        "skipgram_growth": NOT_YET,
        "skipgram_reached": f"Reached: {'; '.join(reached)}." if reached else NOT_YET,
        "skipgram_missed": f"Not reached: {'; '.join(missed)}." if missed else "",
    }
    told["skipgram_summary"] = summary(records)
    told["skipgram_missed_goals"] = in_brief([goal for goal, shown, _ in judged if not shown])
    told["skipgram_falling"] = as_markdown(falling_table(records)) if falling_results(records) else NOT_YET
    if text := records.last(stage="corpus", kind="corpus"):
        told["skipgram_text"] = (
            f"{whole(text['tokens'])} words of Wikipedia, {whole(text['classes'])} different ones that occur at least "
            f"{text['min_count']} times."
        )
        if base := records.last(stage="corpus", kind="baseline"):
            pairs = base["prediction"]["pairs"]
            told["skipgram_text"] += f" Tested on {whole(pairs)} pairs of word and neighbour from other articles."
    if records.done(stage="seeds", kind="result"):
        told["skipgram_seeds"] = as_markdown(seeds_table(records))
    if records.done(stage="growth", kind="result"):
        told["skipgram_growth"] = as_markdown(growth_table(records))
    if records.done(stage="ablations", kind="result"):
        told["skipgram_ablations"] = as_markdown(ablations_table(records))
        told["skipgram_explanation"] = explanation(records)
    return told


def in_brief(missed: list[str]) -> str:
    """Return the goals that are missed without their figures, in a sentence."""
    told = "; ".join(f"that {goal[0].lower()}{goal[1:]}" for goal in missed)
    return f"Set out to be shown, and not shown: {told}." if missed else ""


def summary(records: Records) -> str:
    """Return for the README what the output layers that learn probabilities, and the peers, have learned."""
    found = {name: record for name, record in results(records).items() if name in SUMMED_UP}
    if "candidate" not in found:
        return NOT_YET
    words = whole(found["candidate"]["classes"])
    told = [
        f"{SHORT[name]} {percent(record['prediction']['precision']['10'])} and {percent(analogy(record))}"
        for name, record in found.items()
    ]
    return f"Over {words} words, precision@10 and share of Google's analogies: {'; '.join(told)}."
