"""What was to be shown, and whether the records show it; what is missed is said as plainly as what is reached."""

from experiments.frame.records import Record, Records
from experiments.frame.wording import number, percent, times, whole
from experiments.skipgram.names import SHORT
from experiments.skipgram.page import paper
from experiments.skipgram.page.tables import analogy, results, words_per_second

EXPLAINS = 0.8  # a change that leaves less than this share of the analogies explains something
Verdict = tuple[str, bool, str]  # what was to be shown, whether it is, and the figures


def verdicts(records: Records) -> list[Verdict]:
    """Return a verdict for each goal that the records can tell of."""
    found = results(records)
    made: list[Verdict | None] = [
        precision_verdict(found, "hierarchical", "Our precision is above hierarchical softmax's at every k"),
        precision_verdict(found, "full", "Our precision is at least full softmax's at equal time", equal=True),
        tree_verdict(found),
        speed_verdict(found),
        *(analogy_verdict(found, other) for other in ("hierarchical", "gensim negative")),
        growth_verdict(records),
    ]
    return [verdict for verdict in made if verdict]


def precision_verdict(found: dict[str, Record], other: str, goal: str, equal: bool = False) -> Verdict | None:
    """Return whether candidate softmax is ahead at every k."""
    if not {"candidate", other} <= set(found):
        return None
    ours, theirs = (found[name]["prediction"]["precision"] for name in ("candidate", other))
    ahead = all(ours[k] >= theirs[k] if equal else ours[k] > theirs[k] for k in paper.PRECISION)
    ratios = ", ".join(f"@{k} {times(ours[k] / theirs[k] if theirs[k] else None)}" for k in ("1", "10", "100"))
    return goal, ahead, f"beside {SHORT[other]}: {ratios}"


def tree_verdict(found: dict[str, Record]) -> Verdict | None:
    """Return whether our hierarchical softmax is no straw man."""
    if not {"hierarchical", "gensim hierarchical"} <= set(found):
        return None
    ours, theirs = (found[name]["prediction"]["precision"]["10"] for name in ("hierarchical", "gensim hierarchical"))
    figures = f"precision@10 {percent(ours)} beside {percent(theirs)}"
    return "Our hierarchical softmax is at least as good as gensim's", ours >= theirs, figures


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
    """Return which suspicions the ablations bear out and which they refute, and the setting that answers most."""
    newest = {run["head"]: run for run in records.select(stage="ablations", kind="result")}
    borne_out: list[str] = []
    refuted: list[str] = []
    for name, run in newest.items():
        share, reference = analogy(run), analogy(newest.get(run["beside"], {}))
        if share is not None and reference:
            told = f"{name} ({times(share / reference)} the analogies of {run['beside']})"
            (borne_out if share < EXPLAINS * reference else refuted).append(told)
    shares = {name: share for name, run in newest.items() if (share := analogy(run)) is not None}
    if not borne_out and not refuted:
        return "No analogies were asked, so nothing is explained."
    best = max(shares, key=shares.__getitem__)
    parts = [
        f"Borne out: {', '.join(borne_out) or 'none'}.",
        f"Refuted, as they cost less than a fifth: {', '.join(refuted) or 'none'}.",
        f"Most analogies, {percent(shares[best])}, has: {best}.",
    ]
    return " ".join(parts)
