"""What was to be shown, and whether the records show it; what is missed is said as plainly as what is reached."""

from experiments.frame.records import Record, Records
from experiments.frame.wording import duration, number, percent, times
from experiments.video_id.results import accuracy_at, best_so_far, by_head, curves, quickest_at

Verdict = tuple[str, bool | None, str]  # what was to be shown, whether it is (None: not measured), the figures
OTHERS = ("full", "hierarchical")
QUARTERS = (0.25, 0.5, 0.75, 1.0)
TRAININGS = {"all videos,": "end_to_end", "fewer,": "fewer_videos"}
NOT_YET = "not measured yet"
STEP_GOALS = {"full": (0.25, "a quarter of"), "hierarchical": (2.0, "twice")}  # our whole step, beside theirs
HEAD_GOAL, TRUNK_GOAL = 1 / 50, 1.3  # at 1.2M: our head's part of softmax's, our whole step of the trunk alone
MEAN_GOAL, QUERY_GOAL = 0.95, 1000.0  # of the nearest mean's accuracy; µs


def verdicts(records: Records) -> list[Verdict]:
    """Return a verdict for each goal, also for those that nothing is recorded of."""
    learned = curves(records, "end_to_end")
    return [
        *(ahead_by_steps(records, other) for other in OTHERS),
        *(ahead_by_time(learned, other) for other in (*OTHERS, "sampled")),
        *(step_verdict(by_head(records, "step_parts"), other) for other in OTHERS),
        *million_step_verdicts(by_head(records, "million_steps")),
        mean_verdict(records),
        query_verdict(records),
    ]


def ahead_by_steps(records: Records, other: str) -> Verdict:
    """Return whether we are at least as good after as many steps, from the first quarter of the training on.

    In every training in which the other layer came so far: over all videos full softmax does not.
    """
    goal = f"As good as {other} softmax after as many steps, from the first quarter on, wherever that comes so far"
    found = []
    for said, stage in TRAININGS.items():
        learned = curves(records, stage)
        if not {"candidate", other} <= set(learned):
            continue
        ours, theirs = learned["candidate"], learned[other]
        places = [(share, share * ours[-1]["step"]) for share in QUARTERS]
        found += [(f"{said} {share:.0%}", accuracy_at(ours, "step", place), accuracy_at(theirs, "step", place))
                  for share, place in places if place <= theirs[-1]["step"]]  # fmt: skip
    if not found:
        return goal, None, NOT_YET
    told = "; ".join(f"{where} {percent(ours)} and {percent(theirs)}" for where, ours, theirs in found)
    return goal, all(ours >= theirs for _, ours, theirs in found), told


def ahead_by_time(learned: dict[str, list[Record]], other: str) -> Verdict:
    """Return whether we are ahead at every quarter of the time that both have; sampled softmax may come out even.

    By the best so far: within a pass over the videos accuracy falls and rises again, in other moments for each layer.
    """
    even = other == "sampled"
    goal = "Sampled softmax is not above us against time" if even else f"Clearly above {other} softmax against time"
    if not {"candidate", other} <= set(learned):
        return goal, None, NOT_YET
    end = min(learned["candidate"][-1]["seconds"], learned[other][-1]["seconds"])
    ours, theirs = (best_so_far(learned[head]) for head in ("candidate", other))
    found = [(share * end, *(accuracy_at(curve, "seconds", share * end) for curve in (ours, theirs)))
             for share in QUARTERS]  # fmt: skip
    told = "; ".join(f"{percent(own)} and {percent(rival)} after {duration(time)}" for time, own, rival in found)
    return goal, all(own >= rival if even else own > 1.1 * rival for _, own, rival in found), told


def step_verdict(found: dict[str, Record], other: str) -> Verdict:
    """Return whether our whole step is short enough beside another layer's."""
    most, said = STEP_GOALS[other]
    goal = f"Whole step at most {said} {other} softmax's"
    if not {"candidate", other} <= set(found):
        return goal, None, NOT_YET
    ours, theirs = found["candidate"]["step_ms"], found[other]["step_ms"]
    return goal, ours <= most * theirs, f"{number(ours)} ms and {number(theirs)} ms"


def head_ms(record: Record) -> float:
    """Return the part of a step that is the output layer's."""
    return float(sum(record[f"{part}_ms"] for part in ("find", "logits", "update", "refresh")))


def million_step_verdicts(found: dict[str, Record]) -> list[Verdict]:
    """Return the two goals on a step over all scenes."""
    goals = ("All scenes: the head's part at most 1/50 of softmax's", "… the whole step at most 1.3× the trunk alone")
    ours, full = found.get("candidate"), found.get("full")
    first: Verdict = (goals[0], None, NOT_YET)
    second: Verdict = (goals[1], None, NOT_YET)
    if ours and full:
        parts = head_ms(ours), head_ms(full)
        first = goals[0], parts[0] <= HEAD_GOAL * parts[1], f"{number(parts[0])} ms and {number(parts[1])} ms"
    if ours:
        whole = ours["step_ms"] - ours["frames_ms"]
        second = goals[1], whole <= TRUNK_GOAL * ours["trunk_ms"], times(whole / ours["trunk_ms"])
    return [first, second]


def mean_verdict(records: Records) -> Verdict:
    """Return whether the layer over all scenes comes near the exact nearest class mean."""
    goal = "All scenes: at least 95% of the accuracy of the exact nearest class mean"
    trained, nearest = records.last(stage="million", kind="result"), records.last(stage="million", kind="nearest_mean")
    if not trained or not nearest:
        return goal, None, NOT_YET
    told = f"{percent(trained['accuracy'])} and {percent(nearest['accuracy'])}"
    return goal, trained["accuracy"] >= MEAN_GOAL * nearest["accuracy"], told


def query_verdict(records: Records) -> Verdict:
    """Return whether one query is answered in time."""
    goal = "All scenes: one query under 1 ms on one core at 99% of the exact accuracy"
    if not records.done(stage="latency", kind="result"):
        return goal, None, NOT_YET
    found = quickest_at(records, 0.99)
    if found is None:
        return goal, False, "no setting keeps so much"
    return goal, found["us"] < QUERY_GOAL, f"{number(found['us'])} µs with {found['candidates']} candidates"
