"""Draw the stages of a search: docs/figures/pipeline.svg and pipeline.png. Run from anywhere, needs matplotlib."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

INK, QUIET = "#22303c", "#8795a1"
FILLS = {"find": "#dcebf5", "rank": "#fbe9d0", "exact": "#dff0e0", "ends": "#ffffff"}
HALF = 0.52  # half the height of a box
COLUMNS = {"x": 0.75, "codes": 3.0, "find": 5.75, "rank": 8.65, "exact": 11.55, "top": 13.9}


def box(axes: Axes, at: tuple[float, float], width: float, kind: str, title: str, text: str = "") -> None:
    x, y = at
    shape = FancyBboxPatch(
        (x - width / 2, y - HALF), width, 2 * HALF, boxstyle="round,pad=0,rounding_size=.12", fc=FILLS[kind], ec=INK
    )
    axes.add_patch(shape)
    axes.text(x, y + (0.2 if text else 0), title, ha="center", va="center", fontsize=11, weight="bold")
    if text:
        axes.text(x, y - 0.19, text, ha="center", va="center", fontsize=8.6, linespacing=1.25)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], bend: float = 0) -> None:
    style = f"arc3,rad={bend}"
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=13, color=INK, connectionstyle=style))


def lane(axes: Axes, y: float, name: str, note: str, stages: list[tuple[str, str, str, str]]) -> None:
    """Draw one pipeline: its name above, its boxes (column, kind, title, text), and the arrows between them."""
    axes.text(1.85, y + 0.82, name, fontsize=11, weight="bold", color="#a33b20", ha="left", va="center")
    axes.text(1.85 + 0.128 * len(name) + 0.2, y + 0.82, note, fontsize=9, color=QUIET, ha="left", va="center")
    left = (COLUMNS["x"] + 0.5, 3.0)
    for number, (column, kind, title, text) in enumerate(stages):
        x, width = COLUMNS[column], 2.3 if column == "codes" else 2.45
        box(axes, (x, y), width, kind, title, text)
        arrow(axes, left, (x - width / 2, y), 0.0 if number == 0 else 0)
        left = (x + width / 2, y)
    arrow(axes, left, (COLUMNS["exact"] - 1.15, 3.0 + (y - 3.0) * 0.12))


def draw() -> None:
    plt.rcParams.update({"font.family": "sans-serif", "text.color": INK, "svg.fonttype": "none"})
    plt.rcParams["svg.hashsalt"] = "manyclass"
    figure, axes = plt.subplots(figsize=(13.2, 6.1), layout="constrained")
    axes.set(xlim=(0, 14.9), ylim=(-0.15, 6.75), aspect="equal")
    axes.axis("off")
    heads = {"find": "all classes → some", "rank": "some → candidates [K]", "exact": "candidates → k"}
    for column, head in heads.items():
        axes.text(COLUMNS[column], 6.5, head, ha="center", fontsize=10, color=QUIET, style="italic")
    box(axes, (COLUMNS["x"], 3.0), 1.0, "ends", "query", "$x$")
    codes = ("codes", "find", "winner codes", "argmax of each window")
    lane(
        axes,
        5.0,
        "paper",
        "tables → votes → exact",
        [
            codes,
            ("find", "find", "band tables", "one bucket per band"),
            ("rank", "rank", "votes", "shared buckets; top K"),
        ],
    )
    lane(
        axes,
        3.0,
        "flat sketch",
        "scan → exact, or scan → sketch → exact",
        [
            ("codes", "find", "rotate", "signs, Hadamard; 4 bits"),
            ("find", "find", "scan", "a few bytes of every class"),
            ("rank", "rank", "longer sketch", "optional"),
        ],
    )
    lane(
        axes,
        1.0,
        "probed tables",
        "tables → probes → sketch → exact",
        [
            codes,
            ("find", "find", "tables, probes", "likeliest buckets of all bands"),
            ("rank", "rank", "sketch", "of what the buckets held"),
        ],
    )
    axes.text(COLUMNS["rank"], 0.14, "+ always-candidates", ha="center", fontsize=9, color=INK)
    arrow(axes, (COLUMNS["rank"], 0.25), (COLUMNS["rank"], 1.0 - HALF))
    box(axes, (COLUMNS["exact"], 3.0), 2.3, "exact", "exact logits", r"$x \cdot w + b$ of K rows")
    box(axes, (COLUMNS["top"], 3.0), 1.5, "ends", "TopK", "classes, logits,\nlog_probs")
    arrow(axes, (COLUMNS["exact"] + 1.15, 3.0), (COLUMNS["top"] - 0.75, 3.0))
    folder = Path(__file__).parent
    figure.savefig(folder / "pipeline.png", dpi=130, facecolor="white")
    figure.savefig(folder / "pipeline.svg", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    draw()
