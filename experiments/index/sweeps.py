"""Accuracy and time against the paper's M (bands) and K (candidates), on the rows of the paper's table."""

import numpy as np

import manyclass as mc
from experiments.index.datasets import exact_top1, imagenet_like
from experiments.index.records import CORE_RESULTS, Log
from experiments.peers.timing import time_call

BANDS = (16, 32, 64, 125, 250, 500, 1000, 2000)
CANDIDATES = (10, 30, 100, 300, 1000, 3000)
PIPELINES = {
    "paper": mc.HashConfig.paper(),
    "paper, fast keys": mc.HashConfig.paper(keys="fast"),
    "paper + re-score": mc.HashConfig.paper(rescore=True, breadth=8, always=32),
    "scan of 512 bits": mc.HashConfig.flat_sketch(512),
}


def measure(log: Log, name: str, config: mc.HashConfig, candidates: tuple[int, ...], **fields: object) -> None:
    """Write a record for each number of candidates that the log lacks."""
    missing = [c for c in candidates if not log.done(peer=name, candidates=c, **fields)]
    if not missing:
        return
    dataset = imagenet_like()
    exact = exact_top1(dataset)
    queries = np.array(dataset.queries)
    index = mc.ClassIndex.build(np.array(dataset.rows), bias=np.array(dataset.bias), config=config)
    for count in missing:
        top = index.search(queries, 10, candidates=count).classes
        accuracy = float((top[:, 0] == dataset.labels).mean())
        single = time_call(lambda count=count: [index.search(q, 10, candidates=count) for q in queries[:50]]) / 50
        log.write(
            stage="sweep", peer=name, stages=config.pipeline, candidates=count, accuracy_kept=accuracy / exact.accuracy,
            agreement=float((top[:, 0] == exact.top1).mean()), us_batch1=single * 1e6,
            bytes_per_class=sum(index.memory_report().values()), **fields,
        )  # fmt: skip
        print(f"{name} {fields} K {count}: kept {accuracy / exact.accuracy:.4f}, {single * 1e6:.0f} µs")


def run_bands(log: Log) -> None:
    for bands in BANDS:
        for candidates in (30, 300):
            name = f"paper, K={candidates}"
            measure(log, name, mc.HashConfig.paper(codes=3 * bands, bands=bands), (candidates,), bands=bands)


def run_candidates(log: Log) -> None:
    for name, config in PIPELINES.items():
        measure(log, name, config, CANDIDATES)


if __name__ == "__main__":
    run_bands(Log(CORE_RESULTS / "bands.jsonl"))
    run_candidates(Log(CORE_RESULTS / "candidates.jsonl"))
