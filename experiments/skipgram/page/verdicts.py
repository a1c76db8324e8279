"""What was to be shown, and whether the records show it; what is missed is said as plainly as what is reached."""

import math
from collections.abc import Iterable
from statistics import fmean

from experiments.frame.records import Record, Records
from experiments.frame.wording import ABSENT, number, percent, whole
from experiments.skipgram.names import SHORT
from experiments.skipgram.page import paper
from experiments.skipgram.page.tables import analogy, falling_results, results, words_per_second

EXPLAINS = 0.8  # a change that leaves less than this share of the analogies explains something
CHANCE = 2.0  # standard errors
UNDECIDED = "Undecided, as chance may have done it"
CONCLUSIONS = {  # by the role of a change: what follows where it has less, as many or more of the analogies
    "suspicion": {"less": "Borne out", "alike": "Refuted, as they cost less than a fifth",
                  "more": "Refuted, as they help", "undecided": UNDECIDED},
    "repair": {"less": "Makes it worse", "alike": "Repairs nothing", "more": "Repairs", "undecided": UNDECIDED},
}  # fmt: skip
MILLION = 1_000_000
SMALL_KS = ("1", "3", "5", "10", "20")
Verdict = tuple[str, bool, str]  # what was to be shown, whether it is, and the figures


def verdicts(records: Records) -> list[Verdict]:
    """Return a verdict for each goal that the records can tell of."""
    found = results(records)
    made: list[Verdict | None] = [
        precision_verdict(found, "hierarchical", "Our precision is above hierarchical softmax's at every k"),
        precision_verdict(
            falling_results(records), "hierarchical", "It is so where the rates of both fall, as those of peers do"
        ),
        precision_verdict(found, "gensim hierarchical", "It is above that of gensim's tree at every k, too"),
        precision_verdict(
            found, "hierarchical", "It is twice hierarchical softmax's at k = 1 to 20", least=2.0, ks=SMALL_KS
        ),
        precision_verdict(
            means_of_seeds(records), "full", "Our precision is at least full softmax's at equal time, at every k, where"
            " the vocabulary allows one", least=1.0,
        ),
        tree_verdict(found),
        speed_verdict(found),
        *(analogy_verdict(found, other) for other in ("hierarchical", "gensim hierarchical", "gensim negative")),
        cluster_verdict(records),
        growth_verdict(records),
    ]  # fmt: skip
    return [verdict for verdict in made if verdict]


def precision_verdict(
    found: dict[str, Record], other: str, goal: str, least: float | None = None, ks: Iterable[str] = paper.PRECISION
) -> Verdict | None:
    """Return whether candidate softmax is above another at every k, or at least so many times as precise."""
    if not {"candidate", other} <= set(found):
        return None
    ours, theirs = (found[name]["prediction"]["precision"] for name in ("candidate", other))
    shown = all(ours[k] > theirs[k] if least is None else ours[k] >= least * theirs[k] for k in ks)
    ratios = ", ".join(f"@{k} {ratio(ours[k], theirs[k])}" for k in ks)
    return goal, shown, f"beside {SHORT[other]}: {ratios}"


def ratio(ours: float, theirs: float) -> str:
    """Return how many times as large ours is, to the percent: what decides may be less than a tenth."""
    return f"{ours / theirs:.2f}×" if theirs else ABSENT


def means_of_seeds(records: Records) -> dict[str, Record]:
    """Return by output layer the mean precision over the seeds on the smaller vocabulary."""
    runs: dict[str, dict[int, Record]] = {}
    for run in records.select(stage="seeds", kind="result"):
        runs.setdefault(run["head"], {})[run["seed"]] = run["prediction"]["precision"]
    return {
        head: {"prediction": {"precision": {k: fmean(run[k] for run in by_seed.values()) for k in paper.PRECISION}}}
        for head, by_seed in runs.items()
    }


def tree_verdict(found: dict[str, Record]) -> Verdict | None:
    """Return whether our hierarchical softmax is no straw man: at least as precise, and as good at analogies."""
    if not {"hierarchical", "gensim hierarchical"} <= set(found):
        return None
    ours, theirs = (found[name] for name in ("hierarchical", "gensim hierarchical"))
    pairs = [tuple(run["prediction"]["precision"][k] for run in (ours, theirs)) for k in paper.PRECISION]
    told = [f"precision@{k} {percent(one)} beside {percent(other)}"
            for k, (one, other) in zip(paper.PRECISION, pairs, strict=True) if k in ("1", "10", "100")]  # fmt: skip
    right = analogy(ours), analogy(theirs)
    if right[0] is not None and right[1] is not None:
        pairs.append((right[0], right[1]))
        told.append(f"analogies {percent(right[0])} beside {percent(right[1])}")
    shown = all(one >= other for one, other in pairs)
    return "Our hierarchical softmax is at least as good as gensim's", shown, ", ".join(told)


def speed_verdict(found: dict[str, Record]) -> Verdict | None:
    """Return whether a word costs at most ten times what it costs hierarchical softmax."""
    if not {"candidate", "hierarchical"} <= set(found):
        return None
    ours, theirs = words_per_second(found["candidate"]), words_per_second(found["hierarchical"])
    assert ours is not None
    assert theirs is not None
    figures = f"{whole(ours)} words per CPU second beside {whole(theirs)}; the paper's layer was 1000× slower"
    return "Our examples per second are at most 10× below hierarchical softmax's", 10 * ours >= theirs, figures


def analogy_verdict(found: dict[str, Record], other: str) -> Verdict | None:
    """Return whether our vectors answer as many analogies."""
    if not {"candidate", other} <= set(found):
        return None
    ours, theirs = analogy(found["candidate"]), analogy(found[other])
    if ours is None or theirs is None:
        return None
    return f"Our analogies are at least those of {SHORT[other]}", ours >= theirs, f"{percent(ours)}, {percent(theirs)}"


def cluster_verdict(records: Records) -> Verdict | None:
    """Return whether two cores learn from more examples in a second than the paper's cluster did."""
    found = [
        run for run in records.select(stage="growth", kind="result", head="candidate") if run["classes"] >= MILLION
    ]
    if not found:
        return None
    ours, theirs = found[-1]["words_per_second"], paper.EXAMPLES_PER_SECOND[1]
    figures = f"{whole(ours)} words per second over {whole(found[-1]['classes'])}; the paper's layer {whole(theirs)}"
    return "More examples per second over a million words than the paper's cluster", ours > theirs, figures


def growth_verdict(records: Records) -> Verdict | None:
    """Return whether a step stays as quick as the vocabulary grows."""
    found = {run["classes"]: run for run in records.select(stage="growth", kind="result", head="candidate")}
    if len(found) < 2:
        return None
    steps, sizes = ([run[part] for run in found.values()] for part in ("step_ms", "bytes_per_class"))
    flat = max(steps) <= 2 * min(steps) and max(sizes) <= 2 * min(sizes)
    figures = (
        f"{number(steps[0])} ms at {whole(min(found))} words, {number(steps[-1])} ms at {whole(max(found))}; "
        f"{whole(min(sizes))} to {whole(max(sizes))} bytes per word"
    )
    return "Time of a step and bytes per word are flat within 2× as the vocabulary grows", flat, figures


def explanation(records: Records) -> str:
    """Return which suspicions the ablations bear out or refute, what repairs, and the setting that answers most."""
    newest = {run["head"]: run for run in records.select(stage="ablations", kind="result")}
    told: dict[str, list[str]] = {}
    for name, run in newest.items():
        beside = newest.get(run["beside"])
        if beside and run["role"] in CONCLUSIONS and (judged := _compared(run, beside)):
            verdict, figures = judged
            told.setdefault(CONCLUSIONS[run["role"]][verdict], []).append(f"{name} ({figures} {run['beside']})")
    shares = {name: share for name, run in newest.items() if (share := analogy(run)) is not None}
    if not told:
        return "No analogies were asked, so nothing is explained."
    best = max(shares, key=shares.__getitem__)
    parts = [f"{said}: {', '.join(names)}." for said, names in told.items()]
    return " ".join([*parts, f"Most analogies, {percent(shares[best])}, has: {best}."])


def _compared(run: Record, beside: Record) -> tuple[str, str] | None:
    """Return "less", "more" or "alike", or "undecided" where chance may have done it, and the figures.

    Shares of answers are compared by their ratio, which chance moves by about two of its standard errors at most.
    """
    shares = [analogy(one) for one in (run, beside)]
    if shares[0] is None or shares[1] is None:
        return None
    asked = [one["google"]["all"]["asked"] for one in (run, beside)]
    known = [max(share, 0.5 / count) for share, count in zip(shares, asked, strict=True) if share is not None]
    ratio_of = known[0] / known[1]
    error = math.sqrt(sum((1 - share) / (share * count) for share, count in zip(known, asked, strict=True)))
    figures = f"{percent(shares[0])}, {ratio(*known)} the analogies of"
    low, high = (ratio_of * math.exp(sign * CHANCE * error) for sign in (-1, 1))
    if high < EXPLAINS:
        return "less", figures
    if low > 1 / EXPLAINS:
        return "more", figures
    return ("alike" if low > EXPLAINS else "undecided"), figures
