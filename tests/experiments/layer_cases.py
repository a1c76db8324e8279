"""A small layer and a real run for it."""

from pathlib import Path

import numpy as np
from rich.console import Console

from experiments.frame.records import Records
from experiments.frame.stages import Options, Run
from experiments.peers.problem import Problem


def small_layer(classes: int = 300, features: int = 32, queries: int = 90) -> Problem:
    """Return a layer whose queries are noisy rows: right nine times out of ten."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(classes, features)).astype(np.float32)
    labels = random.integers(classes, size=queries)
    noisy = rows[labels] + 0.8 * random.normal(size=(queries, features)).astype(np.float32)
    bias = 0.5 * random.normal(size=classes).astype(np.float32)
    return Problem(rows, bias, noisy, labels)


def quick_run(out: Path, quick: bool = True) -> Run:
    """Return a run of quick timings on one thread, its records in a real file."""
    return Run(out, Options(quick=quick, threads=1), Records(out / "records.jsonl"), Console(quiet=True))
