"""What a job leaves behind can be used without it: the trunk, the rows in class order, and an index over them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from manyclass import ClassIndex
from manyclass.cli import main
from manyclass.distributed import HeadSettings, Job, ServerRule
from manyclass.distributed.engines.threads_engine import ThreadsEngine
from manyclass.distributed.quick_job import Pictures
from manyclass.distributed.run_options import RunOptions

RULE = ServerRule(lr=0.3, momentum=0.9)
PICTURES = Pictures(300, 64)


def trunk() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.BatchNorm1d(32))


@pytest.mark.parametrize("durability", ["checkpoint", "log"])
def test_a_job_can_be_used_without_it(durability: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = HeadSettings(classes=300, features=32, tail=64, rule=RULE, seed=5)
    job = Job(trunk=trunk, batches=lambda number: PICTURES.batch(number, 64), head=head, trunk_rule=RULE, steps=60,
              test=lambda: [PICTURES.batch(10**9, 500)])  # fmt: skip
    engine = ThreadsEngine(job, RunOptions(shards=3, folder=tmp_path / "run", durability=durability))
    accuracy = engine.run().accuracy
    before = sorted((path.name, path.read_bytes()) for path in (tmp_path / "run").iterdir())

    assert main(["export", str(tmp_path / "run"), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith("300 classes × 32 features")
    assert sorted((path.name, path.read_bytes()) for path in (tmp_path / "run").iterdir()) == before

    model, output = trunk(), nn.Linear(32, 300)
    model.load_state_dict(load_file(tmp_path / "out" / "trunk.safetensors"))
    output.load_state_dict(load_file(tmp_path / "out" / "head.safetensors"))
    inputs, targets = PICTURES.batch(10**9, 500)
    with torch.no_grad():
        x = model.eval()(inputs)
        best = output(x).argmax(1)
    assert float((best == targets).double().mean()) == accuracy
    for number, shard in enumerate(engine.shards):
        ids = engine.placement.ids(number, np.arange(len(shard.rows.weight)))
        np.testing.assert_array_equal(output.weight.detach().numpy()[ids], shard.rows.weight)
    found = ClassIndex.load(tmp_path / "out" / "classes.mc").search(x.numpy(), k=1).classes[:, 0]
    assert (found == best.numpy()).mean() > 0.98


def test_a_folder_without_a_job_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path / "nothing"), str(tmp_path / "out")]) == 2
    assert "is not the folder of a job that has saved anything" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
