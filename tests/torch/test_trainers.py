"""Real trainers: resume to the same bits, accumulate with a remainder, clip, and use bfloat16."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import manyclass.torch as mct
from manyclass import HashConfig
from manyclass.errors import FileError
from manyclass.torch import trainers
from manyclass.torch.approximation_meter import ApproximationWarning
from manyclass.torch.tensor_file import write_tensors
from manyclass.torch.trainers import hugging_face_callback, lightning_callback, load_heads, save_heads

transformers = pytest.importorskip("transformers")
lightning = pytest.importorskip("lightning.pytorch")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of the trainers: theirs to say
    pytest.mark.usefixtures("thread_counts"),
]
CLASSES, FEATURES, EXAMPLES, BATCH = 400, 16, 44, 4  # 11 batches: no multiple of what is accumulated


class Points(Dataset):  # type: ignore[type-arg]
    """Noisy points of classes."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.randint(CLASSES, (EXAMPLES,), generator=generator)
        self.points = torch.randn(CLASSES, FEATURES, generator=generator)[self.labels]

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        return {"x": self.points[place], "labels": self.labels[place]}


class Network(nn.Module):
    """What the Trainer wants: forward gives a dict with the loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.trunk = nn.Linear(FEATURES, FEATURES)
        self.head = mct.CandidateSoftmax(
            FEATURES, CLASSES, candidates=8, mined_examples=32, mined_every=16, mined_candidates=4,
            tail=32, refresh_steps=20, meter_every=0,
            config=HashConfig.flat_sketch(64), row_update="at_step", row_optimizer=partial(mct.RowAdam, lr=0.05),
        )  # fmt: skip

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return {"loss": self.head(self.trunk(x), labels)}


def hugging_face(out: Path, model: Network, steps: int, resume: Path | None = None, **settings: Any) -> Network:
    arguments = transformers.TrainingArguments(
        output_dir=str(out), max_steps=steps, per_device_train_batch_size=BATCH, learning_rate=1e-2, seed=3,
        save_steps=4, report_to=[], use_cpu=True, disable_tqdm=True, logging_strategy="no",
        lr_scheduler_type="constant", **settings,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=Points(), callbacks=[hugging_face_callback()]
    )
    trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    return model


def assert_same_bits(one: nn.Module, other: nn.Module) -> None:
    theirs = other.state_dict()
    for name, ours in one.state_dict().items():
        assert torch.equal(ours, theirs[name]), name


@pytest.mark.parametrize("accumulated", [1, 2])
def test_hugging_face_resumes_to_the_same_bits(tmp_path: Path, accumulated: int) -> None:
    settings: dict[str, Any] = {"gradient_accumulation_steps": accumulated, "max_grad_norm": 0.5}
    whole = hugging_face(tmp_path / "whole", Network(), 10, **settings)
    resumed = hugging_face(tmp_path / "whole", Network(), 10, tmp_path / "whole" / "checkpoint-4", **settings)
    assert_same_bits(whole, resumed)
    assert not torch.equal(whole.head.weight, Network().head.weight)


def test_hugging_face_says_what_it_cannot_bring_back(tmp_path: Path) -> None:
    """`train` is given a folder that the callback is not told: nothing of another run may take its place."""
    hugging_face(tmp_path / "one", Network(), 4)
    with pytest.warns(ApproximationWarning, match="index that is built anew.*No such file"):
        hugging_face(tmp_path / "empty", Network(), 6, tmp_path / "one" / "checkpoint-4")
    other = Network()
    with torch.no_grad():
        other.head.weight.mul_(2)
    hugging_face(tmp_path / "other", other, 4)
    with pytest.warns(ApproximationWarning, match="has not the weight that it was saved with"):
        hugging_face(tmp_path / "other", Network(), 6, tmp_path / "one" / "checkpoint-4")


def test_heads_of_another_model_or_with_other_weights_are_refused(tmp_path: Path) -> None:
    model = Network()
    save_heads(tmp_path / "heads", model)
    load_heads(tmp_path / "heads", model)
    with pytest.raises(FileError, match=r"saved are heads \['head'\], the model has \['0'\]"):
        load_heads(tmp_path / "heads", nn.Sequential(model.head))
    with torch.no_grad():
        model.head.weight.mul_(2)
    with pytest.raises(FileError, match="load the model's state dict"):
        load_heads(tmp_path / "heads", model)


def test_files_of_before_the_mark_are_read(tmp_path: Path) -> None:
    model = Network()
    settings, tensors = trainers._packed(model)
    for head in settings.values():
        del head["weight_mark"]
    write_tensors(tmp_path / "heads", trainers.KIND, settings, tensors)
    load_heads(tmp_path / "heads", model)


def test_hugging_face_keeps_the_states_of_the_rows_also_without_the_callback(tmp_path: Path) -> None:
    trained = hugging_face(tmp_path, Network(), 8)
    state = transformers.trainer_utils.get_last_checkpoint(str(tmp_path))
    from safetensors.torch import load_file

    saved = load_file(f"{state}/model.safetensors")
    assert torch.equal(saved["head.row_state.weight.exp_avg"], trained.head.row_states()["weight.exp_avg"])
    fresh = Network()
    fresh.load_state_dict(saved)
    assert_same_bits(trained, fresh)


def test_hugging_face_with_bfloat16(tmp_path: Path) -> None:
    trained = hugging_face(tmp_path, Network(), 4, bf16=True)
    assert trained.head.weight.dtype == torch.float32
    assert trained.head.weight.isfinite().all()


def test_rows_move_once_per_step_of_the_trainer(tmp_path: Path) -> None:
    moves = []
    model = Network()
    original = model.head.row_optimizer.update_rows

    def counted(parameter: Tensor, *rest: Any) -> None:
        if parameter is model.head.weight:
            moves.append(len(rest[0]))
        original(parameter, *rest)

    model.head.row_optimizer.update_rows = counted
    hugging_face(tmp_path, model, 6, gradient_accumulation_steps=4)  # 11 batches an epoch: 4, 4, 3
    assert len(moves) == 6


class Lit(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """The same network for Lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Network()

    def training_step(self, batch: dict[str, Tensor], _: int) -> Tensor:
        return self.network(**batch)["loss"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def run_lightning(out: Path, epochs: int, resume: Path | None = None, others: Any = (), **settings: Any) -> Lit:
    lightning.seed_everything(3, verbose=False)
    module = Lit()
    keep = lightning.callbacks.ModelCheckpoint(dirpath=out, save_top_k=-1, filename="{epoch}")
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[keep, lightning_callback(), *others], deterministic=True, **settings,
    )  # fmt: skip
    batches = torch.utils.data.DataLoader(Points(), batch_size=BATCH)
    trainer.fit(module, batches, ckpt_path=None if resume is None else str(resume), weights_only=False)
    return module


@pytest.mark.parametrize("settings", [{}, {"accumulate_grad_batches": 4, "gradient_clip_val": 0.5}], ids=str)
def test_lightning_resumes_to_the_same_bits(tmp_path: Path, settings: dict[str, Any]) -> None:
    whole = run_lightning(tmp_path, 3, **settings)
    resumed = run_lightning(tmp_path / "again", 3, tmp_path / "epoch=0.ckpt", **settings)
    assert_same_bits(whole, resumed)
    assert not torch.equal(whole.network.head.weight, Network().head.weight)


def test_lightning_goes_on_where_a_checkpoint_holds_other_weights(tmp_path: Path) -> None:
    """As with WeightAveraging, which puts its means there: the index is built anew."""
    run_lightning(tmp_path, 2, others=[lightning.callbacks.EMAWeightAveraging(decay=0.5)])
    with pytest.warns(ApproximationWarning, match="has not the weight that it was saved with"):
        run_lightning(tmp_path / "again", 3, tmp_path / "epoch=0.ckpt")
