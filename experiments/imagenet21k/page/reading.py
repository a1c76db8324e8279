"""What the records of this experiment say: the newest of each kind, and the best that reaches an accuracy."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from experiments.frame.records import Record, Records
from experiments.imagenet21k.head_names import RULES, Series

Cells = dict[tuple[Any, ...], Record]  # (pipeline, batch, candidates) → record
PIPELINES = ("default", "paper")
Content = TypeVar("Content")


def newest(found: Iterable[Record], *names: str) -> dict[tuple[Any, ...], Record]:
    """Return the last record for each combination of these fields."""
    return {tuple(record.get(name) for name in names): record for record in found}


def layer_cells(records: Records) -> Cells:
    """Return every measured cell of the stage `layer`, beside the quickest way to its exact product."""
    measured = [record for record in records.select(stage="layer") if "ours_ms" in record]
    products = {record["batch"]: float(record["exact_ms"]) for record in measured}
    cells = newest(measured, "pipeline", "batch", "candidates")
    return {key: cell | _beside(cell, _exact_ms(products, cell["batch"])) for key, cell in cells.items()}


def _exact_ms(products: dict[int, float], batch: int) -> float:
    """Return the ms of an exact batch: as it was measured, or as several smaller batches, or as part of a larger."""
    return min(ms * -(-batch // size) for size, ms in products.items())


def _beside(cell: Record, exact_ms: float) -> Record:
    return {"exact_ms": exact_ms, "speedup": exact_ms / cell["ours_ms"]}


def kept(record: Record) -> float:
    """Return the share of the exact accuracy; none where the exact layer is never right."""
    return float(record["accuracy_kept"] or 0.0)


def frontier(cells: Cells, pipeline: str, batch: int) -> list[Record]:
    """Return one pipeline's cells at a batch size, by candidates."""
    found = [record for (name, size, _), record in cells.items() if (name, size) == (pipeline, batch)]
    return sorted(found, key=lambda record: record["candidates"])


def fastest(found: Iterable[Record], share: float, cost: Callable[[Record], float]) -> Record | None:
    """Return the cheapest record that keeps at least this share of the exact accuracy."""
    return min((record for record in found if kept(record) >= share), key=cost, default=None)


def fewest(cells: Cells, pipeline: str, batch: int, share: float) -> Record | None:
    """Return the cell with the fewest candidates that keep this share; times that differ by chance decide nothing."""
    return fastest(frontier(cells, pipeline, batch), share, lambda record: float(record["candidates"]))


def batches(cells: Cells) -> list[int]:
    """Return the batch sizes that were measured."""
    return sorted({batch for _, batch, _ in cells})


def peers(records: Records) -> dict[str, list[Record]]:
    """Return the measured settings of every peer, peers in the order they were measured."""
    measured = [record for record in records.select(stage="peers") if "us_batch1" in record]
    grouped: dict[str, list[Record]] = {}
    for record in newest(({**record, "key": str(record["setting"])} for record in measured), "peer", "key").values():
        grouped.setdefault(record["peer"], []).append(record)
    return grouped


def by_step(found: Iterable[Record]) -> list[Record]:
    """Return evaluations by step; a repeated step counts as it was measured last."""
    return sorted(newest(found, "step").values(), key=lambda record: int(record["step"]))


def curves(records: Records, stage: str) -> dict[Series, list[Record]]:
    """Return the evaluations of every trained head."""
    grouped: dict[Series, list[Record]] = {}
    for record in records.select(stage=stage, kind="evaluation"):
        grouped.setdefault(series_of(record), []).append(record)
    return {series: by_step(found) for series, found in sorted_series(grouped)}


def results(records: Records, stage: str) -> dict[Series, Record]:
    """Return the result of every trained head."""
    found = {series_of(record): record for record in records.select(stage=stage, kind="result")}
    return dict(sorted_series(found))


def series_of(record: Record) -> Series:
    """Return which head a record of training is about."""
    return record["head"], record.get("candidates"), record.get("rule")


def sorted_series(grouped: dict[Series, Content]) -> list[tuple[Series, Content]]:
    """Return heads in the order they are shown: the exact one first, ours last."""
    heads, rules = ("full", "hierarchical", "sampled", "wta"), ("", *RULES)
    return sorted(
        grouped.items(), key=lambda item: (heads.index(item[0][0]), rules.index(item[0][2] or ""), item[0][1] or 0)
    )
