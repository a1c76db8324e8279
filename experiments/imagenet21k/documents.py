"""What README and docs tell of the committed run, every number from its records."""

from collections.abc import Iterable

from experiments.frame.documents import as_markdown
from experiments.frame.page import Table
from experiments.frame.records import Record, Records
from experiments.frame.run_section import machine_in_words
from experiments.frame.wording import ABSENT, duration, percent, times, whole
from experiments.imagenet21k import paper, results
from experiments.imagenet21k.page_layer import accuracy_text, below_print
from experiments.imagenet21k.results import Cells, kept

RESULTS = "experiments/results/imagenet21k"
HEAD_ROWS = (  # how the table of heads names them; several numbers of candidates share a row
    ("full softmax", "full", None),
    ("hierarchical softmax", "hierarchical", None),
    ("sampled softmax, 1024 samples", "sampled", None),
    ("**candidate softmax**, as it is by default", "candidate", "default"),
    ("candidate softmax, own candidates", "candidate", "own"),
    ("WTA softmax (the paper's layer)", "wta", None),
)


def texts(records: Records) -> dict[str, str]:
    """Return name → Markdown."""
    cells = results.layer_cells(records)
    data, base, layer = (_result(records, stage) for stage in ("data", "base", "softmax_layer"))
    found = {
        "classes": whole(data["classes"]),
        "machine": machine_in_words(records),
        "network_size": f"{base['multiply_adds'] / 1e6:.0f} million multiply-adds, {base['features']} features",
        "longest_stage": longest_stage(records),
        "base_accuracy": percent(base["accuracy"]),
        "exact_layer": exact_layer(data, layer),
        "speed_over_softmax": times(cells["default", 1, 30]["speedup_torch"]),
        "kept_at_30": accuracy_text(cells),
        "speed_at_99": speed_at_99(cells),
        "serving": serving(cells),
        "below_print": below_print(cells),
        "accuracies": f"{percent(layer['accuracy'])} of the cases stands out more than that of one that is right in "
        f"{percent(paper.EXACT_ACCURACY)}",
        "summary": summary(cells, data, layer),
        "heads": as_markdown(heads_table(records)),
        "end_to_end": end_to_end(records),
    }
    return {f"imagenet21k_{name}": text for name, text in found.items()}


def _result(records: Records, stage: str) -> Record:
    found = records.last(stage=stage, kind="result")
    assert found is not None, f"the committed run has no result of stage {stage}"
    return found


def longest_stage(records: Records) -> str:
    """Return which stage took longest, and all of them together."""
    spent = {end["stage"]: records.seconds_spent(end["stage"]) for end in records.select(kind="stage_end")}
    longest = max(spent, key=spent.__getitem__)
    return f"the longest, `{longest}`, took {duration(spent[longest])}, all together {duration(sum(spent.values()))}"


def exact_layer(data: Record, layer: Record) -> str:
    """Return how often the exact layer is right, and in which style."""
    styles = ", ".join(f"{style} {percent(share)}" for style, share in layer["by_style"].items())
    return f"{percent(layer['accuracy'])} of the {whole(data['test_images'])} held-out pictures ({styles})"


# The layer alone


def speed_at_99(cells: Cells) -> str:
    """Return how fast both pipelines are at our goal's share, one query at a time."""
    share, wanted = paper.GOAL_TRADE_OFF
    ours, literal = (_fewest(cells, pipeline, share) for pipeline in results.PIPELINES)
    return (
        f"the default is {times(ours['speedup'])} as fast at {percent(kept(ours))} of the accuracy (goal: "
        f"{wanted:g}× at {share:.0%}), the paper's pipeline {times(literal['speedup'])} at {percent(kept(literal))}"
    )


def serving(cells: Cells) -> str:
    """Return how fast the default is with 30 candidates, one query at a time, over both baselines."""
    ours = cells["default", 1, 30]
    return (
        f"{times(ours['speedup'])} as fast as the fastest exact product and {times(ours['speedup_torch'])} as fast as "
        f"torch's softmax, with {percent(kept(ours))} of the accuracy"
    )


def summary(cells: Cells, data: Record, layer: Record) -> str:
    """Return the run in three sentences."""
    few, ours = cells["default", 1, 30], _fewest(cells, "default", paper.GOAL_TRADE_OFF[0])
    literal = _fewest(cells, "paper", paper.TRADE_OFF[0])
    return (
        f"On {whole(data['classes'])} Han characters drawn from Debian's fonts the exact softmax is right on "
        f"{percent(layer['accuracy'])} of the pictures in two fonts that were held out: 30 candidates keep "
        f"{percent(kept(few))} of that (the paper, on its photographs: {paper.ACCURACY_KEPT[30]:.0%}). With the fewest "
        f"that keep {paper.GOAL_TRADE_OFF[0]:.0%}, {ours['candidates']}, the last layer is, one picture at a time, "
        f"{times(ours['speedup'])} as fast as the fastest exact product and keeps {percent(kept(ours))}. The paper's "
        f"own pipeline is {times(literal['speedup'])} as fast there, at {percent(kept(literal))}."
    )


def _fewest(cells: Cells, pipeline: str, share: float) -> Record:
    found = results.fewest(cells, pipeline, 1, share)
    assert found is not None, f"no setting of the {pipeline} pipeline keeps {share:.0%}"
    return found


# Training


def heads_table(records: Records) -> Table:
    """Return steps, time of a step and accuracy of the heads on kept features; numbers of candidates side by side."""
    trained = results.head_results(records, "heads")
    rows = []
    for name, head, rule in HEAD_ROWS:
        found = {series[1]: record for series, record in trained.items() if (series[0], series[2]) == (head, rule)}
        counts = " / ".join(str(count) for count in found if count)
        rows.append([
            f"{name}, K = {counts}" if counts else name,
            _beside(whole(record["steps"]) for record in found.values()),
            _beside(f"{record['ms_per_step']:,.0f}" for record in found.values()),
            _beside(percent(record["accuracy"]) for record in found.values()),
        ])  # fmt: skip
    return Table(["head", "steps", "ms per step", "held-out accuracy"], rows)


def _beside(values: Iterable[str]) -> str:
    return " / ".join(values) or ABSENT


def end_to_end(records: Records) -> str:
    """Return how far the whole network comes with each head."""
    trained = {series[0]: record for series, record in results.head_results(records, "end_to_end").items()}
    ours, full = (
        f"{percent(record['accuracy'])} after {whole(record['steps'])} steps in {duration(record['seconds'])}"
        for record in (trained["candidate"], trained["full"])
    )
    return f"with candidate softmax, candidates looked up for every example, {ours}, with the exact softmax {full}"
