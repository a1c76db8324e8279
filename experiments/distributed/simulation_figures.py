"""The section of the page that tells of the simulation: how it compares with real runs, and what it predicts."""

from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.distributed.learning_figures import ENGINES
from experiments.distributed.simulation import LEARNING, SCALE, VALIDATION
from experiments.frame.documents import as_markdown
from experiments.frame.drawing import Line, canvas, draw_lines, in_percent, save, series_style
from experiments.frame.page import Figure, Section, Table, Text
from experiments.frame.records import Record, Records
from experiments.frame.wording import number, percent, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INTRODUCTION = (
    "Nobody here has a hundred machines. So this is a prediction, not a measurement: a simulation runs the workers, "
    "transports, shards and the coordinator of a real run, and only time is simulated. What each part of a step costs "
    "was timed on this machine, on one thread."
)
ASSUMPTIONS = (
    "**What it takes for granted.** One worker or shard per machine, one core of each, as fast as one of this machine; "
    "a shard does one call after the other. 10 GbE: 1.25 GB per second and card, 50 µs until the first byte arrives, "
    "nobody else on it. A call takes caller and server the processor time that Ray took for one here, with messages as "
    "large, and a step what it took here beside its parts. Two steps under way per worker. Up to a hundred million "
    "classes only time is simulated: the messages are those of the real classes, rows there are none, and the time of "
    "a look-up is extrapolated from shards of some thousand rows.\n\n"
    "**Error bars** run from the least to the most of several draws, of the costs within the uncertainty of their "
    "timings and of chance, and are widened on both sides by the largest error of the comparison with real runs. "
    "Machines that fail or hang, switches, and other users are not in them."
)


class Band(NamedTuple):
    """A prediction: its mean, and from where to where it may lie."""

    low: float
    middle: float
    high: float


def simulation_section(records: Records, folder: Path) -> Section:
    """Return the section; what was not run yet is not in it."""
    parts: list[Table | Figure | Text] = []
    if compared := validation_table(records):
        parts.append(compared)
    if records.select(stage=SCALE, kind="scale"):
        parts += [draw_speed(records, folder), scale_table(records)]
    if records.select(stage=LEARNING, kind="learning"):
        parts.append(draw_learning(records, folder))
    text = INTRODUCTION if parts else "Not measured yet: stages `simulation_…`."
    return Section("Past this machine: a prediction", text, [*parts, Text(ASSUMPTIONS, quiet=True)], "prediction")


def simulation_documents(records: Records) -> dict[str, str]:
    """Return what documents tell of the prediction, by the name of its marker."""
    compared = validation_table(records)
    if compared is None or not records.select(stage=SCALE, kind="scale"):
        return {"distributed_prediction": "Not measured yet: stages `simulation_…` of the experiment `distributed`."}
    tables = [compared, scale_table(records)]
    return {"distributed_prediction": "\n\n".join(f"{as_markdown(table)}\n\n{table.caption}" for table in tables)}


def compared_runs(records: Records) -> dict[tuple[str, int], dict[str, list[Record]]]:
    """Return real and simulated runs by engine and number of workers, threads first."""
    found: dict[tuple[str, int], dict[str, list[Record]]] = {}
    for kind in ("real", "simulated"):
        for record in records.select(stage=VALIDATION, kind=kind):
            found.setdefault((record["engine"], record["workers"]), {}).setdefault(kind, []).append(record)
    return {
        key: found[key] for key in sorted(found, key=lambda key: (key[0] != "threads", key)) if len(found[key]) == 2
    }


def largest_error(records: Records, measure: str = "examples_per_second") -> float:
    """Return by how much simulated runs were off at most, as a share of the real ones; 0 where none were compared."""
    errors = [0.0]
    for both in compared_runs(records).values():
        real, simulated = (mean(record[measure] for record in both[kind]) for kind in ("real", "simulated"))
        errors.append(abs(simulated / real - 1) if real else 0.0)
    return max(errors)


def validation_table(records: Records) -> Table | None:
    """Return measured beside simulated figures."""
    rows = []
    for (engine, workers), both in compared_runs(records).items():
        told: list[Any] = [ENGINES[engine], whole(workers)]
        for measure, said in (("examples_per_second", whole), ("staleness", number), ("accuracy", percent)):
            told += [said(mean(record[measure] for record in both[kind])) for kind in ("real", "simulated")]
        rows.append(told)
    if not rows:
        return None
    error = largest_error(records)
    caption = (
        f"The same job on this machine, by threads and by Ray, and in simulated time; at most {percent(error)} off in "
        "speed. Costs were measured with one worker, so that the first row of each engine is no test of them."
    )
    columns = ["engine", "workers", "examples/s, measured", "simulated", "staleness, measured", "simulated",
               "accuracy, measured", "simulated"]  # fmt: skip
    return Table(columns, rows, caption, "lrrrrrrr")


def band(found: list[Record], measure: str, widened: float) -> Band:
    """Return the band of some draws."""
    values = [record[measure] for record in found]
    return Band(min(values) * (1 - widened), mean(values), max(values) * (1 + widened))


def grouped(records: list[Record], *fields: str) -> dict[tuple[Any, ...], list[Record]]:
    """Return records by some of their fields, in order."""
    found: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        found.setdefault(tuple(record[name] for name in fields), []).append(record)
    return dict(sorted(found.items()))


def draw_bands(axis: "Axes", named: dict[str, dict[int, Band]], **settings: Any) -> None:
    """Draw a line with its band for each name, against the number of workers."""
    lines = []
    for place, (name, bands) in enumerate(named.items()):
        style = series_style(place)
        low, middle, high = zip(*bands.values(), strict=True)
        axis.fill_between(list(bands), low, high, color=style["color"], alpha=0.08, linewidth=0)
        lines.append(Line(name, list(bands), middle, style))
    draw_lines(axis, lines, xlabel="workers", xscale="log", **settings)


def draw_speed(records: Records, folder: Path) -> Figure:
    """Draw examples per second against workers, for numbers of shards and of classes."""
    found, widened = records.select(stage=SCALE, kind="scale"), largest_error(records)
    most = max(record["classes"] for record in found)
    middle_shards = sorted({record["shards"] for record in found})[-2:][0]
    by_shards: dict[str, dict[int, Band]] = {}
    by_classes: dict[str, dict[int, Band]] = {}
    for (classes, shards, workers), draws in grouped(found, "classes", "shards", "workers").items():
        if classes == most:
            by_shards.setdefault(f"{shards} shard{'s' * (shards > 1)}", {})[workers] = band(
                draws, "examples_per_second", widened
            )
        if shards == middle_shards:
            by_classes.setdefault(f"{whole(classes)}", {})[workers] = band(draws, "examples_per_second", widened)
    figure, (left, right) = canvas(2, width=12, height=4.6)
    settings: dict[str, Any] = {"yscale": "log", "ylabel": "examples per second"}
    draw_bands(left, by_shards, title=f"{whole(most)} classes (prediction)", **settings)
    draw_bands(right, by_classes, title=f"classes, on {middle_shards} shards (prediction)", **settings)
    caption = (
        "Predicted speed on 10 GbE. Lines lie flat where the shards have no more time. Each of them is called twice in "
        "every step of every worker, and what Ray takes for a call does not shrink where shards are more: beyond a "
        "few, more of them hardly help."
    )
    return Figure("simulation_speed", save(figure, folder, "simulation_speed"), caption,
                  "Predicted examples per second against workers")  # fmt: skip


def scale_table(records: Records) -> Table:
    """Return speeds with the most workers, and what a step sends."""
    found, widened = records.select(stage=SCALE, kind="scale"), largest_error(records)
    most = max(record["workers"] for record in found)
    rows = []
    for (classes, shards), draws in grouped([r for r in found if r["workers"] == most], "classes", "shards").items():
        speed = band(draws, "examples_per_second", widened)
        stale, busy = mean(r["staleness"] for r in draws), mean(r["busiest_shard"] for r in draws)
        sent = mean(r["bytes_per_step"] for r in draws) / 1e6
        rows.append([whole(classes), whole(shards), f"{whole(speed.low)} to {whole(speed.high)}", number(stale),
                     percent(busy), number(sent)])  # fmt: skip
    columns = ["classes", "shards", "examples per second", "mean staleness", "busiest shard at work", "MB per step"]
    return Table(columns, rows, f"Predicted, with {most} workers.")


def draw_learning(records: Records, folder: Path) -> Figure:
    """Draw staleness and accuracy against workers: the job was really trained, in simulated time."""
    found = records.select(stage=LEARNING, kind="learning")
    stale: dict[str, dict[int, Band]] = {}
    right: dict[str, dict[int, Band]] = {}
    for (policy, shards, workers), draws in grouped(found, "policy", "shards", "workers").items():
        name = f"{shards} shards, {policy}"
        stale.setdefault(name, {})[workers] = band(draws, "staleness", largest_error(records, "staleness"))
        right.setdefault(name, {})[workers] = band(draws, "accuracy", largest_error(records, "accuracy"))
    figure, (left, other) = canvas(2, width=12, height=4.6)
    draw_bands(left, stale, title="mean staleness of a push (prediction)", ylabel="pushes between read and write")
    in_percent(other.yaxis)
    draw_bands(other, right, title="accuracy after as many examples (prediction)", ylabel="accuracy", ylim=(0, None))
    caption = (
        "The demo's task, trained in simulated time by so many workers: every gradient is computed "
        "from rows and trunk as old as they would be. Where training diverged, the accuracy is 0."
    )
    return Figure("simulation_learning", save(figure, folder, "simulation_learning"), caption,
                  "Predicted staleness and accuracy against workers")  # fmt: skip
