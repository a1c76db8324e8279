"""A peer chooses its settings on the calibration half: the quickest that agree often enough with the exact winner."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from time import perf_counter

from experiments.peers.entries import TARGETS
from experiments.peers.judging import judge
from experiments.peers.peer import Floats, Ids, Peer, Setting
from experiments.peers.problem import Problem
from experiments.peers.timing import timed_runs

DEPTH = 10  # classes that are asked for
BATCHES = {"single": 1, "batch": 1000}  # the ways of asking, with the queries asked at once
ASKED = 2000  # queries by which a setting is chosen
GLANCE = 0.05  # seconds that single queries are timed to choose; what is chosen is timed with more patience
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


def try_settings(peer: Peer, calibration: Problem, seconds: float, quick: bool) -> list[Tried]:
    """Return what the settings of a built peer are worth, smallest first, as many as there is time for.

    A setting is left out when one that is no larger in any knob already reaches the highest target. At least one
    setting is tried.
    """
    until = perf_counter() + seconds
    settings = spread(peer.settings(), QUICK_SETTINGS) if quick else peer.settings()
    asked = calibration.first(peer.judged_queries or len(calibration.queries))
    tried: list[Tried] = []
    for setting in settings:
        enough = [other for other in tried if other.agreement >= max(TARGETS)]
        if any(no_larger(other.setting, setting) for other in enough):
            continue
        if tried and perf_counter() > until:
            break
        start = perf_counter()
        found = asking(peer, setting, "batch")(asked.queries)
        batch = (perf_counter() - start) / len(found) * 1e6  # the batch that is judged tells the time as well
        single = timed_runs(asking(peer, setting, "single"), asked.queries, 1, runs=1, seconds=GLANCE).median
        tried.append(Tried(setting, float(judge(found, asked)["agreement"]), single, batch))
    return tried


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


def spread(settings: list[Setting], count: int) -> list[Setting]:
    """Return at most so many of the settings, from the first to the last."""
    if len(settings) <= count:
        return settings
    return [settings[round(place * (len(settings) - 1) / (count - 1))] for place in range(count)]


def no_larger(smaller: Setting, setting: Setting) -> bool:
    """Return whether one setting is another, and larger in no knob: it can only be quicker."""
    return smaller != setting and all(
        not isinstance(value, str) and smaller[knob] <= value for knob, value in setting.items()
    )
