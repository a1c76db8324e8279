"""The sections of the page on what is trained: the network, output layers on its features, and both together."""

from collections.abc import Callable
from pathlib import Path

from experiments.frame.page import Figure, Section, Table, Text
from experiments.frame.records import Record, Records
from experiments.frame.wording import duration, number, percent, times, whole
from experiments.imagenet21k import figures, results
from experiments.imagenet21k.results import Series, name_of, series_of

SOURCES = {
    "glyphs": "Han characters drawn from Debian's CJK fonts: a class is a character, an example one font's glyph under "
    "random affine maps, blur, noise and contrast. Whole fonts are held out for the test; one of them, LXGW WenKai, "
    "was drawn after Klee One, which is among those for training, so its accuracy is told apart.",
    "strokes": "Characters made of random strokes, drawn by the experiment itself: no fonts are needed.",
    "folder": "Images from a folder, one sub-folder for each class.",
}


def task_section(records: Records, folder: Path) -> Section:
    """Return what is classified by which network, and how well it does exactly."""
    found = {stage: records.last(stage=stage, kind="result") for stage in FACTS}
    data = found["data"]
    text = SOURCES.get(data["source"], f"Images of source `{data['source']}`.") if data else ""
    rows = [row for stage, result in found.items() if result for row in FACTS[stage](result)]
    parts: list[Table | Figure | Text] = [Table(["", ""], rows, "", "ll")] if rows else []
    points = results.by_step(records.select(stage="base", kind="evaluation"))
    if points:
        parts.append(figures.draw_base(points, folder))
    missing = ", ".join(f"`{stage}`" for stage, result in found.items() if not result)
    if missing:
        parts.append(Text(f"Not run yet: stage {missing}."))
    return Section("The task", text, parts, "Task")


def data_facts(data: Record) -> list[list[str]]:
    """Return how much there is of what."""
    rows = [
        ["classes", whole(data["classes"])],
        ["training images", whole(data["train_images"])],
        ["test images", whole(data["test_images"])],
        ["image", f"{data['side']}×{data['side']}, one channel"],
    ]
    if data.get("train_styles"):
        rows.append(
            ["styles (fonts, pens)", f"{len(data['train_styles'])} to train, {len(data['test_styles'])} held out"]
        )
    return rows


def warm_up_facts(warm: Record) -> list[list[str]]:
    """Return what the network learned before it met all classes."""
    trained = f"{whole(warm['classes'])} of the classes, {whole(warm['steps'])} steps, {duration(warm['seconds'])}"
    return [["first trained on", trained], ["its held-out accuracy on those", percent(warm["accuracy"])]]


def base_facts(base: Record) -> list[list[str]]:
    """Return the size of the network and how it was trained."""
    trained = f"{name_of(series_of(base))}, {whole(base['steps'])} steps, {duration(base['seconds'])}"
    return [
        ["multiply-adds of a forward pass, without the last layer", f"{base['multiply_adds'] / 1e6:,.1f} million"],
        ["parameters, without the last layer", f"{base['parameters'] / 1e6:,.1f} million"],
        ["features of the penultimate layer", whole(base["features"])],
        ["then on all, with", trained],
        ["its held-out accuracy", percent(base["accuracy"])],
    ]


def layer_facts(layer: Record) -> list[list[str]]:
    """Return how the exact layer was trained and how good it is."""
    styles = layer.get("by_style", {})
    return [
        [
            "exact softmax layer, on cached features",
            f"{whole(layer['steps'] - layer['exact_steps'])} steps with the approximate layer, then "
            f"{whole(layer['exact_steps'])} exact ones; {duration(layer['seconds'])}",
        ],
        ["accuracy of the exact layer, held out", percent(layer["accuracy"])],
        *([[f"… in the style {style}", percent(share)] for style, share in styles.items()] if len(styles) > 1 else []),
        ["accuracy of the exact layer, on training examples", percent(layer.get("train_accuracy"))],
    ]


FACTS: dict[str, Callable[[Record], list[list[str]]]] = {
    "data": data_facts,
    "warm_up": warm_up_facts,
    "base": base_facts,
    "features": lambda cached: [["zeros among the features", percent(cached["zero_share"])]],
    "softmax_layer": layer_facts,
}


# Training


def heads_section(records: Records, folder: Path, stage: str) -> Section:
    """Return how the heads learn: on cached features (stage heads) or with the whole network (end_to_end)."""
    alone = stage == "heads"
    title = "Training the last layer" if alone else "Training the whole network"
    short = "Training" if alone else "End to end"
    curves, trained = results.curves(records, stage), results.head_results(records, stage)
    if not curves and not trained:
        return Section(title, f"Not run yet: stage `{stage}`.", short=short)
    text = (
        "All heads learn from the same cached features of the base network, which itself stands still."
        if alone
        else "The network and its head are trained together, from the same warmed-up network, for about the same time; "
        "the rate falls over the steps that fit into it."
    )
    what = "The last layer alone" if alone else "The whole network"
    parts: list[Table | Figure | Text] = []
    if curves:
        parts.append(figures.draw_curves(curves, folder, stage, what))
    if trained:
        parts.append(results_table(trained))
        text += f"\n\n{step_times(trained)}"
    return Section(title, text.strip(), parts, short)


def results_table(trained: dict[Series, Record]) -> Table:
    """Return steps, time and accuracy of every head."""
    full = next((record["ms_per_step"] for series, record in trained.items() if series[0] == "full"), None)
    rows = [
        [name_of(series), whole(record["steps"]), duration(record["seconds"]), number(record["ms_per_step"]),
         times(full / record["ms_per_step"] if full else None), percent(record["accuracy"])]
        for series, record in trained.items()
    ]  # fmt: skip
    own = {number for number, series in enumerate(trained) if series[0] == "candidate"}
    columns = ["head", "steps", "time", "ms per step", "quicker than full softmax", "held-out accuracy"]
    return Table(columns, rows, "", "lrrrrr", own)


def step_times(trained: dict[Series, Record]) -> str:
    """Return how the best of our heads compares with full softmax, as the records have it."""
    full = next((record for series, record in trained.items() if series[0] == "full"), None)
    ours = [(series, record) for series, record in trained.items() if series[0] == "candidate"]
    if full is None or not ours:
        return ""
    series, best = max(ours, key=lambda item: item[1]["accuracy"] or 0.0)
    other = max((item for item in trained.items() if item[0][0] not in ("full", "candidate")), default=None,
                key=lambda item: item[1]["accuracy"] or 0.0)  # fmt: skip
    beside = f" The best of the others, {name_of(other[0])}, ends at {percent(other[1]['accuracy'])}." if other else ""
    return (
        f"The best of our heads ({name_of(series)}) ends at {percent(best['accuracy'])} after "
        f"{duration(best['seconds'])} with {number(best['ms_per_step'])} ms per step; full softmax ends at "
        f"{percent(full['accuracy'])} after {duration(full['seconds'])} with {number(full['ms_per_step'])} ms per step."
    ) + beside


def variance_section(records: Records, folder: Path) -> Section:
    """Return how far the examples of a class lie apart in the penultimate layer."""
    result = records.last(stage="variance", kind="result")
    title, short = "In-class variance", "Variance"
    if result is None:
        return Section(title, "Not run yet: stage `variance`.", short=short)
    text = (
        "The paper compares how far the examples of one class lie apart in the penultimate layer for this task and for "
        "its video task, to explain why updates of few classes work better there. This is the histogram for this "
        f"task.\n\nOver {whole(result['classes'])} classes and {whole(result['examples'])} examples the in-class "
        f"variance of unit-length features is {number(result['mean'])} on average (median "
        f"{number(result['median'])}); the mean squared distance between the means of two classes is "
        f"{number(result['between'])}."
    )
    return Section(title, text, [figures.draw_variance(result, folder)], short)
