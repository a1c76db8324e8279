"""Microseconds per query as the classes grow: planted neighbours at cosine .8, 64 features, recall of at least .9."""

from time import perf_counter

import numpy as np

import manyclass as mc
from experiments.index.datasets import planted
from experiments.index.records import CORE_RESULTS, Log
from experiments.peers.timing import time_call

SIZES = (100_000, 1_000_000, 10_000_000)
LADDER = (10, 12, 15, 18, 22, 26, 30, 40, 60, 100, 200)
RECALL = 0.9


def configs(classes: int) -> dict[str, mc.HashConfig]:
    """Return the pipelines that are compared at a size."""
    return {
        "flat scan": mc.HashConfig.flat_sketch(64),
        "probed tables": mc.HashConfig.probed_tables(classes, 64, sketch_bits=64),
    }


def measure(log: Log, classes: int, name: str, config: mc.HashConfig, data: tuple[np.ndarray, ...]) -> None:
    """Write one record: the fewest candidates that reach the recall, and the time they take."""
    rows, queries, labels = data
    start = perf_counter()
    index = mc.ClassIndex.build(rows, config=config, threads=log.threads)
    build_seconds = perf_counter() - start
    for candidates in LADDER:
        found = index.search(queries, 1, candidates=candidates).classes[:, 0]
        recall = float((found == labels).mean())
        if recall >= RECALL:
            break
    batch = time_call(lambda: index.search(queries, 1, candidates=candidates), repeats=5) / len(queries)
    single = time_call(lambda: [index.search(q, 1, candidates=candidates) for q in queries[:200]]) / 200
    own_bytes = sum(size for part, size in index.memory_report().items() if part != "rows")
    log.write(
        stage="growth", peer=name, stages=config.pipeline, classes=classes, candidates=candidates, recall=recall,
        us_batch=batch * 1e6, us_batch1=single * 1e6, build_seconds=build_seconds, bytes_per_class=own_bytes,
    )  # fmt: skip
    print(f"{classes:,} {name}: recall {recall:.3f}, {batch * 1e6:.1f} µs in batches, {single * 1e6:.1f} alone")


def run(log: Log) -> None:
    """Write one record per (size, pipeline)."""
    for classes in SIZES:
        missing = {n: c for n, c in configs(classes).items() if not log.done(peer=n, classes=classes)}
        if missing:
            dataset = planted(classes)
            data = np.array(dataset.rows), np.array(dataset.queries), np.array(dataset.labels)
            for name, config in missing.items():
                measure(log, classes, name, config, data)


if __name__ == "__main__":
    run(Log(CORE_RESULTS / "growth.jsonl"))
