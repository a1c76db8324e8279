"""The paper's time table as a page of markdown, from the records alone."""

from experiments.index.paper_table import SCAN

TITLES = {
    ("float32", SCAN): "Scan of 512 bits, float32 rows",
    ("float32", "paper"): "Paper's pipeline, float32 rows",
    ("float16", SCAN): "Scan of 512 bits, float16 rows",
}
HEADER = "| batch | K | accuracy kept | ours, ms | exact, ms | speed-up | goal | ceiling | over torch softmax | paper |"


def page(records: list[dict]) -> str:
    """Return one table per line of TITLES that was measured."""
    machine = records[-1]["machine"]
    text = "# The paper's table: 21,900 classes, 4096 features, the layer alone\n\n"
    text += (
        f"{machine['cpu']}, {machine['threads']} threads. Rows and queries are made (see `imagenet_like.py`): times "
    )
    text += (
        "carry over to a trained layer of this size, accuracy kept need not. Exact is the fastest of torch and NumPy, "
    )
    text += (
        "both orientations, same run. Ceiling: what the exact time allows if reading the distinct candidate rows were "
    )
    text += "all the work. A cell counts only at .95 / .99 / .999 accuracy kept for K = 30 / 300 / 3000.\n"
    for key, title in TITLES.items():
        cells = [r for r in records if (r["row_type"], r["pipeline"]) == key]
        if cells:
            text += f"\n## {title}: {cells[0]['stages']}\n\n{HEADER}\n|{'---:|' * 10}\n"
            text += "".join(_line(r) for r in sorted(cells, key=lambda r: (r["batch"], r["candidates"])))
    return text


def _line(r: dict) -> str:
    mark = "" if r["counts"] else " (does not count)"
    reached = "**" if r["counts"] and r["speedup"] >= r["goal"] else ""
    times = f"{r['ours_ms']:.3f} | {r['exact_ms']:.1f} | {reached}{r['speedup']:.1f}×{reached}"
    return (
        f"| {r['batch']} | {r['candidates']} | {r['accuracy_kept']:.4f}{mark} | {times} | {r['goal']}× "
        f"| {r['ceiling']:.1f}× | {r['speedup_torch']:.1f}× | {r['paper_speedup']}× |\n"
    )
