"""The goals of the experiment, set before anything was measured, and what came of each."""

from dataclasses import dataclass
from statistics import median

from experiments.distributed.learning_figures import mean_of
from experiments.distributed.simulation_figures import largest_error
from experiments.frame.page import Table
from experiments.frame.records import Records
from experiments.frame.wording import number, percent, times, whole

LEAST_OF_PLAIN = 0.99  # of the plain loop's accuracy
LEAST_SAVED = 10  # times fewer bytes by activations than by rows
PUSHES, FAULTS = 10_000, 100


@dataclass(frozen=True)
class Goal:
    """A goal. reached: None where there is none to reach, only something to tell."""

    what: str
    wanted: str
    found: str
    reached: bool | None


def goals(records: Records) -> list[Goal]:
    """Return the goals that something was measured for."""
    return [*_of_learning(records), *_of_bytes(records), *_of_faults(records), *_of_prediction(records)]


def goals_table(records: Records) -> Table:
    """Return all goals with what came of them."""
    words, found = {True: "reached", False: "missed", None: ""}, goals(records)
    rows = [[words[goal.reached], goal.what, goal.wanted, goal.found] for goal in found]
    missed = [place for place, goal in enumerate(found) if goal.reached is False]
    return Table(["", "", "goal", "measured"], rows, "", "llll", emphasised=missed)


def goals_sentence(records: Records) -> str:
    """Return which goals are missed, in a sentence."""
    found = goals(records)
    if not found:
        return "Not measured yet: the experiment `distributed`."
    missed = [f"{goal.what}: {goal.found} (goal: {goal.wanted})" for goal in found if goal.reached is False]
    return f"Missed: {'; '.join(missed)}." if missed else "All goals of the experiment are reached."


def _of_learning(records: Records) -> list[Goal]:
    plain, speed = (mean_of(records, "plain loop", field) for field in ("accuracy", "examples_per_second"))
    if not plain or not speed:
        return []
    found = []
    for engine, name in (("threads", "threads"), ("ray", "Ray")):
        for workers in (2, 4):
            share = mean_of(records, engine, "accuracy", workers=workers, transport="activations")
            if share is not None:
                found.append(Goal(f"accuracy with {workers} workers, {name}",
                                  f"{percent(LEAST_OF_PLAIN)} of the plain loop's", percent(share / plain),
                                  share >= LEAST_OF_PLAIN * plain))  # fmt: skip
        rate = mean_of(records, engine, "examples_per_second", workers=1, transport="activations")
        if rate is not None:
            found.append(Goal(f"cost of the engine, {name}, one worker", "told",
                              f"{times(rate / speed)} the plain loop's speed", None))  # fmt: skip
    return found


def _of_bytes(records: Records) -> list[Goal]:
    counted = {(record["batch"], record["shards"], record["transport"]): record["bytes"]
               for record in records.select(kind="bytes")}  # fmt: skip
    saved = {(batch, shards): counted[batch, shards, "rows"] / count for (batch, shards, kind), count in counted.items()
             if kind == "activations" and (batch, shards, "rows") in counted}  # fmt: skip
    if not saved:
        return []
    batch, shards = min(saved, key=saved.__getitem__)
    least = saved[batch, shards]
    wanted = f"{LEAST_SAVED}× fewer, up to 16 shards"
    told = f"{times(least)} fewer at the least (batch {batch}, {shards} shards)"
    return [Goal("bytes per step, activations instead of rows", wanted, told, least >= LEAST_SAVED)]


def _of_faults(records: Records) -> list[Goal]:
    found = []
    kills = records.select(kind="recovery")
    if kills:
        push, step = (median(record[field] for record in kills) for field in ("pause_seconds", "step_pause_seconds"))
        found.append(Goal(f"from a killed shard ({number(kills[0]['gigabytes'])} GB) to the next applied push", "told",
                          f"{number(push)} s; to the next step with a look-up {number(step)} s", None))  # fmt: skip
    verdicts = records.select(kind="chaos")
    if verdicts:
        pushes = sum(record["acknowledged"] for record in verdicts)
        faults = sum(sum(record["faults"].values()) for record in verdicts)
        holds = all(record["holds"] for record in verdicts)
        found.append(Goal("pushes through faults", f"exactly once: {whole(PUSHES)} pushes, {FAULTS} faults",
                          f"{'they hold' if holds else 'they do not hold'}: {whole(pushes)} acknowledged, {faults} "
                          "faults", holds and pushes >= PUSHES and faults >= FAULTS))  # fmt: skip
    return found


def _of_prediction(records: Records) -> list[Goal]:
    error = largest_error(records)
    return [Goal("simulated beside real speed, 1, 2 and 4 workers", "told", f"at most {percent(error)} off", None)
            ] if error else []  # fmt: skip
