"""Invented records of the experiment imagenet21k, in the shape its stages write; only to test what is drawn of them."""

import math
from collections.abc import Callable
from pathlib import Path

from experiments.frame.records import Records

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
CANDIDATES = (10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000, 3000)
CLASSES = 20_976
EXACT = 0.71


def data(records: Records) -> None:
    fonts = {"train_styles": [f"Font {n}" for n in range(38)], "test_styles": ["Song", "Kai"]}
    records.write(stage="data", kind="result", source="glyphs", classes=CLASSES, train_images=700_000,
                  test_images=41_000, side=64, **fonts)  # fmt: skip


def warm_up(records: Records) -> None:
    records.write(stage="warm_up", kind="result", head="full", classes=1311, steps=600, seconds=400.0, accuracy=0.5,
                  epochs=7.4, batch=256)  # fmt: skip


def base(records: Records) -> None:
    for step in range(0, 20_001, 1000):
        reached = 0.6 * (1 - math.exp(-step / 6000))
        records.write(stage="base", kind="evaluation", step=step, seconds=step * 0.12, accuracy=reached)
    records.write(stage="base", kind="result", head="candidate", steps=20_000, seconds=2400.0, accuracy=0.6, epochs=3.1,
                  multiply_adds=68_000_000, parameters=31_000_000, features=4096, rates=[0.1, 0.03])  # fmt: skip


def features(records: Records) -> None:
    records.write(stage="features", kind="result", train_examples=300_000, test_examples=41_000, features=4096,
                  zero_share=0.81, gigabytes=2.6)  # fmt: skip


def softmax_layer(records: Records) -> None:
    records.write(stage="softmax_layer", kind="result", accuracy=EXACT, train_accuracy=0.93, steps=5000,
                  exact_steps=900, seconds=1800.0, start="candidate head")  # fmt: skip


def layer(records: Records) -> None:
    for pipeline, stages in (("default", "scan → exact"), ("paper", "tables → votes → exact")):
        for batch in BATCHES:
            for candidates in CANDIDATES:
                share = 1 - (0.02 if pipeline == "default" else 0.9) / math.sqrt(candidates / 2)
                ours = (0.1 if pipeline == "default" else 0.5) * batch**0.8 + 4e-4 * batch * candidates
                products = {"torch x@W.T": 16.0 * batch**0.55, "numpy W@x.T": 10.5 * batch**0.5}
                softmax = 22.6 * batch**0.56
                records.write(
                    stage="layer", kind="result", pipeline=pipeline, stages=stages, batch=batch, candidates=candidates,
                    accuracy=EXACT * share, exact_accuracy=EXACT, accuracy_kept=share, ours_ms=ours,
                    exact_ms=products["numpy W@x.T"], exact_product="numpy W@x.T", softmax_ms=softmax,
                    speedup=products["numpy W@x.T"] / ours, speedup_torch=softmax / ours, products_ms=products,
                )  # fmt: skip


def trained(stage: str, milliseconds: float) -> Callable[[Records], None]:
    def write(records: Records) -> None:
        heads: list[tuple[str, int | None, str | None, float, float]] = [
            ("full", None, None, 0.70, 1.0),
            ("hierarchical", None, None, 0.45, 0.2),
            ("sampled", None, None, 0.6, 0.3),
            *[("candidate", count, "own", 0.69 + count / 2e5, 0.2 + count / 1e4) for count in (30, 300, 3000)],
            ("wta", 300, None, 0.5, 0.3),
        ]  # fmt: skip
        for head, candidates, rule, best, share in heads:
            key = {"stage": stage, "head": head, "candidates": candidates, "rule": rule}
            each = milliseconds * share
            for step in range(0, 2001, 200):
                reached = best * (1 - math.exp(-step / 500))
                records.write(**key, kind="evaluation", step=step, seconds=step * each / 1e3, accuracy=reached)
            records.write(**key, kind="result", steps=2000, seconds=2 * each, accuracy=best, ms_per_step=each)

    return write


def variance(records: Records) -> None:
    edges = [n / 40 for n in range(41)]
    counts = [round(2000 * math.exp(-(((n - 18) / 5) ** 2))) for n in range(40)]
    records.write(stage="variance", kind="result", edges=edges, counts=counts, mean=0.46, median=0.455, classes=CLASSES,
                  examples=300_000, between=0.8, raw_edges=edges, raw_counts=counts[::-1])  # fmt: skip


STAGES: dict[str, Callable[[Records], None]] = {
    "data": data,
    "warm_up": warm_up,
    "base": base,
    "features": features,
    "softmax_layer": softmax_layer,
    "layer": layer,
    "heads": trained("heads", 120),
    "end_to_end": trained("end_to_end", 300),
    "variance": variance,
}


def write_records(path: Path, stages: tuple[str, ...] = tuple(STAGES), quick: bool = False) -> Records:
    """Write a card and the records of these stages, and return them."""
    records = Records(path)
    options = {"quick": quick, "heads": [], "data": None, "seed": 0}
    records.write_card("imagenet21k", seed=0, threads=2, options=options)
    for number, stage in enumerate(stages):
        STAGES[stage](records)
        records.write(kind="stage_end", stage=stage, seconds=600.0 + 100 * number)
    return records
