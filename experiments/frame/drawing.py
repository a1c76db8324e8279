"""One look for all figures: quiet axes, names at the ends of lines instead of a legend, manyclass in front.

A figure is a `canvas`, on whose axes `draw_lines` draws, and which `save` writes. matplotlib is loaded by the first
figure, not by importing this.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyclass._atomic_file import replacement, write_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK = "#22303c"
QUIET = "#8795a1"
RULE = "#e4e8ec"
MOST_SHARE = 0.9999  # shares above it are drawn as if they were it
COLOURS = (  # the first key that occurs in a peer's name decides
    ("manyclass default", "#d1361f"),
    ("manyclass paper", "#e89a2c"),
    ("manyclass, the paper", "#e89a2c"),
    ("manyclass without", "#8c1c4b"),
    ("manyclass cells", "#8c1c4b"),
    ("manyclass", "#d1361f"),
    ("torch softmax", "#5b6670"),
    ("exact", "#9aa5b1"),
    ("rabitqlib IVF", "#5fc9c9"),
    ("IVF", "#2c7fb8"),
    ("RaBitQ", "#17a2a2"),
    ("hnswlib", "#b57edc"),
    ("HNSW", "#7a5195"),
    ("ScaNN", "#2a9d4a"),
    ("LoRANN with ", "#0b8457"),
    ("LoRANN", "#8bbf9f"),
    ("SVS", "#c2b280"),
    ("SymphonyQG", "#6d8f2e"),
    ("PQ", "#1f4e9c"),
)
SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": RULE,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "manyclass",  # the same data gives the same file
}


def canvas(
    columns: int, rows: int = 1, width: float = 12, height: float = 5.6, **options: Any
) -> tuple["Figure", list["Axes"]]:
    """Return a figure and its axes, styled, as a flat list."""
    import matplotlib

    matplotlib.use("Agg")  # figures go to files; no display is needed
    import matplotlib.pyplot as plt

    plt.rcParams.update(SETTINGS)
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained", **options)
    for axis in axes.flat:
        axis.grid(True, which="major")
        axis.set_axisbelow(True)
        axis.tick_params(length=0, which="both")
    return figure, list(axes.flat)


@dataclass(frozen=True)
class Line:
    """A curve with a name. style: matplotlib's line options, with a color; name "": it gets no label."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    style: dict[str, Any]


def draw_lines(axis: "Axes", lines: Iterable[Line], gap: float = 0.065, **settings: Any) -> None:
    """Draw lines, apply matplotlib's axis settings (scale, limits, labels, title), and name each line at its end.

    Logarithmic axes are ticked in plain numbers. gap: least distance of two names, as a share of the axis's height.
    """
    lines = [line for line in lines if len(line.x)]
    for line in lines:
        axis.plot(line.x, line.y, **line.style)
    axis.set(**settings)
    for scale, of_axis in (("xscale", axis.xaxis), ("yscale", axis.yaxis)):
        if settings.get(scale) == "log":
            one_two_five(of_axis)
    ends = [(line.name, line.y[-1], line.style["color"]) for line in lines if line.name]
    if ends:
        label_ends(axis, ends, gap)


def line_style(peer: str) -> dict[str, Any]:
    """Return matplotlib line options for a peer; manyclass is thick and drawn above the others."""
    own = peer.startswith("manyclass")
    colour = next((colour for key, colour in COLOURS if key in peer), QUIET)
    dashed = "d/2" in peer or "paper" in peer
    style = {
        "color": colour,
        "linewidth": 2.8 if own else 1.5,
        "markersize": 5.5 if own else 3.5,
        "marker": "o",
    }
    return {
        **style,
        "linestyle": (0, (5, 1.5)) if dashed else "-",
        "zorder": 5 if own else 3,
        "clip_on": False,
    }


def series_style(position: int) -> dict[str, Any]:
    """Return line options for the lines of a sweep, told apart by colour in the order they are drawn."""
    palette = ("#1f6f8b", "#c8553d", "#7a9e3b", "#8a6bbf", "#e0a458", "#5b6670")
    return {"color": palette[position % len(palette)], "linewidth": 2.2, "markersize": 4.5, "marker": "o"}


def one_two_five(axis: "Axis") -> None:
    """Tick a logarithmic axis at 1, 2, 5, 10, … in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))


def in_plain_numbers(axis: "Axis") -> None:
    """Label the ticks of a linear axis as one writes numbers: 0, 0.5, 1,000."""
    axis.set_major_formatter(lambda value, _: f"{value:,g}")


def in_percent(axis: "Axis") -> None:
    """Label the ticks of an axis of shares in percent, with as many digits as they need."""
    axis.set_major_formatter(lambda value, _: f"{round(100 * value, 3):g}%")


def stretch_to_all(axis: "Axes", least: float) -> None:
    """Make the horizontal axis one of shares in percent, on which 90%, 99% and 99.9% lie equally far apart.

    It begins at `least`; whatever is above 99.99% stands at its end.
    """
    import numpy as np

    axis.set_xscale(
        "function",
        functions=(lambda share: -np.log10(np.maximum(1 - share, 1 - MOST_SHARE)), lambda place: 1 - 10.0**-place),
    )
    shares = [share for share in (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, MOST_SHARE) if share >= least]
    axis.set_xticks(shares, [f"{100 * share:g}%" for share in shares])
    axis.set_xlim(least, MOST_SHARE)


def spread(positions: Iterable[float], gap: float) -> list[float]:
    """Return the positions moved apart so that neighbours are at least `gap` from each other, order kept."""
    positions = list(positions)
    order = sorted(range(len(positions)), key=positions.__getitem__)
    groups: list[tuple[float, int]] = []  # (centre, members): overlapping labels become one evenly spaced group
    for index in order:
        groups.append((positions[index], 1))
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < gap * (groups[-1][1] + groups[-2][1]) / 2:
            centre, members = groups.pop()
            before, count = groups[-1]
            groups[-1] = (before * count + centre * members) / (count + members), count + members
    moved = [centre + gap * (rank - (members - 1) / 2) for centre, members in groups for rank in range(members)]
    return [moved[order.index(index)] for index in range(len(positions))]


def kept_beside(heights: Iterable[float], gap: float, low: float = 0.02, high: float = 0.98) -> list[float]:
    """Return heights, at least `gap` apart, between low and high: what would leave moves, and what is in its way."""
    kept = list(heights)
    order = sorted(range(len(kept)), key=kept.__getitem__)
    for index in reversed(order):
        kept[index] = min(kept[index], high)
        high = kept[index] - gap
    for index in order:
        kept[index] = max(kept[index], low)
        low = kept[index] + gap
    return kept


def label_ends(axis: "Axes", ends: Iterable[tuple[str, float, str]], gap: float = 0.065) -> None:
    """Write names at the right of an axis, each (name, y, colour) at the height of its line's end, kept apart."""
    names, values, colours = zip(*ends, strict=True)
    place = axis.transData + axis.transAxes.inverted()
    heights = spread([float(place.transform((axis.get_xlim()[1], value))[1]) for value in values], gap)
    for name, height, colour in zip(names, kept_beside(heights, gap), colours, strict=True):
        axis.text(1.02, height, name, color=colour, va="center", fontsize=9, transform=axis.transAxes)


def save(figure: "Figure", folder: Path, name: str) -> Path:
    """Write the figure as PNG and as SVG, close it, and return the path of the SVG."""
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    for kind, options in (("png", {"dpi": 160}), ("svg", {"metadata": {"Date": None}})):
        drawn = BytesIO()
        figure.savefig(drawn, format=kind, facecolor="white", **options)
        with replacement(str(folder / f"{name}.{kind}")) as file:  # another stage may draw its page from it meanwhile
            write_all(file, drawn.getvalue())
    plt.close(figure)
    return folder / f"{name}.svg"
