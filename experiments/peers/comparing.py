"""The comparison of libraries over one problem: every contestant at every setting that may matter, one record each.

Records have the fields stage, kind and peer, and by kind:

- "result": setting, what `judge` returns (queries, accuracy, exact_accuracy, accuracy_kept, agreement, recall_at_10),
  us_batch1, us_batch{size} with the queries in it, build_seconds, bytes_per_class, row_bytes, nothing_lost;
- "update": us_update, the time to re-index one changed row, None where the library cannot;
- "missing": reason and install, where a library is absent.
"""

from collections.abc import Iterable
from time import perf_counter
from typing import Any

import numpy as np

from experiments.frame.stages import Run
from experiments.peers import Contestant
from experiments.peers.measuring import LARGE_BATCH, build_timed, measure_setting
from experiments.peers.peer import Peer, Setting
from experiments.peers.problem import Problem

NOTHING_LOST = 0.999  # of accuracy and of the exact winners; what takes longer than that is not worth measuring
QUICK_SETTINGS = 4  # of each peer, in a quick run
CHANGED_ROWS = 200  # over which the time to re-index a row is read


def compare_peers(
    run: Run,
    stage: str,
    problem: Problem,
    contestants: Iterable[Contestant],
    batches: tuple[int, ...] = (LARGE_BATCH,),
    updates: bool = False,
) -> None:
    """Write the records that a stage lacks: one per peer and setting, each peer built once.

    batches: sizes at which a query is timed, besides one at a time. updates: whether to time changes of a row as well.
    With --quick, few settings of each and short timings.
    """
    work = []
    for contestant in contestants:
        peer = contestant(problem.classes, problem.features, run.options.threads)
        settings, update = settings_left(run, stage, peer), updates and not _recorded(run, stage, "update", peer)
        if settings or update:
            work.append((contestant, settings, update))
    completed = 0
    with run.progress(sum(len(settings) for _, settings, _ in work), "settings") as show:
        for contestant, settings, update in work:
            peer = contestant(problem.classes, problem.features, run.options.threads)  # a new one: the last is let go
            show(completed, f"building {peer.name}")
            try:
                built = build_timed(peer, problem.rows, problem.bias)
            except ImportError as absent:
                _record_missing(run, stage, peer, absent)
                completed += len(settings)
                continue
            for setting in settings:
                show(completed, f"{peer.name} {setting_in_words(setting)}")
                if not _covered(run, stage, peer, setting):
                    _measure(run, stage, problem, peer, setting, batches, built)
                completed += 1
            if update:  # last, because a graph does not come back to what it was when a row is put back
                spent = microseconds_update(peer, problem)
                run.records.write(stage=stage, kind="update", peer=peer.name, us_update=spent)


def settings_left(run: Run, stage: str, peer: Peer) -> list[Setting]:
    """Return the settings of a peer that are neither recorded nor made needless by one that is."""
    wanted = spread(peer.settings(), QUICK_SETTINGS) if run.options.quick else peer.settings()
    unmeasured = [setting for setting in wanted if not _recorded(run, stage, "result", peer, setting=setting)]
    return [setting for setting in unmeasured if not _covered(run, stage, peer, setting)]


def spread(settings: list[Setting], count: int) -> list[Setting]:
    """Return at most so many of the settings, from the first to the last."""
    if len(settings) <= count:
        return settings
    return [settings[round(place * (len(settings) - 1) / (count - 1))] for place in range(count)]


def microseconds_update(peer: Peer, problem: Problem) -> float | None:
    """Return the median µs to re-index one slightly changed row, None if the peer cannot."""
    random = np.random.default_rng(4)
    chosen = random.choice(problem.classes, min(CHANGED_ROWS, problem.classes), replace=False)
    seconds = []
    for row_id in chosen:
        row = problem.rows[row_id].copy()
        moved = row + 0.05 * row.std() * random.standard_normal(len(row), dtype=np.float32)
        start = perf_counter()
        if not peer.update_one(int(row_id), moved):
            return None
        seconds.append(perf_counter() - start)
        peer.update_one(int(row_id), row)
    return float(np.median(seconds)) * 1e6


def setting_in_words(setting: Setting) -> str:
    """Return a setting as one reads it: probes 8, refine 4."""
    return ", ".join(f"{knob} {value}" for knob, value in setting.items())


def _measure(
    run: Run,
    stage: str,
    problem: Problem,
    peer: Peer,
    setting: Setting,
    batches: tuple[int, ...],
    built: dict[str, Any],
) -> None:
    measured = measure_setting(peer, problem, setting, batches, min_seconds=0.02 if run.options.quick else 0.5)
    kept = measured["accuracy_kept"]
    nothing_lost = kept is not None and min(kept, measured["agreement"]) >= NOTHING_LOST
    run.records.write(
        stage=stage, kind="result", peer=peer.name, setting=setting, **measured, **built, nothing_lost=nothing_lost
    )


def _recorded(run: Run, stage: str, kind: str, peer: Peer, **fields: object) -> bool:
    return run.records.done(stage=stage, kind=kind, peer=peer.name, **fields)


def _covered(run: Run, stage: str, peer: Peer, setting: Setting) -> bool:
    """Return whether a setting that is no larger in any knob already loses nothing: this one can only be slower."""
    smaller = [other for other in peer.settings() if no_larger(other, setting)]
    return any(_recorded(run, stage, "result", peer, setting=other, nothing_lost=True) for other in smaller)


def no_larger(smaller: Setting, setting: Setting) -> bool:
    """Return whether one setting is another, and larger in no knob: it can only be quicker."""
    return smaller != setting and all(
        not isinstance(value, str) and smaller[knob] <= value for knob, value in setting.items()
    )


def _record_missing(run: Run, stage: str, peer: Peer, absent: ImportError) -> None:
    run.console.print(f"  {peer.name} is missing ({absent}): {peer.install}", highlight=False, markup=False)
    record = {"stage": stage, "kind": "missing", "peer": peer.name, "reason": str(absent), "install": peer.install}
    if not run.records.done(**record):
        run.records.write(**record)
