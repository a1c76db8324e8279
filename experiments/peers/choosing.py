"""A peer chooses its settings on the calibration half: the quickest that agree often enough with the exact winner."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from time import perf_counter

from experiments.peers.comparing import no_larger, spread
from experiments.peers.entries import TARGETS
from experiments.peers.judging import judge
from experiments.peers.peer import Floats, Ids, Peer, Setting
from experiments.peers.problem import Problem
from experiments.peers.timing import timed_runs

DEPTH = 10  # classes that are asked for
BATCHES = {"single": 1, "batch": 1000}  # the ways of asking, with the queries asked at once
ASKED = 2000  # queries by which a setting is chosen
GLANCE = 0.05  # seconds that a setting is timed to be chosen; what is chosen is timed with more patience
QUICK_SETTINGS = 6


@dataclass(frozen=True)
class Tried:
    """A setting on the calibration half: agreement, and µs per query by way of asking."""

    setting: Setting
    agreement: float
    single: float
    batch: float

    def microseconds(self, mode: str) -> float:
        """Return the time of a way of asking."""
        return float(asdict(self)[mode])


def try_settings(peer: Peer, calibration: Problem, until: float, quick: bool) -> list[Tried]:
    """Return what the settings of a built peer are worth, smallest first, as many as there is time for.

    A setting is left out when one that is no larger in any knob already reaches the highest target. until: a moment
    of `perf_counter`; at least one setting is tried.
    """
    settings = spread(peer.settings(), QUICK_SETTINGS) if quick else peer.settings()
    asked = calibration.first(peer.judged_queries or len(calibration.queries))
    tried: list[Tried] = []
    for setting in settings:
        enough = [other for other in tried if other.agreement >= max(TARGETS)]
        if any(no_larger(other.setting, setting) for other in enough):
            continue
        if tried and perf_counter() > until:
            break
        agreement = float(judge(peer.answers(asked.queries, DEPTH, setting), asked)["agreement"])
        times = {mode: glance(peer, asked.queries, setting, mode) for mode in BATCHES}
        tried.append(Tried(setting, agreement, **times))
    return tried


def glance(peer: Peer, queries: Floats, setting: Setting, mode: str) -> float:
    """Return µs per query, read in a moment."""
    return timed_runs(asking(peer, setting, mode), queries, BATCHES[mode], runs=1, seconds=GLANCE).median


def asking(peer: Peer, setting: Setting, mode: str) -> Callable[[Floats], Ids]:
    """Return a call that asks a peer in one of the two ways."""
    return partial(peer.search, k=DEPTH, setting=setting, batch_mode=mode == "batch")


def chosen(tried: Iterable[Tried], target: float, mode: str) -> Tried | None:
    """Return the quickest setting that reaches a target, None where none does."""
    good = [some for some in tried if some.agreement >= target]
    return min(good, key=lambda some: some.microseconds(mode), default=None)


def worth_judging(tried: list[Tried]) -> list[Tried]:
    """Return what is chosen for any target and way of asking; the closest where a target is missed."""
    picks = [chosen(tried, target, mode) for target in TARGETS for mode in BATCHES]
    if None in picks:
        picks.append(max(tried, key=lambda some: some.agreement))
    distinct = {str(some.setting): some for some in picks if some is not None}
    return list(distinct.values())
