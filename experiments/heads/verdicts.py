"""What the runs on the tasks say: is the candidate head ahead at every tenth, how soon is it good, and per step?

Runs of one seed see the same data, so heads are compared seed by seed. At a tenth of the time a head is behind another
if it is with every seed; if the differences of the seeds lie on both sides of zero, the two are equal within the
spread. A verdict is None where runs are lacking.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from experiments.frame.records import Record, Records
from experiments.heads.sizes import per_step_stage, seconds_stage
from experiments.heads.tables import Curve, newest, steps_to

OURS = "candidate"
NEAR_BEST = 0.95  # share of the best final score, the time to which is told
MOST_TIME, TASKS_IN_TIME = 0.8, 4  # of the best other head's time to it, on so many tasks
LEAST_PER_STEP = 0.99  # of full softmax's final score after as many steps
Runs = dict[str, list[Record]]  # of each head, one for each seed


def runs_by_head(records: Records, stage: str) -> Runs:
    """Return the newest run of every head and seed, heads in the order of their first run."""
    heads: Runs = {}
    for found in newest(records, stage, "head", "seed").values():
        heads.setdefault(str(found["head"]), []).append(found)
    return {head: sorted(runs, key=lambda run: int(run["seed"])) for head, runs in heads.items()}


def tenths(runs: Sequence[Record]) -> list[list[float]]:
    """Return for each tenth the scores of all seeds."""
    return [[score for _, _, score in points] for points in zip(*(run["curve"] for run in runs), strict=True)]


def mean_against_time(runs: Sequence[Record]) -> Curve:
    """Return (seconds, mean of the seeds) at every tenth; seconds are the tenths of what was given."""
    budget, scores = runs[0]["budget"], tenths(runs)
    return [(budget * (place + 1) / len(scores), mean(values)) for place, values in enumerate(scores)]


def at_the_end(runs: Runs) -> tuple[float, float, str] | None:
    """Return the mean final score of ours, that of the best other head, and which that is; None: runs are lacking."""
    if OURS not in runs or len(runs) < 2:
        return None
    scores = {head: mean(run["score"] for run in found) for head, found in runs.items()}
    best = max((head for head in scores if head != OURS), key=scores.__getitem__)
    return scores[OURS], scores[best], best


def behind_at(ours: Sequence[Record], other: Sequence[Record]) -> list[int]:
    """Return the tenths, from 1 on, at which the other head is ahead with every seed that both have."""
    theirs = {run["seed"]: run["curve"] for run in other}
    pairs = [(run["curve"], theirs[run["seed"]]) for run in ours if run["seed"] in theirs]
    return [
        place + 1
        for place in range(min((len(curve) for pair in pairs for curve in pair), default=0))
        if all(mine[place][2] < their[place][2] for mine, their in pairs)
    ]


def ahead_or_equal(runs: Runs) -> bool | None:
    """Return whether ours is behind no other head at any tenth."""
    if OURS not in runs or len(runs) < 2:
        return None
    return not any(behind_at(runs[OURS], other) for head, other in runs.items() if head != OURS)


@dataclass(frozen=True)
class TimeToNearBest:
    """Seconds to 95% of the best final score, of ours and of the quickest other head; None: not reached."""

    level: float
    ours: float | None
    other: float | None
    other_head: str | None
    budget: float

    @property
    def ratio(self) -> float | None:
        """Ours / the best other's; where no other head gets there, / the whole time, which is too much."""
        return None if self.ours is None else self.ours / (self.budget if self.other is None else self.other)

    @property
    def in_time(self) -> bool:
        """Whether ours needs at most 0.8 of the other's time."""
        return self.ratio is not None and self.ratio <= MOST_TIME


def time_to_near_best(runs: Runs) -> TimeToNearBest | None:
    """Return how soon ours and the quickest other head are near the best final score of all."""
    if OURS not in runs or len(runs) < 2:
        return None
    curves = {head: mean_against_time(found) for head, found in runs.items()}
    level = NEAR_BEST * max(curve[-1][1] for curve in curves.values())
    reached = {head: steps_to(curve, level) for head, curve in curves.items()}
    others = {head: seconds for head, seconds in reached.items() if head != OURS and seconds is not None}
    quickest = min(others, key=others.__getitem__, default=None)
    other = None if quickest is None else others[quickest]
    return TimeToNearBest(level, reached[OURS], other, quickest, runs[OURS][0]["budget"])


def share_of_full(runs: Runs) -> float | None:
    """Return the mean final score of ours as a share of full softmax's, after as many steps."""
    if not {OURS, "full"} <= runs.keys():
        return None
    ours, full = (mean(run["score"] for run in runs[head]) for head in (OURS, "full"))
    return ours / full if full else None


@dataclass(frozen=True)
class Verdict:
    """What is claimed, and whether it holds; None: not enough of it is measured."""

    claim: str
    holds: bool | None
    detail: str


def verdicts(records: Records, tasks: Sequence[str], per_step_tasks: Sequence[str]) -> list[Verdict]:
    """Return the three claims over all tasks; one that fails on a task fails, whatever is not measured."""
    runs = {task: runs_by_head(records, seconds_stage(task)) for task in tasks}
    ahead = {task: ahead_or_equal(found) for task, found in runs.items()}
    soon = {task: time_to_near_best(found) for task, found in runs.items()}
    in_time = [task for task, found in soon.items() if found and found.in_time]
    unknown = [task for task, found in soon.items() if found is None]
    shares = {task: share_of_full(runs_by_head(records, per_step_stage(task))) for task in per_step_tasks}
    kept = {task: None if share is None else share >= LEAST_PER_STEP for task, share in shares.items()}
    enough: bool | None = len(in_time) >= TASKS_IN_TIME
    if not enough and len(in_time) + len(unknown) >= TASKS_IN_TIME:
        enough = None
    return [
        Verdict("ahead of every other head or equal to it, at every tenth of the time, on every task", _all(ahead),
                _told(ahead)),
        Verdict(f"near the best final score in at most {MOST_TIME} of the best other head's time, on at least "
                f"{TASKS_IN_TIME} of {len(tasks)} tasks", enough, f"on {len(in_time)}: {', '.join(in_time) or 'none'}"
                + (f"; not measured: {', '.join(unknown)}" if unknown else "")),
        Verdict(f"at least {LEAST_PER_STEP:.0%} of full softmax's final score after as many steps, where full softmax "
                "can finish", _all(kept), _told(kept)),
    ]  # fmt: skip


def _all(found: dict[str, bool | None]) -> bool | None:
    if False in found.values():
        return False
    return None if None in found.values() or not found else True


def _told(found: dict[str, bool | None]) -> str:
    said = {True: "yes", False: "no", None: "not measured"}
    groups = {word: [task for task, holds in found.items() if said[holds] == word] for word in said.values()}
    return "; ".join(f"{word}: {', '.join(tasks)}" for word, tasks in groups.items() if tasks)
