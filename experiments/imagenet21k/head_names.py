"""What tells trained heads apart, in records and in words, and how they learned."""

from collections.abc import Iterable
from typing import Any

from experiments.frame.records import Record, Records

Series = tuple[str, int | None, str | None]  # head, candidates, rule
RULES = {  # how a WTA head picks its candidates, in the order they are shown
    "paper": "the paper's literal rule",
    "own": "own candidates",
    "shared": "shared candidates",
}


def name_of(series: Series) -> str:
    """Return how a head is called on the page."""
    head, candidates, rule = series
    if head != "wta":
        return f"{head} softmax"
    return f"WTA, {RULES[rule or 'shared']}" + (f", K = {candidates:,}" if candidates else "")


def fields_of(series: Series) -> dict[str, Any]:
    """Return the fields that say of which head a record is."""
    return dict(zip(("head", "candidates", "rule"), series, strict=True))


def record_curve(records: Records, stage: str, series: Series, evaluations: Iterable[Record], batch: int) -> None:
    """Write a point for every evaluation of a head, and where it ended as its result."""
    key = {"stage": stage, **fields_of(series)}
    points = [{name: point[name] for name in ("step", "seconds", "accuracy")} for point in evaluations]
    for point in points:
        records.write(kind="evaluation", **key, **point)
    last = points[-1]
    records.write(
        kind="result", **key, steps=last["step"], seconds=last["seconds"], accuracy=last["accuracy"], batch=batch,
        ms_per_step=1000 * last["seconds"] / last["step"],
    )  # fmt: skip
