"""Markdown tables of the heads, made from the records, and the curves that tables and figures share."""

from statistics import mean

Curve = list[tuple[float, float]]

STEP_HEADS = {
    "shared": "manyclass, shared candidates",
    "shared, momentum at once": "… momentum at once (default of `RowSGD`)",
    "shared, plain fused": "… plain SGD, fused",
    "own": "manyclass, own candidates, no tail",
    "own, plain fused": "… plain SGD, fused",
    "hierarchical": "hierarchical softmax",
    "sampled": "sampled softmax, 512 samples",
    "full softmax": "full softmax",
}


def newest(records: list[dict], *fields: str) -> dict[tuple, dict]:
    """Return the last record of every combination of fields, in the order of first appearance."""
    return {tuple(record[field] for field in fields): record for record in records}


def table(header: list[str], rows: list[list[str]], left: int = 1) -> str:
    """Return a markdown table; the first `left` columns are text, the others numbers."""
    lines = [header, ["---"] * left + ["---:"] * (len(header) - left), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def steps_table(records: list[dict]) -> str:
    """Return milliseconds of a training step for every head and number of classes, with the growth."""
    found = newest(records, "head", "classes")
    sizes = sorted({classes for _, classes in found})
    rows = []
    for head, label in STEP_HEADS.items():
        times = [found[head, size]["step_ms"] if (head, size) in found else None for size in sizes]
        if any(times):
            ends = [found.get((head, size)) for size in (100_000, 10_000_000)]
            growth = f"{ends[1]['step_ms'] / ends[0]['step_ms']:.1f}×" if all(ends) else "–"  # type: ignore[index]
            rows.append([label, *(_number(time) for time in times), growth])
    return table(["ms per step", *(f"{size:,}" for size in sizes), "100,000 → 10 million"], rows)


def ratios_table(records: list[dict], classes: int) -> str:
    """Return, at one size, the parts of a step and its ratio to full and to hierarchical softmax."""
    found = {head: record for (head, size), record in newest(records, "head", "classes").items() if size == classes}
    full, tree = found.get("full softmax"), found.get("hierarchical")
    rows = [
        [
            label,
            *(_number(found[head][part]) for part in ("forward_ms", "backward_ms", "update_ms", "step_ms")),
            f"{full['step_ms'] / found[head]['step_ms']:,.0f}×" if full else "–",
            f"{found[head]['step_ms'] / tree['step_ms']:,.1f}×" if tree else "–",
            f"{found[head]['distinct_classes']:,.0f}" if found[head]["distinct_classes"] else "–",
            f"{found[head]['peak_bytes_per_class']:,.0f}",
        ]
        for head, label in STEP_HEADS.items()
        if head in found
    ]
    parts = ["forward", "backward", "update", "step, ms"]
    others = ["faster than full", "of the hierarchical step", "distinct classes", "peak bytes per class"]
    text = table([f"{classes:,} classes", *parts, *others], rows)
    floor = next(iter(found.values()), {}).get("row_floor")
    return text + (
        f"\nRows alone, (K + 1) / log2 N, would make it {floor:.0f}× the hierarchical step.\n" if floor else ""
    )


def mean_curve(curves: list[Curve]) -> Curve:
    """Return the mean of curves that were read at the same places."""
    return [(points[0][0], mean(value for _, value in points)) for points in zip(*curves, strict=False)]


def steps_to(curve: Curve, level: float) -> float | None:
    """Return where a curve first reaches a level, straight lines between its points; None if it never does."""
    before = (0.0, 0.0)
    for place, value in curve:
        if value >= level:
            return before[0] + (place - before[0]) * (level - before[1]) / max(value - before[1], 1e-12)
        before = (place, value)
    return None


def learning_groups(records: list[dict]) -> dict[tuple[str, str], dict[str, list[Curve]]]:
    """Return (task, trunk) → head → the curves of its seeds."""
    groups: dict[tuple[str, str], dict[str, list[Curve]]] = {}
    for (task, trunk, head, _), record in newest(records, "task", "trunk", "head", "seed").items():
        groups.setdefault((task, trunk), {}).setdefault(head, []).append([tuple(point) for point in record["curve"]])
    return groups


def learning_table(records: list[dict]) -> str:
    """Return final accuracy, its share of full softmax's, and steps to 90% of full softmax's final accuracy."""
    rows = []
    for (task, trunk), heads in learning_groups(records).items():
        full = mean_curve(heads.get("full softmax", []))
        for head, curves in heads.items():
            line, ends = mean_curve(curves), [curve[-1][1] for curve in curves]
            reached = steps_to(line, 0.9 * full[-1][1]) if full else None
            share = f"{mean(ends) / full[-1][1]:.1%}" if full else "–"
            spread = f"{min(ends):.3f} to {max(ends):.3f}"
            steps = "not reached" if reached is None else f"{reached:,.0f}"
            rows.append([task, trunk, head, f"{mean(ends):.3f}", spread, share, steps])
    final = ["final accuracy", f"of {_seeds(records)} seeds", "of full softmax's", "steps to 90% of full's"]
    return table(["task", "trunk", "head", *final], rows, left=3)


def refresh_table(records: list[dict]) -> str:
    """Return recall and accuracy for every way of refreshing."""
    found = newest(records, "head", "trunk")
    kinds = list(dict.fromkeys(trunk for _, trunk in found))
    rows = []
    # "touched first" before the rounds, and those by their length
    for head in sorted(dict.fromkeys(head for head, _ in found), key=lambda head: (head[0] == "r", len(head), head)):
        cells = []
        for kind in kinds:
            record = found.get((head, kind))
            cells += [f"{record['mean_recall']:.3f}", f"{record['curve'][-1][1]:.3f}"] if record else ["–", "–"]
        rows.append([head, *cells])
    return table(["refresh", *(f"{kind}: {what}" for kind in kinds for what in ("recall@10", "accuracy"))], rows)


def tail_table(records: list[dict]) -> str:
    """Return what the number of samples does to normaliser, loss and gradient."""
    rows = [
        [
            f"{samples:,}",
            f"{record['normalizer_ratio']:.4f} ± {record['normalizer_error']:.4f}",
            f"{record['loss_bias']:+.4f}",
            f"{record['loss_spread']:.3f}",
            f"{record['gradient_bias']:.2%}",
        ]
        for (samples,), record in sorted(newest(records, "samples").items())
    ]
    normaliser = "estimated normaliser / exact"
    return table(
        ["samples", normaliser, "bias of the loss", "spread of one draw", "bias of the gradient"], rows, left=0
    )


def demo_table(records: list[dict]) -> str:
    """Return accuracy, steps and milliseconds per step after the same seconds."""
    heads: dict[str, list[dict]] = {}
    for (head, _), record in newest(records, "head", "seed").items():
        heads.setdefault(head, []).append(record)
    rows = []
    for head, runs in heads.items():
        ends = [run["curve"][-1][2] for run in runs]
        steps, seconds = mean(run["steps"] for run in runs), mean(run["seconds"] for run in runs)
        spread = f"{min(ends):.1%} to {max(ends):.1%}"
        pipeline = runs[0]["pipeline"] or "–"
        rows.append([head, pipeline, f"{steps:,.0f}", _number(1000 * seconds / steps), f"{mean(ends):.1%}", spread])
    last = ["steps", "ms per step", "accuracy", f"of {_seeds(records)} seeds"]
    return table(["head", "retrieval", *last], rows, left=2)


def _seeds(records: list[dict]) -> int:
    return len({record["seed"] for record in records})


def _number(value: float | None) -> str:
    return (
        "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
    )
