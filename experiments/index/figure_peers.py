"""The peers' curves: quality against time per query, Pareto fronts only."""

from math import log10
from pathlib import Path

from matplotlib.axes import Axes

from experiments.frame.drawing import QUIET, canvas, line_style, one_two_five, save, spread

LOSSES = (0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)  # what the vertical axis is ticked at
LEAST_LOSS, MOST_LOSS = LOSSES[-1], LOSSES[0]
QUALITIES = {"accuracy_kept": "label accuracy kept", "agreement": "same winner as the exact product"}


def pareto_front(records: list[dict], time: str, quality: str) -> list[tuple[float, float]]:
    """Return (µs, loss) of the settings that no faster setting equals or beats, fastest first.

    Loss is 1 − quality, held between the ends of the axis: .9999 and 1.02 both count as nothing lost.
    """
    front: list[tuple[float, float]] = []
    for record in sorted(records, key=lambda record: record[time]):
        loss = max(LEAST_LOSS, 1 - record[quality])
        if loss <= MOST_LOSS and (not front or loss < front[-1][1]):
            front.append((record[time], loss))
    return front


def by_peer(records: list[dict]) -> dict[str, list[dict]]:
    """Return the measured settings of every peer, in the order of the file."""
    groups: dict[str, list[dict]] = {}
    for record in records:
        if record["stage"] == "peers":
            groups.setdefault(record["peer"], []).append(record)
    return groups


def draw_peers(records: list[dict], folder: Path, name: str, quality: str = "accuracy_kept") -> None:
    """Write `<name>.png` and `.svg`: batch 1 on the left, batch 1000 on the right."""
    figure, axes = canvas(2, width=13, height=6.8, sharey=True)
    for axis, time, title in zip(
        axes, ("us_batch1", "us_batch1000"), ("one query at a time", "batches of 1000"), strict=True
    ):
        fronts = {peer: pareto_front(group, time, quality) for peer, group in by_peer(records).items()}
        _draw_fronts(axis, {peer: front for peer, front in fronts.items() if front})
        axis.set_xlabel("µs per query (left is better)")
        axis.text(0, -0.13, title, transform=axis.transAxes, weight="bold")
    axes[0].set_ylabel(f"{QUALITIES[quality]} (up is better)")
    machine = records[-1]["machine"]
    hardware = f"{machine['cpu']}, {machine['threads']} threads"
    title = f"{records[-1]['dataset']}: {QUALITIES[quality]} against time, {hardware}"
    figure.suptitle(title, x=0.01, ha="left", weight="bold")
    save(figure, folder, name)


def _draw_fronts(axis: Axes, fronts: dict[str, list[tuple[float, float]]]) -> None:
    axis.set(xscale="log", yscale="log", ylim=(MOST_LOSS, LEAST_LOSS))
    axis.set_yticks(LOSSES, ["≥99.9%" if loss == LEAST_LOSS else f"{100 - 100 * loss:g}%" for loss in LOSSES])
    axis.minorticks_off()
    axis.axhline(0.01, color=QUIET, linewidth=1, linestyle=":")  # the 99% at which the peers are compared
    for peer, front in fronts.items():
        axis.plot(*zip(*front, strict=True), **line_style(peer))
    times = [time for front in fronts.values() for time, _ in front]
    low, high = log10(min(times)) - 0.08, log10(max(times)) + 0.12
    axis.set_xlim(10**low, 10**high)
    one_two_five(axis.xaxis)
    _label_ends(axis, fronts, gap=(high - low) / 19)


def _label_ends(axis: Axes, fronts: dict[str, list[tuple[float, float]]], gap: float) -> None:
    """Name every curve where it ends: slanted above the frame, moved sideways where names would overlap."""
    ends = [log10(front[-1][0]) for front in fronts.values()]
    for (peer, front), moved in zip(fronts.items(), spread(ends, gap), strict=True):
        options = {
            "color": line_style(peer)["color"],
            "fontsize": 8.5,
            "rotation": 38,
            "rotation_mode": "anchor",
        }
        weight = "bold" if peer.startswith("manyclass") else "normal"
        label_height = LEAST_LOSS * 0.86
        axis.plot(
            [front[-1][0], 10**moved], [front[-1][1], label_height],
            color=options["color"], linewidth=0.7, linestyle=":", clip_on=False, zorder=2,
        )  # fmt: skip
        axis.text(10**moved, label_height * 0.98, peer, weight=weight, clip_on=False, **options)
