"""What the records of this experiment say: which head is meant, the newest of each kind, the best at an accuracy."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from experiments.frame.records import Record, Records

Series = tuple[str, int | None, str | None]  # head, candidates, rule: how a candidate head picks them
Cells = dict[tuple[Any, ...], Record]  # (pipeline, batch, candidates) → record
Content = TypeVar("Content")
PIPELINES = ("default", "paper")
ORDER = ("full", "hierarchical", "sampled", "wta", "candidate")  # of heads on the page: the exact one first, ours last
RULES = {  # of a candidate head, in the order they are shown
    "own": "own candidates",
    "looked up": "looked up for every example",
    "default": "as it is by default",
}


# Heads


def series_of(record: Record) -> Series:
    """Return which head a record is about."""
    return record["head"], record.get("candidates"), record.get("rule")


def name_of(series: Series) -> str:
    """Return how a head is called on the page."""
    head, candidates, rule = series
    count = f", K = {candidates:,}" if candidates else ""
    if head == "candidate":
        return f"candidate softmax, {RULES[rule]}{count}" if rule else f"candidate softmax{count}"
    return f"WTA softmax (the paper's layer){count}" if head == "wta" else f"{head} softmax"


def in_order(grouped: dict[Series, Content]) -> dict[Series, Content]:
    """Return heads in the order they are shown."""
    rules = [None, *RULES]

    def place(series: Series) -> tuple[int, int, int]:
        head, candidates, rule = series
        return ORDER.index(head), rules.index(rule), candidates or 0

    return dict(sorted(grouped.items(), key=lambda item: place(item[0])))


def curves(records: Records, stage: str) -> dict[Series, list[Record]]:
    """Return the evaluations of every trained head."""
    grouped: dict[Series, list[Record]] = {}
    for record in records.select(stage=stage, kind="evaluation"):
        grouped.setdefault(series_of(record), []).append(record)
    return {series: by_step(found) for series, found in in_order(grouped).items()}


def head_results(records: Records, stage: str) -> dict[Series, Record]:
    """Return the result of every trained head."""
    return in_order({series_of(record): record for record in records.select(stage=stage, kind="result")})


def by_step(found: Iterable[Record]) -> list[Record]:
    """Return evaluations by step; a repeated step counts as it was measured last."""
    return sorted(newest(found, "step").values(), key=lambda record: int(record["step"]))


def newest(found: Iterable[Record], *names: str) -> dict[tuple[Any, ...], Record]:
    """Return the last record for each combination of these fields."""
    return {tuple(record.get(name) for name in names): record for record in found}


# The layer alone


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


def by_candidates(cells: Cells, pipeline: str, batch: int) -> list[Record]:
    """Return one pipeline's cells at a batch size, fewest candidates first."""
    found = [record for (name, size, _), record in cells.items() if (name, size) == (pipeline, batch)]
    return sorted(found, key=lambda record: record["candidates"])


def cheapest(found: Iterable[Record], share: float, cost: Callable[[Record], float]) -> Record | None:
    """Return the cheapest record that keeps at least this share of the exact accuracy."""
    return min((record for record in found if kept(record) >= share), key=cost, default=None)


def fewest(cells: Cells, pipeline: str, batch: int, share: float) -> Record | None:
    """Return the cell with the fewest candidates that keep this share; times that differ by chance decide nothing."""
    return cheapest(by_candidates(cells, pipeline, batch), share, lambda record: float(record["candidates"]))


def batches(cells: Cells) -> list[int]:
    """Return the batch sizes that were measured."""
    return sorted({batch for _, batch, _ in cells})
