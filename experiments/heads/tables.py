"""The tables of the experiment, from the records: the same for its page and for the documents; and shared curves."""

from statistics import mean

from experiments.frame.page import Table
from experiments.frame.records import Record, Records
from experiments.frame.wording import ABSENT, number, percent, times, whole
from experiments.heads.sizes import LEARNERS

Curve = list[tuple[float, float]]
NAMES = {
    "full": "full softmax",
    "candidate": "candidate softmax (manyclass)",
    "own candidates": "candidate softmax, own candidates",
    "wta": "WTA softmax (the paper's layer)",
    "hierarchical": "hierarchical softmax",
    "sampled": "sampled softmax, 512",
    "sampled 2048": "sampled softmax, 2,048",
    "sampled by frequency": "sampled by frequency, 512",
    "sampled 2048 by frequency": "sampled by frequency, 2,048",
    "in-batch": "in-batch negatives, corrected",
}
STEP_NAMES = {
    "candidate": "candidate softmax (manyclass)",
    "candidate, 2048 drawn": "… 2,048 random classes",
    "candidate, 32 mined": "… candidates looked up for 32 examples",
    "candidate, momentum at once": "… momentum at once (default of RowSGD)",
    "candidate, plain fused": "… plain SGD, fused",
    "own candidates": "candidate softmax, own candidates, no tail",
    "own candidates, plain fused": "… plain SGD, fused",
    "hierarchical": "hierarchical softmax",
    "sampled": "sampled softmax, 512 samples",
    "sampled 2048": "… 2,048 samples",
    "full": "full softmax",
}
MOMENTUM_STEPS = (500, 1000, 1500, 3000)


def newest(records: Records, stage: str, *fields: str) -> dict[tuple[object, ...], Record]:
    """Return the last result of a stage for every combination of fields, in the order of first appearance."""
    return {tuple(found[field] for field in fields): found for found in records.select(stage=stage, kind="result")}


def steps_table(records: Records) -> Table:
    """Return milliseconds of a training step for every head and number of classes, with the growth."""
    found = newest(records, "steps", "head", "classes")
    sizes = sorted({record["classes"] for record in found.values()})
    first, last = sizes[1 if len(sizes) > 2 else 0], sizes[-1]  # the smallest of many fits the cache
    rows = []
    for head, label in STEP_NAMES.items():
        spent = {size: found[head, size]["step_ms"] for size in sizes if (head, size) in found}
        if spent:
            growth = times(spent[last] / spent[first]) if {first, last} <= spent.keys() else ABSENT
            rows.append([label, *(number(spent.get(size)) for size in sizes), growth])
    columns = ["ms per step", *map(whole, sizes), f"{whole(first)} → {whole(last)}"]
    return Table(columns, rows, "Milliseconds of a step by the number of classes.")


def parts_table(records: Records, stage: str, classes: int) -> Table:
    """Return, at one size, the parts of a step and its ratio to full and to hierarchical softmax."""
    found = {
        record["head"]: record
        for record in newest(records, stage, "head", "classes").values()
        if record["classes"] == classes
    }
    full, tree = found.get("full"), found.get("hierarchical")
    rows = [
        [
            label,
            *(number(record[part]) for part in ("forward_ms", "backward_ms")),
            "in backward" if "fused" in head else number(record["update_ms"]),
            number(record["step_ms"]),
            times(record["step_ms"] / bare) if (bare := record.get("bare_products_ms")) else ABSENT,
            times(full["step_ms"] / record["step_ms"]) if full else ABSENT,
            number(record.get("with_trunk_ms")),
            times(record["step_ms"] / tree["step_ms"]) if tree else ABSENT,
            whole(record["distinct_classes"] or None),
            whole(record["peak_bytes_per_class"]),
        ]
        for head, label in STEP_NAMES.items()
        if (record := found.get(head))
    ]
    columns = [f"{whole(classes)} classes", "forward", "backward", "update", "step, ms", "× three bare products",
               "faster than full", "with a small network below, ms", "× the hierarchical step", "distinct classes",
               "peak bytes per class"]  # fmt: skip
    caption = "Milliseconds by part; peak memory is that of the whole process, Python and torch included."
    return Table(columns, rows, caption)


def middle_size(records: Records) -> int:
    """Return the number of classes at which the parts of a step are shown: the largest with a full softmax."""
    sizes: list[int] = [found["classes"] for found in records.select(stage="steps", kind="result", head="full")]
    every: list[int] = [found["classes"] for found in records.select(stage="steps", kind="result")]
    return max(sizes or every)


def learning_groups(records: Records) -> dict[tuple[str, str], dict[str, list[Curve]]]:
    """Return (task, trunk) → head → the curves of its seeds; in one order, as two runs at a time end in any."""
    groups: dict[tuple[str, str], dict[str, list[Curve]]] = {}
    runs = newest(records, "learning", "task", "trunk", "head", "seed").values()
    for found in sorted(runs, key=lambda run: (*_place(run), LEARNERS.index(run["head"]), run["seed"])):
        heads = groups.setdefault((found["task"], found["trunk"]), {})
        heads.setdefault(found["head"], []).append([(step, share) for step, share in found["curve"]])
    return groups


def mean_curve(curves: list[Curve]) -> Curve:
    """Return the mean of curves that were read at the same places."""
    return [(points[0][0], mean(value for _, value in points)) for points in zip(*curves, strict=True)]


def steps_to(curve: Curve, level: float) -> float | None:
    """Return where a curve first reaches a level, straight lines between its points; None if it never does."""
    before = (0.0, 0.0)
    for place, value in curve:
        if value >= level:
            return before[0] + (place - before[0]) * (level - before[1]) / max(value - before[1], 1e-12)
        before = (place, value)
    return None


def _place(run: Record) -> tuple[str, bool]:
    """Return what task and trunk are sorted by: the plain one first."""
    return run["task"], run["trunk"] != "plain"


def learned_shares(records: Records) -> list[float]:
    """Return the candidate head's share of full softmax's final accuracy for every task and trunk."""
    ends = [
        {head: mean_curve(curves)[-1][1] for head, curves in heads.items()}
        for heads in learning_groups(records).values()
    ]
    return [end["candidate"] / end["full"] for end in ends if end.get("full") and "candidate" in end]


def learning_table(records: Records) -> Table:
    """Return final accuracy, its share of full softmax's, and steps to 90% of full softmax's final accuracy."""
    rows = []
    for (task, trunk), heads in learning_groups(records).items():
        full = mean_curve(heads["full"]) if "full" in heads else None
        for head, curves in heads.items():
            ends = [curve[-1][1] for curve in curves]
            cells = [ABSENT, ABSENT]
            if full and full[-1][1]:
                reached = steps_to(mean_curve(curves), 0.9 * full[-1][1])
                cells = [percent(mean(ends) / full[-1][1]), "not reached" if reached is None else whole(reached)]
            rows.append([task, trunk, NAMES[head], percent(mean(ends)), least_to_most(ends), *cells])
    columns = ["task", "trunk", "head", "final accuracy", of_seeds(records, "learning"),
               "of full softmax's", "steps to 90% of full's"]  # fmt: skip
    return Table(columns, rows, "Accuracy on new examples, judged by the exact best class.", "lll" + "r" * 4)


def least_to_most(values: list[float]) -> str:
    """Return the range of some shares; a dash where there is but one."""
    return f"{percent(min(values))} to {percent(max(values))}" if len(values) > 1 else "one seed"


def of_seeds(records: Records, stage: str) -> str:
    """Return the head of a column of ranges."""
    seeds = len({found["seed"] for found in records.select(stage=stage, kind="result")})
    return f"of {seeds} seeds" if seeds > 1 else "of all seeds"


def momentum_table(records: Records) -> Table:
    """Return accuracy after so many steps: lazy momentum, momentum at once, and full softmax with torch's."""
    lazy = newest(records, "momentum", "task", "trunk", "seed")
    usual = newest(records, "learning", "task", "trunk", "seed", "head")
    rows: dict[str, list[str]] = {"lazy": [], "at once": [], "full softmax, torch's SGD": []}
    heads: list[str] = []
    for task, trunk, seed in sorted(lazy, key=lambda key: (*_place(lazy[key]), key[2])):
        compared = [lazy[task, trunk, seed], *(usual.get((task, trunk, seed, head)) for head in ("candidate", "full"))]
        steps = [step for step, _ in lazy[task, trunk, seed]["curve"]]
        shown = [step for step in MOMENTUM_STEPS if step in steps] or steps[-1:]
        heads += [f"{trunk}: {whole(step)}" for step in shown]
        for row, found in zip(rows.values(), compared, strict=True):
            reached = dict(map(tuple, found["curve"])) if found else {}
            row += [percent(reached.get(step)) for step in shown]
    return Table(["steps", *heads], [[name, *cells] for name, cells in rows.items()], "Accuracy after so many steps.")


def refresh_table(records: Records) -> Table:
    """Return recall and accuracy for every way of refreshing."""
    found = newest(records, "refresh", "head").values()
    # "touched first" before the rounds, and those by their length
    ordered = sorted(found, key=lambda run: (run["head"][0] == "r", len(run["head"]), run["head"]))
    rows = [[run["head"], percent(run["mean_recall"]), percent(run["curve"][-1][1])] for run in ordered]
    return Table(["refresh", "mean recall@10", "final accuracy"], rows, "Recall is the mean of what the meter read.")


def tail_table(records: Records) -> Table:
    """Return what the number of samples does to normaliser, loss and gradient."""
    found = sorted(newest(records, "tail", "samples").values(), key=lambda record: int(record["samples"]))
    rows = [
        [
            whole(record["samples"]),
            f"{record['normalizer_ratio']:.4f} ± {record['normalizer_error']:.4f}",
            f"{record['loss_bias']:+.4f}",
            f"{record['loss_spread']:.3f}",
            f"{record['gradient_bias']:.2%}",
        ]
        for record in found
    ]
    columns = ["samples", "estimated normaliser / exact", "bias of the loss", "spread of one draw",
               "bias of the gradient"]  # fmt: skip
    return Table(columns, rows, "Means over the draws, against all classes.", "r" * 5)


def serving_table(records: Records) -> Table:
    """Return what serving through a head costs, as far as it is measured."""
    found = {what: record for (what,), record in newest(records, "serving", "what").items()}
    rows: list[list[str]] = []
    if query := found.get("query"):
        rows += [
            ["one query to the index", f"{number(query['index_us'])} µs", ABSENT],
            ["… through `head.topk`", f"{number(query['head_us'])} µs", over(query["head_us"] / query["index_us"])],
            ["… of it for noticing changed weights", f"{number(query['noticing_us'])} µs", ABSENT],
        ]
    if threads := found.get("threads"):
        for name, label in (("index", "queries per second, two threads, index"), ("head", "… head")):
            one, two = threads[f"{name}_1_per_second"], threads[f"{name}_2_per_second"]
            rows.append([label, whole(two), f"{over(two / one)} one thread"])
    if step := found.get("step"):
        share = percent(step["noticing_ms"] / step["step_ms"])
        rows.append(["a training step", f"{number(step['step_ms'])} ms", f"{share} for noticing changed weights"])
    if change := found.get("change"):
        apart = f"first {number(change['first_add_ms'])} ms, next ones up to {number(change['next_adds_most_ms'])} ms"
        size = whole(change["changed_classes"])
        rows += [
            [f"one class added to {size}, and a query", f"{number(change['add_ms'])} ms", apart],
            [
                "… removed, and a query",
                f"{number(change['remove_ms'])} ms",
                f"first {number(change['first_remove_ms'])} ms",
            ],
        ]
    return Table(["", "median", ""], rows, "Medians; of throughput the best of three rounds.", "lrl")


def over(ratio: float) -> str:
    """Return a ratio that is near one with two digits behind the point."""
    return f"{ratio:.2f}×"
