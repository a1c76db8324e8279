"""The page: what workers reach, what an engine costs, what goes over the wire, and what faults do."""

from pathlib import Path

from experiments.distributed.fault_figures import counter_section, faults_section
from experiments.distributed.goals import goals_sentence, goals_table
from experiments.distributed.learning_figures import (
    learned,
    learning_section,
    learning_table,
    mean_of,
    watching_section,
)
from experiments.distributed.simulation_figures import simulation_documents, simulation_section
from experiments.distributed.traffic_figures import traffic_section, traffic_table
from experiments.frame.documents import as_markdown
from experiments.frame.page import Fact, Page, Section
from experiments.frame.records import Records
from experiments.frame.run_section import run_section
from experiments.frame.wording import percent, whole


def make_page(records: Records, folder: Path) -> Page:
    """Return the page; what was not measured yet is not on it."""
    goals = goals_table(records)
    sections = [
        Section("Goals", "Set before anything was measured.", [goals] if goals.rows else []),
        learning_section(records, folder),
        watching_section(records, folder),
        traffic_section(records, folder),
        faults_section(records, folder),
        counter_section(records),
        simulation_section(records, folder),
        run_section(records),
    ]
    lead = "Many workers, parameter shards, nobody waits: does it learn the same, what does it cost, what survives?"
    return Page("Training with many workers", lead, _facts(records), sections)


def _facts(records: Records) -> list[Fact]:
    facts, plain = [], mean_of(records, "plain loop", "accuracy")
    for workers in (2, 4):
        found = mean_of(records, "threads", "accuracy", workers=workers, transport="activations")
        if found is not None and plain:
            facts.append(Fact(percent(found / plain), f"of the plain loop's accuracy with {workers} workers"))
    verdicts = records.select(kind="chaos")
    if verdicts:
        wrong = sum(one["doubled"] + (one["lost"] if one["durability"] == "log" else 0) for one in verdicts)
        faults, pushes = (sum(sum(one["faults"].values()) for one in verdicts),
                          sum(one["acknowledged"] for one in verdicts))  # fmt: skip
        facts.append(Fact(whole(wrong), f"of {whole(pushes)} acknowledged pushes doubled, or lost against what was "
                          f"promised, through {faults} faults"))  # fmt: skip
    return facts


def documents(records: Records) -> dict[str, str]:
    """Return the tables and sentences for docs/distributed.md."""
    missing = "Not measured yet: stage `{}` of the experiment `distributed`."
    learning = as_markdown(learning_table(records)) if learned(records) else missing.format("threads")
    counted = as_markdown(traffic_table(records)) if records.select(kind="bytes") else missing.format("bytes")
    return {
        "distributed_learning": learning,
        "distributed_bytes": counted,
        "distributed_goals": goals_sentence(records),
        **simulation_documents(records),
    }
