"""Draw all figures and tables from the JSON lines: `python -m experiments.index.figures`. Nothing is measured here."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from experiments.index.figure_peers import QUALITIES, draw_peers
from experiments.index.figure_sweeps import draw_growth, draw_sweep
from experiments.index.paper_table_page import page
from experiments.index.records import CORE_RESULTS, RESULTS, Log
from experiments.index.tables import peers_table

BATCHES = {"us_batch1": "one query at a time", "us_batch1000": "batches of 1000"}


def peers_report(records: list[dict]) -> str:
    """Return the page of one data set: a table for each batch size and each measure of quality, at 99%."""
    machine = records[-1]["machine"]
    text = f"# Peers on {records[-1]['dataset']}\n\n{machine['cpu']}, {machine['threads']} threads, "
    text += "each peer at its fastest setting that reaches 99%. Bytes include the peer's copy of the rows.\n"
    text += resolution_note(next(record for record in records if record["stage"] == "peers"))
    for quality, meaning in QUALITIES.items():
        for time, batch in BATCHES.items():
            text += f"\n## 99% {meaning}, {batch}\n\n{peers_table(records, time, quality=quality)}"
    return text


def resolution_note(record: dict) -> str:
    """Return how finely accuracy kept can be read: with few right answers, one query moves it visibly."""
    right = round(record["exact_accuracy"] * record["queries"])
    return (
        f"The exact product is right on {right} of {record['queries']} queries "
        f"({record['exact_accuracy']:.1%}), so one query more or less moves accuracy kept by {1 / right:.2%}; "
        "the share of queries with the exact winner is read on all of them.\n"
    )


def draw_all(source: Path, target: Path, console: Console) -> None:
    """Draw what the folder of records holds; say which files are not there yet."""
    for file in sorted(source.glob("peers_*.jsonl")):
        records = Log(file).all()
        report = peers_report(records)
        target.mkdir(parents=True, exist_ok=True)
        (target / f"{file.stem}.md").write_text(report, encoding="utf-8")
        console.print(Markdown(report))
        for quality in QUALITIES:
            draw_peers(records, target, f"{file.stem}_{quality}", quality)
    if records := Log(source / "paper_table.jsonl").all():
        (target / "paper_table.md").write_text(page(records), encoding="utf-8")
        console.print(Markdown(page(records)))
    sweeps = {"bands": "bands", "candidates": "candidates"}
    for stage, knob in sweeps.items():
        if records := Log(source / f"{stage}.jsonl").all():
            draw_sweep(records, target, stage, knob)
        else:
            console.print(f"[yellow]no {stage}.jsonl yet: no figure against {knob}[/]")
    if records := Log(source / "growth.jsonl").all():
        draw_growth(records, target)
    else:
        console.print("[yellow]no growth.jsonl yet: no figure of growth[/]")


def main() -> None:
    """Translate the command line and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=CORE_RESULTS, help="folder of JSON lines")
    parser.add_argument("--target", type=Path, default=RESULTS, help="folder of figures and tables")
    arguments = parser.parse_args()
    draw_all(arguments.source, arguments.target, Console())


if __name__ == "__main__":
    main()
