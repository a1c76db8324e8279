"""The contest of libraries over one layer: each chooses builds and settings on one half of the queries, within the
same time, and is judged on the other half.

Records have the fields stage, kind and entry, and by kind:

- "judged": build, setting, what `judge` returns on the judging half (queries, accuracy, exact_accuracy, accuracy_kept,
  agreement, recall_at_10), the median of three runs as us_single and us_batch with their spread, what the choice was
  made by as calibration (agreement, single, batch), sample (queries it learned from, 0 if none), floor_single and
  floor_batch of ours (see floor.py), and what `build_timed` returns;
- "tried": build and the settings tried, which closes a build;
- "update": us_update, the time to re-index one changed row, None where the library cannot;
- "entry": builds tried and offered, which closes an entry; "missing": reason and install, where a library is absent.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from time import perf_counter
from typing import Any

from experiments.frame.stages import Run
from experiments.peers import Contestant
from experiments.peers.choosing import ASKED, BATCHES, DEPTH, Tried, asking, try_settings, worth_judging
from experiments.peers.entries import Entry
from experiments.peers.floor import Rates, distinct_rows, measured_rates
from experiments.peers.judging import judge
from experiments.peers.manyclass_peer import Manyclass
from experiments.peers.measuring import build_timed, microseconds_update
from experiments.peers.peer import Floats, Peer
from experiments.peers.problem import Halves, Problem
from experiments.peers.timing import PAUSE, ROUNDS, RUN_SECONDS, timed_runs

QUICK_SECONDS = 0.02  # of a timing in a quick run


def entries_left(run: Run, stage: str, entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries that a stage has no result of."""
    return [entry for entry in entries if not run.records.done(stage=stage, kind="entry", entry=entry.name)]


def hold_contest(run: Run, stage: str, problem: Problem, entries: Iterable[Entry], seconds: float) -> None:
    """Write the records of every entry that the stage lacks.

    seconds: after which an entry begins no further build; every build has as long to try its settings.
    """
    left = [entry for entry in entries_left(run, stage, entries) if entry.enters(problem.classes)]
    if not left:
        return
    with run.progress(len(left), "libraries") as show:
        show(0, "exact answers")
        halves = problem.halves()
        asked = halves.calibration.first(ASKED)  # once for all: their exact answers stay known
        rates = _rates(run, stage, halves)
        for place, entry in enumerate(left):
            _enter(run, stage, halves, asked, entry, rates, seconds, partial(show, place))


def _rates(run: Run, stage: str, halves: Halves) -> Rates:
    """Return what the machine does on these rows, recorded with the stage."""
    rounds, pause = (1, 0.0) if run.options.quick else (ROUNDS, PAUSE)
    rates = measured_rates(halves.judging.rows, run.options.threads, rounds, pause)
    run.records.write(stage=stage, kind="rates", **asdict(rates))
    return rates


def _enter(
    run: Run,
    stage: str,
    halves: Halves,
    asked: Problem,
    entry: Entry,
    rates: Rates,
    seconds: float,
    show: Callable[[str], None],
) -> None:
    """Build, choose and judge, one build after the other while there is time."""
    key = {"stage": stage, "entry": entry.name}
    until, begun = perf_counter() + seconds, 0
    for words, contestant in entry.builds.items():
        if begun and perf_counter() > until:
            break
        begun += 1
        if run.records.done(kind="tried", build=words, **key):
            continue
        show(f"{entry.name}: {words}")
        peer = _peer(run, halves, contestant)
        try:
            built = build_timed(peer, halves.judging.rows, halves.judging.bias)
        except ImportError as absent:
            run.console.print(f"  {entry.name} is missing ({absent}): {peer.install}", highlight=False, markup=False)
            run.records.write(kind="missing", reason=str(absent), install=peer.install, **key)
            break
        built["sample"] = 0 if peer.sample is None else len(peer.sample)
        tried = try_settings(peer, asked, seconds, run.options.quick)
        for some in worth_judging(tried):
            judged = _judged(run, peer, halves.judging, some, rates)
            run.records.write(kind="judged", build=words, **key, **judged, **built)
        if not run.records.done(kind="update", **key):  # of the first build, and last: a graph does not come back
            run.records.write(kind="update", us_update=microseconds_update(peer, halves.judging), **key)
        run.records.write(kind="tried", build=words, settings=[asdict(some) for some in tried], **key)
    run.records.write(kind="entry", builds=begun, offered=len(entry.builds), **key)


def _peer(run: Run, halves: Halves, contestant: Contestant) -> Peer:
    judging = halves.judging
    peer = contestant(judging.classes, judging.features, run.options.threads)
    peer.sample = learned_from(halves) if peer.takes_queries else None
    return peer


def learned_from(halves: Halves) -> Floats:
    """Return what a peer may learn from: queries other than those it chooses settings by, where there are enough.

    Who chose by queries that it had learned from would find itself better than it is.
    """
    queries = halves.calibration.queries
    return queries[ASKED:] if len(queries) >= 2 * ASKED else queries


def _judged(run: Run, peer: Peer, judging: Problem, some: Tried, rates: Rates) -> dict[str, Any]:
    """Return the record of a setting on the half that nobody chose by."""
    asked = judging.first(peer.judged_queries or len(judging.queries))
    measured = judge(peer.answers(asked.queries, DEPTH, some.setting), asked)
    seconds = QUICK_SECONDS if run.options.quick else RUN_SECONDS
    for mode, size in BATCHES.items():
        runs = timed_runs(asking(peer, some.setting, mode), judging.queries, size, seconds=seconds)
        measured |= {f"us_{mode}": runs.median, f"spread_{mode}": runs.spread}
        if isinstance(peer, Manyclass):
            measured[f"floor_{mode}"] = _floor(peer, judging, some.setting["candidates"], size, rates)
    calibration = {"agreement": some.agreement, "single": some.single, "batch": some.batch}
    return {"setting": some.setting, "calibration": calibration, **measured}


def _floor(peer: Manyclass, judging: Problem, candidates: int, batch: int, rates: Rates) -> float:
    """Return the µs per query below which nobody gets who scores so many candidates exactly."""
    batch = min(batch, len(judging.queries))
    found = peer.index.shortlist(judging.queries[:batch], candidates, threads=peer.threads)
    return rates.seconds(distinct_rows(found), found.size, judging.features) / batch * 1e6
