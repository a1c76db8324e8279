"""The committed full run of imagenet21k: complete, and on real glyphs."""

from experiments.frame.documents import RESULTS
from experiments.frame.records import Records
from experiments.frame.stages import Options
from experiments.imagenet21k import EXPERIMENT


def test_every_stage_was_run_on_the_real_thing() -> None:
    records = Records(RESULTS / "imagenet21k" / "records.jsonl")
    stages = {stage.name for stage in EXPERIMENT.stages(Options(quick=False))}
    assert {end["stage"] for end in records.select(kind="stage_end")} >= stages  # it had one more, on other libraries
    assert not any(card["options"]["quick"] for card in records.select(kind="card"))
    assert not records.select(kind="missing")
    data = records.last(stage="data", kind="result")
    assert data is not None
    assert (data["source"], data["classes"]) == ("glyphs", 20_976)
