"""What the records of this experiment say: output layers in order, curves, the series over motion."""

from itertools import accumulate, pairwise, permutations
from statistics import mean
from typing import NamedTuple

from experiments.frame.records import Record, Records

NAMES = {  # output layers in the order they are shown: the exact one first, ours last
    "full": "full softmax",
    "hierarchical": "hierarchical softmax",
    "sampled": "sampled softmax",
    "wta": "WTA softmax (the paper's layer)",
    "mined": "candidate softmax, candidates looked up",
    "candidate": "candidate softmax (manyclass)",
}
FEWEST_MOTIONS = 5  # for a verdict
PARTS = {  # of a step, and their colours
    "frames_ms": ("waiting for frames", "#c9ced4"),
    "trunk_ms": ("trunk", "#5b6670"),
    "find_ms": ("finding candidates", "#2c7fb8"),
    "logits_ms": ("logits and gradients", "#e0a458"),
    "update_ms": ("update of rows", "#c8553d"),
    "refresh_ms": ("refresh of the index", "#7a9e3b"),
}


def by_head(records: Records, stage: str) -> dict[str, Record]:
    """Return the newest result of each output layer, in order."""
    found = {head: records.last(stage=stage, kind="result", head=head) for head in NAMES}
    return {head: record for head, record in found.items() if record}


def curves(records: Records, stage: str) -> dict[str, list[Record]]:
    """Return the evaluations of each output layer by step; a repeated step counts as it was measured last."""
    found = {}
    for head in NAMES:
        newest = {record["step"]: record for record in records.select(stage=stage, kind="evaluation", head=head)}
        if newest:
            found[head] = [newest[step] for step in sorted(newest)]
    return found


def accuracy_at(curve: list[Record], field: str, place: float) -> float:
    """Return a curve's accuracy at a number of steps or seconds: a straight line between points, 0 at the start."""
    points = [(0.0, 0.0), *((float(point[field]), float(point["accuracy"])) for point in curve)]
    for (x, y), (next_x, next_y) in pairwise(points):
        if place <= next_x:
            return y + (next_y - y) * (place - x) / (next_x - x) if next_x > x else next_y
    return points[-1][1]


def best_so_far(curve: list[Record]) -> list[Record]:
    """Return the points of a curve that are above all before them."""
    before = accumulate((point["accuracy"] for point in curve), max, initial=-1.0)
    return [point for point, best in zip(curve, before, strict=False) if point["accuracy"] > best]


def share_of(ours: Record, exact: Record) -> float | None:
    """Return how much of an exact method's accuracy we have; None where it has none."""
    return float(ours["accuracy"] / exact["accuracy"]) if exact["accuracy"] else None


class Motion(NamedTuple):
    """What was found at one camera motion, by output layer; means over the seeds.

    accuracy: on second halves, at the end. shares: of full softmax's accuracy on second halves, over all evaluations
    on the way. seen: of full softmax's accuracy on frames that were trained on, at the end.
    """

    motion: float
    variance: float
    accuracy: dict[str, float]
    shares: dict[str, float]
    seen: dict[str, float]


def motions(records: Records) -> list[Motion]:
    """Return the series over motion, as far as it has full softmax to compare with."""
    found = []
    for variance in records.select(stage="motion", kind="variance"):
        runs = [run for run in records.select(stage="motion", kind="result") if run["motion"] == variance["motion"]]
        ends, way, seen = (_means(runs, field) for field in ("accuracy", "on_the_way", "seen"))
        if way.get("full"):
            found.append(Motion(variance["motion"], variance["mean"], ends, _of_full(way), _of_full(seen)))
    return sorted(found, key=lambda one: one.motion)


def _means(runs: list[Record], field: str) -> dict[str, float]:
    heads = {run["head"] for run in runs}
    return {head: mean(run[field] for run in runs if run["head"] == head) for head in heads}


def _of_full(values: dict[str, float]) -> dict[str, float]:
    full = values.get("full") or float("nan")
    return {head: value / full for head, value in values.items() if head != "full"}


def rank_correlation(x: list[float], y: list[float]) -> float | None:
    """Return Spearman's, from -1 to 1; None for fewer than three points or where one side does not vary."""
    if len(x) < 3 or len(set(x)) < 2 or len(set(y)) < 2:
        return None

    def ranks(values: list[float]) -> list[float]:
        ordered = sorted(values)
        return [mean(place for place, other in enumerate(ordered) if other == value) for value in values]

    a, b = ranks(x), ranks(y)
    middle = (len(x) - 1) / 2
    products = sum((p - middle) * (q - middle) for p, q in zip(a, b, strict=True))
    scale = sum((p - middle) ** 2 for p in a) * sum((q - middle) ** 2 for q in b)
    return float(products / scale**0.5)


def chance_of(x: list[float], y: list[float]) -> float:
    """Return in which share of all orders of y the rank correlation is as strong, in whichever direction."""
    found = abs(rank_correlation(x, y) or 0.0)
    orders = [abs(rank_correlation(x, list(order)) or 0.0) for order in permutations(y)]
    return mean(other >= found - 1e-9 for other in orders)


def verdict_on_motion(series: list[Motion], head: str = "wta") -> str:
    """Return what the series says of the paper's explanation, in a sentence."""
    known = [one for one in series if head in one.shares]
    variances, shares = [one.variance for one in known], [one.shares[head] for one in known]
    found = rank_correlation(variances, shares)
    if found is None or len(known) < FEWEST_MOTIONS:
        return "Too few motions for a verdict."
    told = (
        f"Rank correlation of in-class variance and share of full softmax: {found:+.2f} over {len(known)} motions, as "
        f"strong in {chance_of(variances, shares):.0%} of all orders; the shares go from {min(shares):.0%} to "
        f"{max(shares):.0%}. "
    )
    if found <= -0.5:
        return told + "The less the frames of a video differ, the better the paper's layer keeps up: as it supposes."
    if found >= 0.5:
        return told + "The paper's layer keeps up better where frames differ more: its explanation is refuted here."
    return told + "The variance does not decide how well the paper's layer keeps up: its explanation is not borne out."


def quickest_at(records: Records, share: float) -> Record | None:
    """Return the quickest answer to one query that keeps this share of the exact accuracy."""
    found = [one for one in records.select(stage="latency", kind="result")
             if one["exact_accuracy"] and one["accuracy"] >= share * one["exact_accuracy"]]  # fmt: skip
    return min(found, key=lambda one: float(one["us"]), default=None)
