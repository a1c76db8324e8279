"""The paper's pipeline, one knob at a time: the number of bands [M], of candidates [K]."""

from collections.abc import Callable

from experiments.frame.stages import Run
from experiments.peers.manyclass_peer import Manyclass
from experiments.peers.measuring import measure_setting
from experiments.peers.problem import Problem
from manyclass.config import HashConfig

BANDS = (16, 32, 64, 125, 250, 500, 1000, 2000)
QUICK_BANDS = (16, 64, 250)
CANDIDATES = (10, 30, 100, 300, 1000, 3000)


def run_bands(run: Run, layer: Callable[[], Problem]) -> None:
    """Write a record per number of bands, at 30 and at 300 candidates."""
    plans = [
        (f"paper, K={candidates}", HashConfig.paper(codes=3 * bands, bands=bands), candidates, {"bands": bands})
        for bands in (QUICK_BANDS if run.options.quick else BANDS)
        for candidates in (30, 300)
    ]
    _sweep(run, "bands", layer, plans)


def run_candidates(run: Run, layer: Callable[[], Problem]) -> None:
    """Write a record per number of candidates and pipeline."""
    pipelines = {
        "paper": HashConfig.paper(),
        "paper, fast keys": HashConfig.paper(keys="fast"),
        "paper + re-score": HashConfig.paper(rescore=True, breadth=8, always=32),
        "scan of 512 bits": HashConfig.flat_sketch(512),
    }
    counts = CANDIDATES[:4] if run.options.quick else CANDIDATES
    plans: list[Plan] = [(name, config, count, {}) for name, config in pipelines.items() for count in counts]
    _sweep(run, "candidates", layer, plans)


Plan = tuple[str, HashConfig, int, dict[str, int]]  # name, config, candidates, further fields of the record


def _sweep(run: Run, stage: str, layer: Callable[[], Problem], plans: list[Plan]) -> None:
    """Write a record for each plan that the records lack; consecutive plans with one config share an index."""
    left = [
        plan
        for plan in plans
        if not run.records.done(stage=stage, kind="result", peer=plan[0], candidates=plan[2], **plan[3])
    ]
    if not left:
        return
    min_seconds = 0.02 if run.options.quick else 0.5
    with run.progress(len(left), "settings") as show:
        show(0, "making the rows")
        problem, peer = layer(), None
        for completed, (name, config, candidates, fields) in enumerate(left):
            show(completed, f"{name}, {candidates} candidates")
            if peer is None or peer.config != config:
                peer = Manyclass(problem.classes, problem.features, run.options.threads, config=config)
                peer.build(problem.rows, problem.bias)
            setting = {"candidates": candidates}
            measured = measure_setting(peer, problem, setting, batches=(), min_seconds=min_seconds)
            sized = {"bytes_per_class": peer.bytes_per_class()}
            told = {"peer": name, "stages": config.pipeline, **setting, **fields}
            run.records.write(stage=stage, kind="result", **told, **measured, **sized)
