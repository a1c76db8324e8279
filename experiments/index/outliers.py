"""What one outlier costs everybody else: a class of hostile bias or length, at build and by a change of its row."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from experiments.frame.stages import Run
from experiments.peers import Contestant, Peer
from experiments.peers.judging import judge
from experiments.peers.peer import Setting
from experiments.peers.problem import Problem

STAGE = "outliers"
DEPTH = 10
HUGE = 1e4
CASES = {  # name → what is done to the last class
    "none": "nothing",
    "masked": "its bias is −1e9, as one masks a class",
    "long": "its row is 10,000 times as long",
    "there and back": "its row becomes 10,000 times as long, and what it was again, in place",
}


def run_outliers(run: Run, problem: Problem, contestants: Iterable[Contestant]) -> None:
    """Write a record for every peer and case that the records lack; a peer that cannot change a row has one fewer."""
    problem = replace(problem, bias=np.zeros(problem.classes, np.float32) if problem.bias is None else problem.bias)
    with run.progress(len(list(contestants)) * len(CASES), "builds") as show:
        for number, contestant in enumerate(contestants):
            for place, case in enumerate(CASES):
                peer = contestant(problem.classes, problem.features, run.options.threads)
                show(number * len(CASES) + place, f"{peer.name}, {CASES[case]}")
                if not run.records.done(stage=STAGE, peer=peer.name, case=case):
                    _measure(run, peer, hostile(problem, case), case)


def hostile(problem: Problem, case: str) -> Problem:
    """Return the problem with its outlier, and those queries alone whose exact winner is another class."""
    rows, bias = problem.rows.copy(), problem.bias
    assert bias is not None
    bias = bias.copy()
    if case == "masked":
        bias[-1] = -1e9
    if case == "long":
        rows[-1] *= HUGE
    changed = Problem(rows, bias, problem.queries, problem.labels)
    others = changed.exact.classes[:, 0] != problem.classes - 1
    return Problem(rows, bias, problem.queries[others], problem.labels[others])


def _measure(run: Run, peer: Peer, problem: Problem, case: str) -> None:
    key = {"stage": STAGE, "peer": peer.name, "case": case}
    try:
        peer.build(problem.rows, problem.bias)
    except ImportError as absent:
        run.records.write(kind="missing", reason=str(absent), install=peer.install, **key)
        return
    if case == "there and back":
        row = problem.rows[-1].copy()
        if not peer.update_one(problem.classes - 1, np.float32(HUGE) * row):
            run.records.write(kind="cannot", **key)
            return
        peer.update_one(problem.classes - 1, row)
    setting = largest(peer)
    found = peer.answers(problem.queries, DEPTH, setting)
    run.records.write(kind="result", setting=setting, **key, **judge(found, problem))


def largest(peer: Peer) -> Setting:
    """Return a setting with all the effort that a peer is asked for elsewhere, short of looking at everything."""
    settings = peer.settings()
    return settings[min(len(settings) - 1, round(0.75 * len(settings)))]
