"""What the page concludes from records, on records made by hand."""

from pathlib import Path
from typing import Any

from experiments.frame.records import Records
from experiments.skipgram.names import stage_of
from experiments.skipgram.page.paper import PRECISION
from experiments.skipgram.page.verdicts import explanation, verdicts


def result(precision: float, right: float | None, words: int = 1000) -> dict[str, Any]:
    """Return what a record tells of an output layer that is as precise at every k."""
    told = {"precision": dict.fromkeys(PRECISION, precision)}
    asked = {"all": {"right": right, "asked": 10_000}}
    return {"prediction": told, "google": asked, "words": words, "cpu_seconds": 10.0}


def test_goals_are_reached_or_missed_by_the_figures(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    assert verdicts(records) == []
    records.write(stage="candidate", kind="result", **result(0.04, 0.3, words=100))
    records.write(stage="hierarchical", kind="result", **result(0.02, 0.4, words=1001))
    for head, precision, right in (("gensim hierarchical", 0.01, 0.1), ("gensim negative", 0.01, 0.2)):
        records.write(stage=stage_of(head), kind="result", head=head, **result(precision, right))
    for classes, milliseconds in ((10, 5.0), (1_000_000, 11.0)):
        records.write(stage="growth", kind="result", head="candidate", classes=classes, step_ms=milliseconds,
                      bytes_per_class=100.0, words_per_second=1000.0)  # fmt: skip
    for seed, ours, full in ((0, 0.03, 0.02), (1, 0.02, 0.04)):  # in the mean full softmax is ahead
        for head, precision in (("candidate", ours), ("full", full)):
            records.write(stage="seeds", kind="result", head=head, seed=seed, **result(precision, 0.1))
    found = {goal: shown for goal, shown, _ in verdicts(records)}
    assert found == {
        "Our precision is above hierarchical softmax's at every k": True,
        "It is above that of gensim's tree at every k, too": True,
        "It is twice hierarchical softmax's at k = 1 to 20": True,
        "Our precision is at least full softmax's at equal time, at every k, where the vocabulary allows one": False,
        "Our hierarchical softmax is at least as good as gensim's": True,
        "Our examples per second are at most 10× below hierarchical softmax's": False,
        "Our analogies are at least those of hierarchical": False,
        "Our analogies are at least those of gensim, tree": True,
        "Our analogies are at least those of gensim, negative": True,
        "More examples per second over a million words than the paper's cluster": True,
        "Time of a step and bytes per word are flat within 2× as the vocabulary grows": False,
    }


def test_a_suspicion_is_refuted_where_its_change_costs_little(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    runs = (
        ("candidate", "reference", "", 0.4),
        ("told nothing", "choice", "candidate", 0.1),
        ("few examples", "suspicion", "candidate", 0.0012),
        ("only hard", "suspicion", "candidate", 0.39),
        ("own hard", "suspicion", "few examples", 0.001),
        ("own hard and tail", "repair", "own hard", 0.1),
        ("hard and tail", "repair", "only hard", 0.38),
    )
    for head, role, beside, right in runs:
        records.write(stage="ablations", kind="result", head=head, role=role, beside=beside, **result(0.1, right))
    told = explanation(records)
    assert "Borne out: few examples (0.1%, 0.00× the analogies of candidate)." in told
    assert "Refuted, as they cost less than a fifth: only hard (39.0%, 0.97× the analogies of candidate)." in told
    assert "Undecided, as chance may have done it: own hard (" in told  # 10 of 12 answers
    assert "Repairs: own hard and tail (" in told
    assert "Repairs nothing: hard and tail (" in told
    assert "told nothing" not in told  # a choice of ours explains nothing
    assert told.endswith("has: candidate.")
    nothing = Records(tmp_path / "nothing.jsonl")
    nothing.write(stage="ablations", kind="result", head="candidate", role="reference", beside="", **result(0.1, None))
    assert explanation(nothing) == "No analogies were asked, so nothing is explained."
