"""Markdown tables of the peers, made from the records."""

from experiments.index.figure_peers import by_peer

HEADER = (
    "peer", "setting", "accuracy kept", "same winner", "recall@10", "µs, batch 1", "µs, batch 1000",
    "build s", "bytes/class", "of which rows", "µs to re-index a row",
)  # fmt: skip


def fastest_at(records: list[dict], time: str, target: float, quality: str = "accuracy_kept") -> dict | None:
    """Return the record of the fastest setting that reaches the target, None if none does."""
    reached = [record for record in records if record[quality] >= target]
    return min(reached, key=lambda record: record[time], default=None)


def peers_table(records: list[dict], time: str, target: float = 0.99, quality: str = "accuracy_kept") -> str:
    """Return a markdown table: every peer at its fastest setting that reaches the target, fastest peer first.

    Peers that never reach it are listed with their best setting, peers that are not installed by name.
    """
    updates = {record["peer"]: record["us_update"] for record in records if record["stage"] == "update"}
    reached, short = [], []
    for group in by_peer(records).values():
        point = fastest_at(group, time, target, quality)
        if point:
            reached.append(point)
        else:
            short.append(max(group, key=lambda record: record[quality]))
    reached.sort(key=lambda record: record[time])
    lines = [_line(HEADER), _line(["---"] * len(HEADER))]
    lines += [_line(_cells(record, updates)) for record in reached]
    lines += [_line(_cells(record, updates, note=" (never reaches it)")) for record in short]
    for peer, reason in missing_peers(records).items():
        lines.append(_line([peer, f"missing: {reason}"] + ["-"] * (len(HEADER) - 2)))
    return "\n".join(lines) + "\n"


def missing_peers(records: list[dict]) -> dict[str, str]:
    """Return the peers that could not be imported and were never measured since, with the reason."""
    measured = by_peer(records)
    absent = {record["peer"]: record["reason"] for record in records if record["stage"] == "missing"}
    return {peer: reason for peer, reason in absent.items() if peer not in measured}


def _cells(record: dict, updates: dict, note: str = "") -> list[str]:
    update = updates.get(record["peer"])
    setting = ", ".join(f"{name} {value}" for name, value in record["setting"].items()) or "-"
    return [
        record["peer"] + note,
        setting,
        f"{record['accuracy_kept']:.3f}",
        f"{record['agreement']:.3f}",
        f"{record['recall_at_10']:.3f}",
        f"{record['us_batch1']:,.0f}",
        f"{record['us_batch1000']:,.0f}",
        f"{record['build_seconds']:,.1f}",
        f"{record['bytes_per_class']:,.0f}",
        f"{record['row_bytes']:,.0f}",
        "rebuild" if update is None else f"{update:,.0f}",
    ]


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
