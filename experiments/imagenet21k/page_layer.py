"""The sections of the page on the trained layer: its times, its accuracy and the trade-off."""

from pathlib import Path

from experiments.frame.page import Figure, Section, Table, Text
from experiments.frame.records import Record, Records
from experiments.frame.wording import ABSENT, number, percent, times, whole
from experiments.imagenet21k import figures, paper, results
from experiments.imagenet21k.results import PIPELINES, Cells

TITLES = ("Time of the layer alone", "Accuracy against K", "Speed-up against accuracy", "Speed-up by batch size")
BEST_COLUMNS = ("pipeline", "batch", "at least", "K", "accuracy kept", "ms", "× fastest exact", "× softmax")
SHORT = ("Times", "Accuracy", "Trade-off", "Batches")


def layer_sections(records: Records, folder: Path) -> list[Section]:
    """Return the four sections of the stage `layer`."""
    cells = results.layer_cells(records)
    if not cells:
        missing = "Not run yet: stage `layer`."
        return [Section(title, missing, short=short) for title, short in zip(TITLES, SHORT, strict=True)]
    parts = (times_section(cells), accuracy_section(cells, folder), trade_off_section(cells, folder),
             batches_section(cells, folder))  # fmt: skip
    return [
        Section(title, text, shown, short)
        for title, short, (text, shown) in zip(TITLES, SHORT, parts, strict=True)
    ]  # fmt: skip


def times_section(cells: Cells) -> tuple[str, list[Table | Figure | Text]]:
    """Return the time table, for the default pipeline and for the paper's."""
    text = (
        "Milliseconds of the last layer alone for a whole batch, without the network below. `softmax` is torch's "
        "`softmax(x @ W.T + b)` as one writes it; `fastest exact` is the quickest of several ways to compute the same "
        "product on this machine, without the softmax, and the harder thing to beat. Each time is the best of several "
        "rounds; a search is asked new queries all the time, so that it does not find their rows in the cache."
        f"\n\n{below_print(cells)}"
    )
    captions = {
        "default": "**Default pipeline** of this library",
        "paper": "**The paper's pipeline** on this machine: hash tables and votes, then exact scores",
    }
    tables: list[Table | Figure | Text] = [
        time_table(cells, name, f"{captions[name]} (`{stages}`){learned_from(cells, name)}.")
        for name in PIPELINES
        for stages in {record["stages"]: None for (pipeline, *_), record in cells.items() if pipeline == name}
    ]
    return text, tables


def learned_from(cells: Cells, pipeline: str) -> str:
    """Return from how many training features a pipeline learned what it would be asked; nothing where from none."""
    counts = {record.get("learned_from", 0) for (name, *_), record in cells.items() if name == pipeline}
    return f", configured by itself to the rows and {whole(max(counts))} training features" if any(counts) else ""


def below_print(cells: Cells) -> str:
    """Return in how many cells the default is less far ahead of torch's softmax than the paper's of its own."""
    found = [(cells[key], speedup) for (batch, candidates), speedup in paper.SPEEDUP.items()
             if (key := ("default", batch, candidates)) in cells]  # fmt: skip
    below = sum(cell["speedup_torch"] < speedup for cell, speedup in found)
    one = cells.get(("default", 1, paper.CANDIDATES[0]))
    if not below or one is None:
        return ""
    return (
        f"In {below} of {len(found)} cells the default is less far ahead of torch's softmax than the paper's layer was "
        f"of its own softmax, which took {paper.SOFTMAX_MS[1]:g} ms for one query where torch takes "
        f"{number(one['softmax_ms'])} ms here."
    )


def time_table(cells: Cells, pipeline: str, caption: str) -> Table:
    """Return times and speed-ups by batch and candidates, the paper's beside them."""
    columns = ["batch", "K", "search ms", "softmax ms", "fastest exact ms", "× softmax", "× fastest exact",
               "accuracy kept", "WTA ms", "softmax ms", "speed-up", "accuracy kept"]  # fmt: skip
    rows = []
    for batch in (size for size in paper.BATCHES if size in results.batches(cells)):
        for candidates in table_candidates(cells, pipeline):
            cell = cells.get((pipeline, batch, candidates))
            if cell:
                rows.append([batch, f"{candidates:,}", *_measured(cell), *_printed(batch, candidates)])
    groups = [("", 2), ("measured here", 6), ("printed in the paper", 4)]
    return Table(columns, rows, caption, "r" * len(columns), groups=groups)


def table_candidates(cells: Cells, pipeline: str) -> list[int]:
    """Return the paper's numbers of candidates, and the largest there is where classes are too few for them."""
    found = sorted({candidates for name, _, candidates in cells if name == pipeline})
    wanted = [candidates for candidates in paper.CANDIDATES if candidates in found]
    return wanted if wanted[-1:] == [paper.CANDIDATES[-1]] else sorted({*wanted, *found[-1:]})


def _measured(cell: Record) -> list[str]:
    durations = [number(cell[name]) for name in ("ours_ms", "softmax_ms", "exact_ms")]
    return [*durations, times(cell["speedup_torch"]), times(cell["speedup"]), percent(cell["accuracy_kept"])]


def _printed(batch: int, candidates: int) -> list[str]:
    if (batch, candidates) not in paper.WTA_MS:
        return [ABSENT] * 4
    speedup, share = paper.SPEEDUP[batch, candidates], paper.ACCURACY_KEPT[candidates]
    return [f"{paper.WTA_MS[batch, candidates]}", f"{paper.SOFTMAX_MS[batch]}", f"{speedup:g}×", f"{share:.0%}"]


def accuracy_text(cells: Cells) -> str:
    """Return what 30 candidates keep, beside the paper's number and our goal."""
    few = {name: cells.get((name, results.batches(cells)[0], 30)) for name in PIPELINES}
    sentences = []
    if few["paper"]:
        share, printed = results.kept(few["paper"]), paper.ACCURACY_KEPT[30]
        sentences.append(f"With 30 candidates the paper's pipeline keeps {percent(share)} of the exact accuracy here; "
                         f"the paper reports {printed:.0%}.")  # fmt: skip
    if few["default"]:
        share = results.kept(few["default"])
        goal = "reached" if share >= paper.GOAL_KEPT_AT_30 else "not reached"
        sentences.append(f"The default pipeline keeps {percent(share)} (goal: {paper.GOAL_KEPT_AT_30:.0%}, {goal}).")
    return " ".join(sentences)


def accuracy_section(cells: Cells, folder: Path) -> tuple[str, list[Table | Figure | Text]]:
    """Return accuracy against candidates, in words, as a figure and as a table."""
    batch = results.batches(cells)[0]
    rows = []
    for candidates in sorted({candidates for _, size, candidates in cells if size == batch}):
        found = [cells.get((name, batch, candidates)) for name in PIPELINES]
        ours = [value for cell in found for value in _accuracies(cell)]
        theirs = [percent(paper.ACCURACY.get(candidates)), percent(paper.ACCURACY_KEPT.get(candidates))]
        rows.append([f"{candidates:,}", *ours, *theirs])
    columns = ["K", *["accuracy", "kept"] * 3]
    groups = [("", 1), ("default pipeline", 2), ("paper's pipeline", 2), ("printed in the paper", 2)]
    exact = next(iter(cells.values()))["exact_accuracy"]
    caption = f"Exact softmax: {percent(exact)} here, {percent(paper.EXACT_ACCURACY)} in the paper (other images)."
    table = Table(columns, rows, caption, "r" * 7, groups=groups)
    return accuracy_text(cells), [figures.draw_accuracy(cells, folder), table]


def _accuracies(cell: Record | None) -> list[str]:
    return [percent(cell["accuracy"]), percent(cell["accuracy_kept"])] if cell else [ABSENT] * 2


def trade_off_text(cells: Cells) -> str:
    """Return how fast the default pipeline is at 99%, beside the paper's number and our goal."""
    text = f"The paper reports {paper.TRADE_OFF[1]:g}× at {paper.TRADE_OFF[0]:.0%} of the baseline's accuracy."
    share, wanted = paper.GOAL_TRADE_OFF
    best = results.fewest(cells, "default", 1, share)
    if best:
        verdict = "reached" if best["speedup"] >= wanted else "not reached"
        product = f"`{best['exact_product']}`, {number(best['exact_ms'])} ms"
        text += (
            f" Here, one query at a time, the default pipeline is {times(best['speedup'])} as fast as the fastest "
            f"exact product ({product}) at {percent(best['accuracy_kept'])} of its accuracy, and "
            f"{times(best['speedup_torch'])} as fast as torch's softmax; the goal of {wanted:g}× at {share:.0%} is "
            f"{verdict}."
        )
    elif 1 in results.batches(cells):
        text += f" No setting of the default pipeline keeps {share:.0%} of the accuracy here: the goal is not reached."
    return text


def trade_off_section(cells: Cells, folder: Path) -> tuple[str, list[Table | Figure | Text]]:
    """Return speed-up against the share of the accuracy at fixed batch, and the best at some shares."""
    measured = results.batches(cells)
    sizes = [measured[0], *[batch for batch in (32, measured[-1]) if batch in measured and batch != measured[0]][:1]]
    rows = [
        _best_row(cells, name, batch, share)
        for batch in sizes for name in PIPELINES for share in (0.90, 0.95, 0.99)
    ]  # fmt: skip
    table = Table(BEST_COLUMNS, rows, "The fewest candidates that keep at least this share.")
    return trade_off_text(cells), [figures.draw_trade_off(cells, folder, sizes), table]


def _best_row(cells: Cells, pipeline: str, batch: int, share: float) -> list[object]:
    best = results.fewest(cells, pipeline, batch, share)
    said = [ABSENT] * 5 if best is None else [
        f"{best['candidates']:,}", percent(best["accuracy_kept"]), number(best["ours_ms"]), times(best["speedup"]),
        times(best["speedup_torch"]),
    ]  # fmt: skip
    return [pipeline, batch, f"{share:.0%}", *said]


def batches_section(cells: Cells, folder: Path) -> tuple[str, list[Table | Figure | Text]]:
    """Return speed-up at 95% of the accuracy against batch size."""
    share = paper.BATCH_CURVE_SHARE
    text = (
        "A larger batch lets an exact product read every row once for many queries, and leaves less to be gained by "
        "reading few rows: the paper finds its largest speed-ups at small batches."
    )
    rows = [_best_row(cells, name, batch, share) for name in PIPELINES for batch in results.batches(cells)]
    table = Table(BEST_COLUMNS, rows, "The fewest candidates that keep 95%.")
    return text, [figures.draw_batches(cells, folder), table]
