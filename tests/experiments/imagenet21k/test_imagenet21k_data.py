"""Pictures of the first experiment: where they come from, how they are kept, what a batch is."""

import itertools

import numpy as np
import pytest
import torch
from PIL import Image

from experiments.imagenet21k import sources
from experiments.imagenet21k.data import Batches, distort, held_out_batches, open_images
from experiments.imagenet21k.sources import SIDE, Collection, from_folder, from_fonts, from_strokes
from manyclass.errors import CorruptFileError, FileError, InputError


def quietly(share, text):
    """Progress that nobody looks at."""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strokes") / "images"
    return open_images(folder, lambda: from_strokes(50, seed=3), quietly)


def test_stroke_characters_are_the_same_for_the_same_seed(drawn, tmp_path):
    again = open_images(tmp_path / "again", lambda: from_strokes(50, seed=3), quietly)
    other = open_images(tmp_path / "other", lambda: from_strokes(50, seed=4), quietly)
    assert np.array_equal(drawn.pixels, again.pixels)
    assert not np.array_equal(drawn.pixels, other.pixels)


def test_whole_styles_are_held_out(drawn):
    assert drawn.classes == 50
    assert len(drawn.train) == 50 * (sources.PENS - sources.HELD_OUT_PENS)
    assert len(drawn.test) == 50 * sources.HELD_OUT_PENS
    assert not set(drawn.styles[drawn.train]) & set(drawn.styles[drawn.test])
    facts = drawn.facts()
    assert facts["test_styles"] == ["pen 10", "pen 11"]
    assert facts["train_images"] + facts["test_images"] == len(drawn.pixels)


def test_strokes_tell_classes_apart_in_a_style_that_was_not_seen(drawn):
    """A nearest neighbour over training pens finds held-out pictures: the task can be learnt, and is not trivial."""
    pixels = drawn.pixels.reshape(len(drawn.pixels), -1).astype(np.float32)
    pixels -= pixels.mean(1, keepdims=True)
    pixels /= np.linalg.norm(pixels, axis=1, keepdims=True)
    nearest = drawn.train[(pixels[drawn.test] @ pixels[drawn.train].T).argmax(1)]
    assert 0.2 < (drawn.labels[nearest] == drawn.labels[drawn.test]).mean() < 1


def test_a_failing_source_leaves_nothing_behind(tmp_path):
    def broken():
        yield np.zeros((SIDE, SIDE), np.uint8), 0, 0
        raise OSError("disk on fire")

    collection = Collection("broken", ["a"], ["one"], [], 2, broken)
    with pytest.raises(OSError, match="fire"):
        open_images(tmp_path / "images", lambda: collection, quietly)
    assert list(tmp_path.iterdir()) == []
    nothing = Collection("nothing", ["a"], ["one"], [], 0, lambda: iter(()))
    with pytest.raises(InputError, match="no picture"):
        open_images(tmp_path / "images", lambda: nothing, quietly)


def test_damaged_folder_says_the_way_out(tmp_path):
    folder = tmp_path / "images"
    open_images(folder, lambda: from_strokes(2, seed=0), quietly)
    (folder / "pixels.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(CorruptFileError, match="remove the folder"):
        open_images(folder, lambda: from_strokes(2, seed=0), quietly)


def save_picture(path, value, size=(80, 50)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value, value)).save(path)


def test_image_folder_halves_what_is_not_split(tmp_path):
    for name in ("cat", "dog"):
        for number in range(4):
            save_picture(tmp_path / name / f"{number}.png", 10 * number)
    images = open_images(tmp_path / "kept", lambda: from_folder(tmp_path), quietly)
    assert images.class_names == ["cat", "dog"]
    assert (len(images.train), len(images.test)) == (4, 4)
    assert images.pixels[1, 32, 32] == 10


def test_image_folder_keeps_a_split_that_is_there(tmp_path):
    save_picture(tmp_path / "data/train/cat/a.jpg", 200)
    save_picture(tmp_path / "data/test/cat/b.jpg", 100)
    save_picture(tmp_path / "data/train/dog/c.jpg", 50)
    images = open_images(tmp_path / "kept", lambda: from_folder(tmp_path / "data"), quietly)
    assert images.labels[images.train].tolist() == [0, 1]
    assert images.labels[images.test].tolist() == [0]


@pytest.mark.parametrize("spoil", ["no folder", "no images", "bad image"])
def test_image_folder_refuses_with_a_sentence(tmp_path, spoil):
    folder = tmp_path / "data"
    if spoil != "no folder":
        (folder / "cat").mkdir(parents=True)
    if spoil == "bad image":
        (folder / "cat" / "a.png").write_bytes(b"not a picture")
    with pytest.raises(FileError, match=r"give one with|holds no images|repair or remove"):
        open_images(tmp_path / "kept", lambda: from_folder(folder), quietly)


def test_missing_fonts_name_the_packages(monkeypatch):
    monkeypatch.setattr(sources, "installed_fonts", dict)
    with pytest.raises(FileError, match=r"apt-get install fonts-noto-cjk .*fonts-klee.*--quick"):
        from_fonts()


SMALL = {package: sources.PACKAGES[package] for package in ("fonts-wqy-microhei", "fonts-droid-fallback")}


@pytest.mark.skipif(bool(set(SMALL) & set(sources.missing_packages())), reason=f"apt-get install {' '.join(SMALL)}")
def test_glyphs_are_drawn_from_fonts(monkeypatch):
    monkeypatch.setattr(sources, "PACKAGES", SMALL)
    monkeypatch.setattr(sources, "HELD_OUT", ("fonts-droid-fallback",))
    monkeypatch.setattr(sources, "HELD_OUT_DRAWN", SMALL["fonts-droid-fallback"])
    monkeypatch.setattr(sources, "LEAST_FONTS", 2)
    collection = from_fonts()
    assert len(collection.class_names) > 20_000
    assert collection.class_names[0] == "一"
    assert (collection.style_names, collection.held_out) == (["wqy-microhei", "DroidSansFallbackFull"], [1])
    drawn = list(itertools.islice(collection.pictures(), 200))
    assert [label for _, label, _ in drawn] == list(range(200))
    for pixels, _, style in drawn:
        assert (pixels.shape, style) == ((SIDE, SIDE), 0)
        assert pixels.max() > 200
        assert not pixels[[0, -1]].any()  # nothing is cut off
        assert not pixels[:, [0, -1]].any()


@pytest.mark.skipif(
    bool(sources.missing_packages()),
    reason="needs 380 MB of fonts (`python -m experiments doctor`); the committed run has the same number",
)
def test_glyphs_have_the_published_number_of_classes():
    collection = from_fonts()
    assert len(collection.class_names) == 20_976
    assert {collection.style_names[style] for style in collection.held_out} == {"TW-Sung-98_1", "LXGWWenKai-Regular"}


def test_every_training_picture_comes_once_per_epoch(drawn):
    batches = Batches(drawn, 50, seed=1)
    steps = len(drawn.train) // 50
    labels = torch.cat([batches(step)[1] for step in range(steps)])
    assert torch.equal(labels.bincount(), torch.full((50,), 10))
    x, y = batches(3)
    again, labels_again = Batches(drawn, 50, seed=1)(3)
    assert torch.equal(x, again)
    assert torch.equal(y, labels_again)
    assert not torch.equal(x, batches(3 + steps)[0])


def test_a_batch_may_reach_into_the_next_epoch(drawn):
    batches = Batches(drawn, 300, seed=1)
    labels = torch.cat([batches(step)[1] for step in range(5)])  # 1500 pictures: three epochs of 500
    assert torch.equal(labels.bincount(), torch.full((50,), 30))


def test_held_out_pictures_are_always_distorted_alike(drawn):
    first, second = held_out_batches(drawn, 60), held_out_batches(drawn, 60)
    assert sum(len(y) for _, y in first) == 60
    assert torch.equal(first[0][0], second[0][0])


def test_distortion_keeps_shape_and_range():
    pixels = torch.zeros(8, SIDE, SIDE, dtype=torch.uint8)
    pixels[:, 20:44, 20:44] = 255
    found = distort(pixels, torch.Generator().manual_seed(0))
    assert found.shape == (8, 1, SIDE, SIDE)
    assert found.isfinite().all()
    assert not torch.equal(found[0], found[1])
    middle, edge = found[:, 0, 28:36, 28:36].mean((1, 2)), found[:, 0, :4, :4].mean((1, 2))
    assert (middle > edge + 0.3).all()
