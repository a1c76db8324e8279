"""The section on other libraries over the same trained layer."""

from pathlib import Path

from experiments.frame.page import Figure, Section, Table, Text
from experiments.frame.records import Record, Records
from experiments.frame.wording import ABSENT, number, percent, whole
from experiments.imagenet21k.page import reading
from experiments.imagenet21k.page.figures import draw_peers

TITLE, SHORT = "Peers at the same accuracies", "Peers"
SHARES = (0.90, 0.95, 0.99)
BATCHES = ("us_batch1", "us_batch64", "us_batch1000")


def peers_section(records: Records, folder: Path) -> Section:
    """Return every peer's time at the same shares of the accuracy, its build time and its memory."""
    found = reading.peers(records)
    absent = list(reading.newest(records.select(stage="peers", kind="missing"), "peer").values())
    remarks = [Text(f"{record['peer']} was not there ({record['reason']}); `{record['install']}`.", quiet=True)
               for record in absent if record["peer"] not in found]  # fmt: skip
    if not found:
        return Section(TITLE, "Not run yet: stage `peers`.", remarks, SHORT)
    judged = next(iter(found.values()))[0]["queries"]
    text = (
        "All libraries index the same trained layer, its bias as one more column where they have none, and answer the "
        "same held-out queries. Each is measured over a range of its settings; what counts is its quickest setting "
        "that keeps the accuracy. All are asked for the best ten classes; an exact answer to all ten costs more than "
        f"the accuracy does, and the last table tells it. Judged on {whole(judged)} held-out queries. Times of the "
        "others contain the widening of the query by that column. Memory contains the library's own copy of the rows; "
        "ScaNN's is an estimate, as it tells none."
    )
    parts: list[Table | Figure | Text] = [draw_peers(found, folder), same_accuracy(found), settings_at(found)]
    return Section(TITLE, f"{text}\n\n{verdict(found)}".strip(), [*parts, *remarks], SHORT)


def quickest(found: list[Record], share: float, field: str) -> Record | None:
    """Return a peer's quickest setting at a batch size that keeps this share."""
    return reading.fastest(found, share, lambda record: float(record[field]))


def same_accuracy(found: dict[str, list[Record]]) -> Table:
    """Return µs per query by share and batch, with build time and memory."""
    rows = []
    for peer, settings in found.items():
        best = [quickest(settings, share, field) for share in SHARES for field in BATCHES[:2]]
        spent = [number(record[field]) if record else ABSENT
                 for record, field in zip(best, BATCHES[:2] * len(SHARES), strict=True)]  # fmt: skip
        memory = number(settings[-1]["bytes_per_class"] / 1024)
        rows.append([peer, *spent, number(settings[-1]["build_seconds"]), memory])
    columns = ["", *["one at a time", "batch 64"] * len(SHARES), "build s", "KiB per class"]
    groups = [("", 1), *[(f"µs at {share:.0%} of the accuracy", 2) for share in SHARES], ("", 2)]
    own = {number for number, row in enumerate(rows) if str(row[0]).startswith("manyclass")}
    caption = "µs per query of the quickest setting that keeps this share of the exact accuracy; – where none does."
    return Table(columns, rows, caption, emphasised=own, groups=groups)


def settings_at(found: dict[str, list[Record]], share: float = 0.99) -> Table:
    """Return which setting of each peer is the quickest at one share, and all that was measured of it."""
    rows = []
    for peer, settings in found.items():
        best = quickest(settings, share, "us_batch1")
        if best is None:
            most = max(map(reading.kept, settings))
            rows.append([peer, f"none; at most {percent(most)}", *[ABSENT] * 6])
            continue
        knobs = ", ".join(f"{name} {value}" for name, value in best["setting"].items()) or ABSENT
        spent = [number(best.get(field)) for field in BATCHES]
        rows.append([peer, knobs, percent(best["accuracy_kept"]), percent(best["agreement"]),
                     percent(best["recall_at_10"]), *spent])  # fmt: skip
    columns = [
        "",
        "setting",
        "accuracy kept",
        "same winner as exact",
        "of the exact ten",
        "µs, one at a time",
        "µs, batch 64",
        "µs, large batch",
    ]
    own = {number for number, row in enumerate(rows) if str(row[0]).startswith("manyclass")}
    caption = f"The setting of each that is quickest one query at a time among those that keep {share:.0%}."
    return Table(columns, rows, caption, "llrrrrrr", own)


def verdict(found: dict[str, list[Record]], share: float = 0.99) -> str:
    """Return who is quickest at one share, one query at a time and in batches, as the records have it."""
    sentences = []
    for field, when in zip(BATCHES, ("one query at a time", "in batches of 64", "in large batches"), strict=True):
        best = {peer: quickest(settings, share, field) for peer, settings in found.items()}
        spent = {peer: record[field] for peer, record in best.items() if record}
        ours = {peer: time for peer, time in spent.items() if peer.startswith("manyclass")}
        others = {peer: time for peer, time in spent.items() if peer not in ours}
        if ours and others:
            own, other = min(ours, key=ours.__getitem__), min(others, key=others.__getitem__)
            ahead, ratio = ours[own] <= others[other], others[other] / ours[own]
            sentences.append(
                f"At {share:.0%} of the accuracy, {when}, {own} takes {number(ours[own])} µs a query and the "
                f"quickest of the others, {other}, {number(others[other])} µs: "
                + (f"{ratio:.1f} times as long." if ahead else f"we take {1 / ratio:.1f} times as long.")
            )
    return " ".join(sentences)
