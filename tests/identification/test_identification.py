"""A model that identifies pictures: saved whole, opened whole, and a sentence for everything that is wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from manyclass import ClassIndex
from manyclass.cli import main
from manyclass.errors import (
    CorruptFileError,
    FileError,
    FileVersionError,
    InputError,
    InputTypeError,
    ManyclassError,
)
from manyclass.identification import IdentificationModel
from manyclass.identification.pictures import listed_pictures, read_square
from manyclass.identification.trunk_file import built, described, load_trunk, save_trunk

SIDE, FEATURES, CLASSES = 8, 12, 40


def new_trunk(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    below = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    trunk = nn.Sequential(
        below, nn.Flatten(), nn.Linear(64, FEATURES, bias=False), nn.BatchNorm1d(FEATURES, affine=False)
    )
    trunk(torch.randn(32, 3, SIDE, SIDE))  # running means that are not those of an untrained layer
    return trunk.eval()


@pytest.fixture
def pictures() -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (CLASSES, SIDE, SIDE, 3), dtype=np.uint8)


@pytest.fixture
def model(pictures: np.ndarray[Any, Any]) -> IdentificationModel:
    """Return a model whose rows are the features of the pictures: each finds itself."""
    trunk = new_trunk()
    inputs = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        rows = trunk((inputs - 0.5) * 4).numpy()
    names = [f"video {number}" for number in range(CLASSES)]
    index = ClassIndex.build(3 * rows, bias=-1.5 * (rows**2).sum(1), names=names)
    return IdentificationModel(trunk, index, SIDE)


@pytest.fixture
def folder(model: IdentificationModel, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_model_answers_as_before(
    model: IdentificationModel, folder: Path, pictures: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    opened = IdentificationModel.load(folder)
    mapped = IdentificationModel.load(folder, mmap=True)
    Image.fromarray(pictures[7]).save(tmp_path / "seven.png")
    for source in (pictures[7], tmp_path / "seven.png", str(tmp_path / "seven.png"), Image.fromarray(pictures[7])):
        found, again, third = (one.identify([source], k=3)[0] for one in (model, opened, mapped))
        assert found.matches == again.matches == third.matches
        assert found.matches[0].name == "video 7"
        assert found.matches[0].number == 7
        shares = [match.probability for match in found.matches]
        assert shares == sorted(shares, reverse=True)
        assert 0 < sum(shares) <= 1 + 1e-6
        assert found.milliseconds.total >= found.milliseconds.classes > 0
    assert opened.classes == CLASSES


def test_more_matches_than_candidates_may_be_asked_for(
    model: IdentificationModel, pictures: np.ndarray[Any, Any]
) -> None:
    found = model.identify([pictures[0]], k=10 * CLASSES)[0].matches
    assert sorted(match.number for match in found) == list(range(CLASSES))
    assert len(model.identify([pictures[0]], k=2, candidates=2)[0].matches) == 2
    with pytest.raises(InputError, match="k=3 is more than candidates=2"):
        model.identify([pictures[0]], k=3, candidates=2)


def test_every_picture_finds_itself(model: IdentificationModel, pictures: np.ndarray[Any, Any]) -> None:
    assert [one.matches[0].number for one in model.identify(list(pictures))] == list(range(CLASSES))


def test_a_new_save_replaces_the_old_model_and_leaves_nothing_of_it(model: IdentificationModel, folder: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    (folder / "trunk-0123456789ab.safetensors").write_bytes(b"of a save that was killed")
    model.save(folder)
    after = {path.name for path in folder.iterdir()}
    assert len(after) == len(before) == 3
    assert after & before == {"model.json"}
    assert IdentificationModel.load(folder).classes == CLASSES


@pytest.mark.parametrize("moment", ["trunk", "classes", "card"])
def test_a_save_that_fails_leaves_the_old_model(
    moment: str, model: IdentificationModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from manyclass.identification import model as module

    def fails(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    target = {"trunk": (module, "save_trunk"), "classes": (ClassIndex, "save"), "card": (module, "write_all")}[moment]
    card = (folder / "model.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(*target, fails)
        with pytest.raises(OSError, match="the disk is full"):
            model.save(folder)
    assert (folder / "model.json").read_bytes() == card
    assert len(list(folder.iterdir())) == 3  # nothing of the new one is left
    assert IdentificationModel.load(folder).classes == CLASSES


def test_classes_without_names_are_called_by_number(model: IdentificationModel, pictures: np.ndarray[Any, Any]) -> None:
    model.index.names = None
    assert model.identify([pictures[3]])[0].matches[0].name == "class 3"


# What is refused


def change_card(folder: Path, **fields: object) -> None:
    card = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(card | fields))


def test_a_model_of_another_version_is_refused(folder: Path) -> None:
    change_card(folder, version=2)
    with pytest.raises(FileVersionError, match="version 2, this manyclass knows version 1; upgrade manyclass"):
        IdentificationModel.load(folder)


@pytest.mark.parametrize(
    "fields",
    [{"kind": "something"}, {"version": "x"}, {"version": 0}, {"side": 0}, {"side": True}, {"side": "8"},
     {"trunk": "../trunk.safetensors"}, {"classes": 5}],
)  # fmt: skip
def test_a_card_that_says_something_else_is_refused(fields: dict[str, object], folder: Path) -> None:
    change_card(folder, **fields)
    with pytest.raises(CorruptFileError, match=r"model\.json cannot be read .*; save the model again"):
        IdentificationModel.load(folder)


def test_a_card_that_is_no_json_is_refused(folder: Path) -> None:
    (folder / "model.json").write_text("{")
    with pytest.raises(CorruptFileError, match=r"model\.json cannot be read"):
        IdentificationModel.load(folder)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(FileError, match=r"is no identification model: it has no model\.json"):
            IdentificationModel.load(path)


@pytest.mark.parametrize("pattern", ["trunk-*", "classes-*"])
def test_a_part_that_is_lost_or_damaged_is_noticed(pattern: str, folder: Path) -> None:
    (part,) = folder.glob(pattern)
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    with pytest.raises(CorruptFileError):
        IdentificationModel.load(folder)
    part.unlink()
    with pytest.raises(CorruptFileError, match=rf"lacks {pattern[:-1]}.*; save it again"):
        IdentificationModel.load(folder)


def test_parts_that_do_not_belong_together_are_refused(model: IdentificationModel) -> None:
    other = ClassIndex.build(np.eye(5, dtype=np.float32))
    with pytest.raises(InputError, match="trunk gives 12 features and index has 5"):
        IdentificationModel(model.trunk, other, SIDE)
    with pytest.raises(InputError, match="trunk does not take pictures"):
        IdentificationModel(model.trunk, model.index, 20)
    with pytest.raises(InputTypeError, match="index is a list"):
        IdentificationModel(model.trunk, [], SIDE)  # type: ignore[arg-type]


def test_a_file_in_the_place_of_the_folder_is_kept(model: IdentificationModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="is a file; a model is a folder"):
        model.save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


# Layers


def test_a_network_comes_back_from_its_description() -> None:
    trunk = new_trunk()
    assert described(built(json.loads(json.dumps(described(trunk))))) == described(trunk)


def test_layers_that_are_not_known_are_refused(model: IdentificationModel) -> None:
    with pytest.raises(InputTypeError, match="trunk has a GELU; layers that can be saved are Conv2d, "):
        IdentificationModel(nn.Sequential(nn.Flatten(), nn.GELU()), model.index, SIDE)
    with pytest.raises(InputTypeError, match=r"trunk is a Linear; give an nn\.Sequential"):
        described(nn.Linear(2, 2))


def test_a_description_with_other_tensors_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from manyclass.identification import trunk_file

    other = described(nn.Sequential(nn.Linear(2, 3)))
    for wrong in (other, [{"type": "System"}], [{"type": "Linear"}], "text", [5]):
        with monkeypatch.context() as patch:
            patch.setattr(trunk_file, "described", lambda _, wrong=wrong: wrong)
            save_trunk(tmp_path / "trunk.safetensors", nn.Sequential(nn.Linear(2, 2)))
        with pytest.raises(CorruptFileError, match="not a network that was written here"):
            load_trunk(tmp_path / "trunk.safetensors")


# Pictures


def test_pictures_are_cut_to_their_middle_square(tmp_path: Path) -> None:
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 200
    assert (read_square(wide, 10) == 200).all()
    Image.fromarray(wide[:, :, 0]).save(tmp_path / "grey.png")
    assert read_square(tmp_path / "grey.png", 10).shape == (10, 10, 3)


def test_what_is_no_picture_gets_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.png").write_text("not a picture")
    with pytest.raises(FileError, match=r"text\.png cannot be read as a picture .*; give a PNG, JPEG or WebP file"):
        read_square(tmp_path / "text.png", 8)
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:-20])
    with pytest.raises(FileError, match=r"cut\.png cannot be read"):
        read_square(tmp_path / "cut.png", 8)
    with pytest.raises(FileError, match=r"gone\.png is not there"):
        read_square(tmp_path / "gone.png", 8)
    with pytest.raises(InputTypeError, match=r"picture is float64 of shape \(8, 8, 3\)"):
        read_square(np.zeros((8, 8, 3)), 8)
    with pytest.raises(InputTypeError, match="picture is a int"):
        read_square(5, 8)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    Image.fromarray(np.zeros((12, 12, 3), np.uint8)).save(tmp_path / "large.png")
    with pytest.raises(FileError, match=r"large\.png cannot be read as a picture"):
        read_square(tmp_path / "large.png", 8)


def test_a_single_picture_is_not_taken_for_many(model: IdentificationModel, pictures: np.ndarray[Any, Any]) -> None:
    for single in ("frame.png", pictures[0]):
        with pytest.raises(InputTypeError, match="give a list of pictures"):
            model.identify(single)


def test_folders_are_gone_through_by_name(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in listed_pictures([tmp_path, tmp_path / "c.bin"])] == ["a.JPG", "b.png", "c.bin"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty has no pictures"):
        listed_pictures([tmp_path / "empty"])


# The command


@pytest.fixture
def frames(tmp_path: Path, pictures: np.ndarray[Any, Any]) -> Path:
    made = tmp_path / "frames"
    made.mkdir()
    for number in (4, 9):
        Image.fromarray(pictures[number]).save(made / f"{number}.png")
    return made


@pytest.mark.usefixtures("thread_counts")
def test_the_command_prints_matches_and_milliseconds(
    folder: Path, frames: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["identify", "--model", str(folder), "--top", "2", "--threads", "1", str(frames)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "40 classes, opened in" in lines[0]
    assert len(lines) == 1 + 2 * 3
    assert "4.png: " in lines[1]
    assert all(stage in lines[1] for stage in ("reading", "network", "classes"))
    assert lines[2].split()[0] == "1"
    assert lines[2].endswith("%  video 4")
    assert lines[5].endswith("video 9")


@pytest.mark.usefixtures("thread_counts")
def test_the_command_goes_on_after_a_bad_picture(
    folder: Path, frames: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (frames / "5.png").write_text("nothing")
    assert main(["identify", "--model", str(folder), str(frames)]) == 1
    said = capsys.readouterr()
    assert "5.png cannot be read as a picture" in said.err
    assert "video 9" in said.out


def test_the_command_says_what_is_wrong_in_one_sentence(
    folder: Path, tmp_path: Path, frames: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    cases = [
        (["--model", str(folder), str(tmp_path / "empty")], "has no pictures"),
        (["--model", str(tmp_path / "empty"), str(frames)], "is no identification model"),
    ]
    for arguments, sentence in cases:
        assert main(["identify", *arguments]) == 2
        said = capsys.readouterr().err
        assert said.startswith("manyclass: ")
        assert sentence in said
        assert said.count("\n") == 1
    with pytest.raises(SystemExit):
        main(["identify", "--model", str(folder), "--top", "0", str(frames)])


def test_all_errors_are_the_library_s(folder: Path) -> None:
    change_card(folder, version=2)
    with pytest.raises(ManyclassError):
        IdentificationModel.load(folder)
