"""Measure every contestant on one data set: `python -m experiments.index.peers_stage wordnet`.

One JSON line per (data set, peer, setting); started again, it goes on where it stopped.
"""

import argparse
from dataclasses import replace
from time import perf_counter

import numpy as np
from rich.console import Console

from experiments.index.datasets import BY_NAME, Dataset, exact_top1
from experiments.index.records import CORE_RESULTS, Log
from experiments.peers import CONTESTANTS, Peer
from experiments.peers.judging import ExactAnswer
from experiments.peers.measuring import build_timed, measure_setting

console = Console()


def microseconds_update(peer: Peer, dataset: Dataset, count: int = 200) -> float | None:
    """Return the median µs to re-index one slightly changed row, None if the peer cannot."""
    random = np.random.default_rng(4)
    chosen = random.choice(len(dataset.rows), count, replace=False)
    seconds = []
    for row_id in chosen:
        row = np.array(dataset.rows[row_id])
        moved = row + 0.05 * row.std() * random.standard_normal(len(row), dtype=np.float32)
        start = perf_counter()
        if not peer.update_one(int(row_id), moved):
            return None
        seconds.append(perf_counter() - start)
        peer.update_one(int(row_id), row)
    return float(np.median(seconds)) * 1e6


def measure(peer: Peer, dataset: Dataset, exact: ExactAnswer, log: Log, settings: list[dict]) -> None:
    """Build the peer once and write a record for each setting."""
    loaded = replace(dataset, rows=np.array(dataset.rows), queries=np.array(dataset.queries))
    built = build_timed(peer, loaded.rows, dataset.bias)
    console.print(f"[bold]{peer.name}[/] built in {built['build_seconds']:.1f} s")
    for setting in settings:
        measured = measure_setting(peer, loaded, exact, setting)
        log.write(stage="peers", dataset=dataset.name, peer=peer.name, setting=setting, **measured, **built)
        console.print(
            f"  {setting}: kept {measured['accuracy_kept']:.3f}, recall {measured['recall_at_10']:.3f}, "
            f"{measured['us_batch1']:.0f} / {measured['us_batch1000']:.0f} µs"
        )
    # Last, because a graph does not come back to what it was when a row is put back.
    log.write(stage="update", dataset=dataset.name, peer=peer.name, us_update=microseconds_update(peer, dataset))


def run(dataset: Dataset, log: Log, only: str = "") -> None:
    """Measure what the log does not have yet; a library that is not installed is logged as missing."""
    exact = exact_top1(dataset)
    classes, features = dataset.rows.shape
    console.print(f"{dataset.name}: {classes:,} classes, {features} features, exact accuracy {exact.accuracy:.3f}")
    for contestant in CONTESTANTS:
        peer = contestant(classes, features, log.threads)
        key = {"dataset": dataset.name, "peer": peer.name}
        if only not in peer.name:
            continue
        missing = [setting for setting in peer.settings() if not log.done(stage="peers", setting=setting, **key)]
        if not missing and log.done(stage="update", **key):
            continue
        try:
            measure(peer, dataset, exact, log, missing)
        except ImportError as absent:
            console.print(f"[yellow]{peer.name} is missing: {absent}[/]")
            if not log.done(stage="missing", reason=str(absent), **key):
                log.write(stage="missing", **key, reason=str(absent))


def main() -> None:
    """Translate the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", choices=sorted(BY_NAME))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--classes", type=int, help="only the first so many classes, for a quick check")
    parser.add_argument("--only", default="", help="only peers whose name contains this")
    parser.add_argument("--log", help="file of results; default: benchmarks/results/core/peers_<dataset>.jsonl")
    arguments = parser.parse_args()
    dataset = BY_NAME[arguments.dataset]()
    dataset = dataset.head(arguments.classes) if arguments.classes else dataset
    log = Log(arguments.log or CORE_RESULTS / f"peers_{arguments.dataset}.jsonl", arguments.threads)
    run(dataset, log, arguments.only)


if __name__ == "__main__":
    main()
