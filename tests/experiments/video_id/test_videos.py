"""Videos: a frame is a function of its number, halves differ, and every source says what is wrong with its data."""

import lzma
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from experiments.datasets.missing import MissingDataError
from experiments.video_id import photographs
from experiments.video_id.batches import FrameBatches, evaluation_batches
from experiments.video_id.camera import uniform, views
from experiments.video_id.films import even_places, frames_of
from experiments.video_id.motion import with_motion
from experiments.video_id.scenes import Scenes
from experiments.video_id.videos import (
    Videos,
    contact_sheet,
    evaluation_examples,
    fewer,
    open_videos,
    sheet_pixels,
    training_frames,
)
from manyclass.errors import CorruptFileError, InputError

SIDE, FRAMES = 32, 8


def opened(data: Path | None, cache: Path, frames: int = FRAMES) -> Videos:
    return open_videos(data, cache, scenes=50, frames=frames, side=SIDE, seed=1, show=lambda *_: None)


# Camera


def test_random_numbers_belong_to_seed_and_id() -> None:
    ids = np.array([5, 0, 1_199_999, 5])
    drawn = uniform(3, ids, 6)
    assert drawn.shape == (4, 6)
    np.testing.assert_array_equal(drawn[0], drawn[3])
    np.testing.assert_array_equal(drawn[2], uniform(3, ids[2:3], 6)[0])
    np.testing.assert_array_equal(drawn[:, :2], uniform(3, ids, 2))  # asking for more changes nothing
    assert not np.array_equal(drawn, uniform(4, ids, 6))
    many = uniform(0, np.arange(20_000), 4)
    assert ((many >= 0) & (many < 1)).all()
    np.testing.assert_allclose(many.mean(0), 0.5, atol=0.02)
    assert abs(np.corrcoef(many.T) - np.eye(4)).max() < 0.05


def test_paths_are_smooth_and_the_halves_lie_apart() -> None:
    moments = np.linspace(0, 1, 200, dtype=np.float32)
    for number in range(20):
        seen = views(0, np.full(200, number), moments)
        place = np.stack([seen.x, seen.y], 1)
        steps = np.linalg.norm(np.diff(place, axis=0), axis=1)
        assert steps.max() < 0.02
        assert np.linalg.norm(place[:100].mean(0) - place[100:].mean(0)) > 0.1
        assert abs(np.log(seen.scale[:100]).mean() - np.log(seen.scale[100:]).mean()) > 0.1
    still = views(0, np.full(2, 7), np.array([0, 1], np.float32), motion=0)
    assert still.x[0] == still.x[1] == 0
    assert still.light.tolist() == [1, 1]


def test_more_motion_shows_more() -> None:
    moments = np.array([0.1, 0.9], np.float32)
    ways = [views(0, np.zeros(2, np.int64), moments, motion) for motion in (0.5, 1.0, 2.0)]
    assert [abs(way.x[0] - way.x[1]) for way in ways] == sorted(abs(way.x[0] - way.x[1]) for way in ways)


# Scenes


def test_a_frame_is_the_same_in_any_batch() -> None:
    scenes = Scenes(1_200_000, FRAMES, SIDE, seed=2)
    together = scenes.pictures(np.array([3, 1_199_999, 3]), np.array([0, 5, 7]))
    assert together.shape == (3, 3, SIDE, SIDE)
    assert together.min() >= 0
    assert together.max() <= 1
    alone = scenes.pictures(np.array([1_199_999]), np.array([5]))
    torch.testing.assert_close(together[1], alone[0], rtol=0, atol=1e-6)
    assert (together[0] - together[2]).abs().mean() > 0.02  # another moment of the same scene
    assert (together[0] - together[1]).abs().mean() > 0.02  # another scene


def test_frames_of_a_scene_are_nearer_to_each_other_than_to_other_scenes() -> None:
    scenes = Scenes(40, FRAMES, SIDE)
    ids = np.arange(40)
    first, last = (scenes.pictures(ids, np.full(40, frame)).flatten(1) for frame in (3, 4))
    nearest = torch.cdist(first, last).argmin(1)
    assert (nearest.numpy() == ids).mean() > 0.9


# Photographs


@pytest.fixture
def mosaics(tmp_path: Path) -> Path:
    """Return a folder of two mosaics, the second with a single picture."""
    folder = tmp_path / "mosaics"
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(2):
        coarse = random.integers(0, 256, (512, 512, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((2048, 2048), 0).save(folder / f"mosaic-0{number}.webp", lossless=True, method=0)
    with lzma.open(folder / "index.tsv.xz", "wt", encoding="utf-8") as lines:
        lines.writelines(f"{number}\ttrain\t0\tpicture_{number}.JPEG\n" for number in range(4097))
    return folder


def test_photographs_are_unpacked_once_and_seen_by_the_camera(mosaics: Path, tmp_path: Path) -> None:
    videos = opened(mosaics, tmp_path / "cache")
    assert (videos.source, videos.classes) == ("photographs", 4097)
    assert videos.name(4096) == "picture_4096.JPEG"
    still = with_motion(videos, 0.0)
    assert still is not None
    mosaic = np.asarray(Image.open(mosaics / "mosaic-00.webp").convert("RGB"))
    number = 64 * 2 + 5  # row 2, column 5
    centre = mosaic[64:96, 160:192][15:17, 15:17].mean((0, 1)) / 255
    seen = still.pictures(np.array([number]), np.array([0]))[0, :, 15:17, 15:17].mean((1, 2))
    np.testing.assert_allclose(seen.numpy(), centre, atol=0.05)
    (mosaics / "mosaic-00.webp").unlink()  # what was unpacked is not read again
    assert opened(mosaics, tmp_path / "cache").classes == 4097
    assert not (tmp_path / "cache" / "photographs" / "tiles.npy.unfinished").exists()


def test_mosaics_that_are_not_there_come_with_how_to_get_them(mosaics: Path, tmp_path: Path) -> None:
    (mosaics / "mosaic-01.webp").unlink()
    with pytest.raises(MissingDataError, match=r"mosaic-01\.webp cannot be read .*Tiny-ImageNet-200.*--data"):
        opened(mosaics, tmp_path / "cache")
    assert not (tmp_path / "cache" / "photographs").exists()
    (mosaics / "index.tsv.xz").write_bytes(b"nothing")
    with pytest.raises(CorruptFileError, match=r"index\.tsv\.xz cannot be read"):
        photographs.read_names(mosaics)
    (mosaics / "index.tsv.xz").unlink()
    with pytest.raises(MissingDataError, match=r"index\.tsv\.xz is not there; resize the pictures"):
        opened(mosaics, tmp_path / "cache")
    with pytest.raises(MissingDataError, match="is no folder"):
        opened(tmp_path / "nowhere", tmp_path / "cache")


# Films


def shade(number: int, moment: float) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return a frame whose red says which video it is and whose green says when."""
    frame = np.zeros((48, 64, 3), np.uint8)
    frame[..., 0], frame[..., 1] = 40 + 60 * number, round(250 * moment)
    return frame


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """Return a folder with two encoded videos and one folder of frames."""
    av = pytest.importorskip("av")
    folder = tmp_path / "films"
    (folder / "c frames").mkdir(parents=True)
    for number, name in enumerate(("a.mp4", "b.mkv")):
        with av.open(str(folder / name), "w") as container:
            stream = container.add_stream("mpeg4", rate=10)
            stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 64, 48, "yuv420p", 4_000_000
            for place in range(20):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(shade(number, place / 20), format="rgb24")))
            container.mux(stream.encode(None))
    for place in range(10):
        Image.fromarray(shade(2, place / 10)).save(folder / "c frames" / f"{place:03d}.png")
    (folder / "notes.txt").write_text("not a video")
    return folder


def test_films_and_frame_folders_are_decoded_in_the_order_of_time(films: Path, tmp_path: Path) -> None:
    videos = opened(films, tmp_path / "cache")
    assert (videos.source, videos.classes, videos.frames) == ("films", 3, FRAMES)
    assert [videos.name(number) for number in range(3)] == ["a.mp4", "b.mkv", "c frames"]
    shown = videos.pictures(np.repeat(np.arange(3), FRAMES), np.tile(np.arange(FRAMES), 3)).reshape(3, FRAMES, 3, -1)
    red, green = 255 * shown[:, :, 0].mean(2), 255 * shown[:, :, 1].mean(2)
    np.testing.assert_allclose(red.mean(1).numpy(), [40, 100, 160], atol=12)
    assert (green.diff(dim=1) > 5).all()
    halves = green[:, : FRAMES // 2].amax(1), green[:, FRAMES // 2 :].amin(1)
    assert (halves[0] < 128).all()
    assert (halves[1] > 115).all()
    assert with_motion(videos, 2.0) is None
    again = opened(films, tmp_path / "cache")
    assert again.classes == 3


def test_films_that_cannot_be_used_are_named(films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (films / "d.mp4").write_bytes(b"not a film")
    with pytest.raises(CorruptFileError, match=r"d\.mp4 cannot be decoded .*; take it out of the folder"):
        opened(films, tmp_path / "cache")
    assert not (tmp_path / "cache" / "films").exists()
    (films / "d.mp4").unlink()
    (films / "e").mkdir()
    Image.fromarray(shade(0, 0)).save(films / "e" / "only.png")
    with pytest.raises(InputError, match="e has a single frame"):
        opened(films, tmp_path / "cache")
    (films / "e" / "only.png").unlink()
    opened(films, tmp_path / "cache")
    (films / "b.mkv").unlink()
    with pytest.raises(InputError, match="has other videos than when they were decoded; choose another --out"):
        opened(films, tmp_path / "cache")
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingDataError, match=r"a\.mp4 needs PyAV to be decoded; pip install '\.\[video\]'"):
        frames_of(films / "a.mp4", 4, SIDE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has 0 videos; give a folder with two or more"):
        opened(tmp_path / "empty", tmp_path / "cache")


@pytest.mark.parametrize(("there", "wanted"), [(20, 8), (2, 8), (3, 2), (7, 6), (1000, 64)])
def test_halves_of_a_film_stay_apart(there: int, wanted: int) -> None:
    places = even_places(there, wanted)
    assert len(places) == wanted
    assert places == sorted(places)
    assert max(places[: wanted // 2]) < there // 2 <= min(places[wanted // 2 :])
    assert max(places) < there


# Batches


def test_batches_are_functions_of_their_number_made_ahead_by_threads() -> None:
    scenes = Scenes(30, FRAMES, SIDE)
    with FrameBatches(scenes, 12, seed=5) as batches:
        ahead = [batches(step) for step in (0, 1, 2, 7, 3)]  # a resumed run jumps
        alone = [batches.made(step) for step in (0, 1, 2, 7, 3)]
        for (frames, labels), (again, labels_again) in zip(ahead, alone, strict=True):
            torch.testing.assert_close(frames, again, rtol=0, atol=0)
            assert labels.equal(labels_again)
        assert batches.waited > 0
        seen = np.concatenate([batches.examples(step)[0] for step in range(5)])  # two passes over 30 videos
        assert np.bincount(seen, minlength=30).tolist() == [2] * 30
        assert max(batches.examples(step)[1].max() for step in range(20)) < training_frames(scenes)
    with pytest.raises(RuntimeError):
        batches(20)  # the threads have ended


def test_evaluation_has_frames_of_second_halves_alone() -> None:
    scenes = Scenes(30, FRAMES, SIDE)
    _, frames = evaluation_examples(scenes, 500, seed=0)
    assert set(frames.tolist()) == set(range(FRAMES // 2, FRAMES))
    tests = evaluation_batches(scenes, 260, seed=0)
    assert [len(labels) for _, labels in tests()] == [250, 10]
    assert tests() is tests()


def test_fewer_videos_are_spread_over_all() -> None:
    scenes = Scenes(50, FRAMES, SIDE)
    some = fewer(scenes, 20)
    assert some.classes == 17
    one = some.pictures(np.array([4]), np.array([1]))
    torch.testing.assert_close(one, scenes.pictures(np.array([12]), np.array([1])))
    assert some.name(4) == "scene 12"
    assert fewer(scenes, 50) is scenes
    moved = with_motion(some, 2.0)
    assert moved is not None
    assert not moved.pictures(np.array([4]), np.array([1])).equal(one)


def test_the_contact_sheet_has_both_halves() -> None:
    scenes = Scenes(50, FRAMES, SIDE)
    sheet = contact_sheet(scenes, seed=0)
    pixels = sheet_pixels(sheet)
    assert pixels.shape == (6 * SIDE, 12 * SIDE, 3)
    number = int(sheet["names"][0].removeprefix("scene "))
    first = (255 * scenes.pictures(np.array([number]), np.array([0]))[0].permute(1, 2, 0)).numpy()
    assert abs(pixels[:SIDE, :SIDE] - first).mean() < 12  # it is compressed
    assert len(sheet["webp"]) < 60_000
