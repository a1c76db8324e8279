"""A real experiment of two stages, small enough for tests: estimate pi from random points, then judge the estimates.

As a program it is the command `python -m experiments` with this experiment added.
"""

import math
import os
import signal
import time
from pathlib import Path

import numpy as np

from experiments import EXPERIMENTS
from experiments.frame.drawing import canvas, save
from experiments.frame.needs import Need, package
from experiments.frame.page import Fact, Figure, Page, Section, Table, Text
from experiments.frame.records import Records
from experiments.frame.stages import Experiment, Options, Run, Stage

ESTIMATES = 12
PAUSE = float(os.environ.get("TINY_PAUSE", "0"))


def estimate(run: Run) -> None:
    """Record an estimate for every number of points."""
    with run.progress(ESTIMATES, "estimates") as show:
        for number in range(ESTIMATES):
            if run.records.done(stage="estimate", number=number):
                continue
            points = np.random.default_rng((run.options.seed, number)).random((100 * 2**number, 2))
            inside = float((np.linalg.norm(points, axis=1) < 1).mean())
            run.records.write(stage="estimate", number=number, points=len(points), pi=4 * inside)
            show(number + 1, f"{4 * inside:.3f}")
            time.sleep(PAUSE)
    (run.cache / "large.txt").write_text("can be made again")


def judge(run: Run) -> None:
    """Record the largest error."""
    worst = max(abs(record["pi"] - math.pi) for record in run.records.select(stage="estimate", kind=None))
    run.records.write(stage="judge", kind="result", worst=worst)


def stages(options: Options) -> list[Stage]:
    """Return both stages."""
    return [Stage("estimate", "Estimate pi", 0.1, estimate), Stage("judge", "Judge the estimates", 0.1, judge)]


def page(records: Records, folder: Path) -> Page:
    """Return a page with a figure, a wide table and text that needs escaping."""
    found = records.select(stage="estimate", kind=None)
    figure, (axis,) = canvas(1, width=8, height=4)
    axis.plot([record["points"] for record in found], [record["pi"] for record in found], color="#d1361f", marker="o")
    axis.set(xscale="log", xlabel="points", ylabel="estimate of pi")
    drawing = Figure("estimates", save(figure, folder, "estimates"), "Estimates & points.", "Estimates near 3.14")
    rows = [[record["number"], record["points"], *[f"{record['pi']:.6f}"] * 9] for record in found]
    table = Table(
        ["number", "points", *[f"a rather wide column {n}" for n in range(9)]], rows, "All estimates", "", {0}
    )
    judged = records.last(stage="judge", kind="result")
    verdict = f"Worst error {judged['worst']:.3f}." if judged else "Not run yet: `judge`."
    sections = [Section("Estimates", "Text & <b>more</b>.", [drawing, table]), Section("Verdict", "", [Text(verdict)])]
    return Page(
        "Pi, by chance", "A **tiny** experiment.", [Fact("3.14", "pi"), Fact(str(len(found)), "runs")], sections
    )


def needs() -> list[Need]:
    """Return one need that is there and one that is not."""
    return [package("numpy", "points"), Need("fonts-of-nowhere", None, "nothing", "apt-get install fonts-of-nowhere")]


EXPERIMENT = Experiment("tiny", "Pi, by chance", stages, page, needs)

if __name__ == "__main__":
    from experiments.__main__ import main

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would inherit it ignored
    EXPERIMENTS["tiny"] = "tiny_experiment"
    main()
