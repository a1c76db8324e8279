"""What README and docs tell of the experiment, from its committed records."""

from experiments.frame.documents import as_markdown
from experiments.frame.records import Records
from experiments.frame.run_section import machine_in_words
from experiments.skipgram.page.tables import ablations_table, precision_table, results, results_table
from experiments.skipgram.page.verdicts import explanation, verdicts

NOT_YET = "Not measured yet."


def texts(records: Records) -> dict[str, str]:
    """Return tables and goals; what was not run is said to be so."""
    missed = [f"{goal} ({figures})" for goal, shown, figures in verdicts(records) if not shown]
    told = {
        "skipgram_table": as_markdown(results_table(records)) if results(records) else NOT_YET,
        "skipgram_precision": as_markdown(precision_table(records)) if results(records) else NOT_YET,
        "skipgram_ablations": NOT_YET,
        "skipgram_explanation": NOT_YET,
        "skipgram_machine": machine_in_words(records),
        "skipgram_missed": f"Not reached: {'; '.join(missed)}." if missed else "All goals are reached.",
    }
    if records.done(stage="ablations", kind="result"):
        told["skipgram_ablations"] = as_markdown(ablations_table(records))
        told["skipgram_explanation"] = explanation(records)
    return told
