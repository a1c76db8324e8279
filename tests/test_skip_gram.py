"""Words with their neighbours: the native core gives what the NumPy twin gives, and both do what a window does."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from manyclass import _native, _reference

ALWAYS = 0xFFFFFFFF
SEPARATOR = 0xFFFFFFFF


def examples(
    core: Any, words: list[int] | npt.NDArray[Any], *, keep: Any, begins: Any = (0,), length: int, window: int, key: int
) -> tuple[list[int], list[list[int]]]:
    """Return centres and neighbours as one of the two gives them."""
    rows = len(begins) * length
    centres, neighbours = np.full(rows, 77, np.int64), np.full((rows, 2 * window), 77, np.int64)
    made = core.skip_gram_examples(
        np.asarray(words, np.uint32), np.asarray(keep, np.uint32), np.asarray(begins, np.int64), length, window, key,
        centres, neighbours,
    )  # fmt: skip
    return centres[:made].tolist(), neighbours[:made].tolist()


@pytest.mark.parametrize("count", [0, 1, 2, 7, 64, 333])
@pytest.mark.parametrize("window", [1, 2, 5, 40])
def test_examples_match_the_reference(count: int, window: int) -> None:
    random = np.random.default_rng([count, window])
    for share_of_separators in (0.0, 0.1, 0.9):
        words = random.integers(0, 9, count).astype(np.uint32)
        words[random.random(count) < share_of_separators] = SEPARATOR
        keep = random.integers(0, 2**32, 9)
        keep[:4] = [0, 2**31, ALWAYS, ALWAYS]
        for length in {0, min(1, count), count // 3, count}:
            case = {
                "keep": keep,
                "begins": [0, count // 2, count],
                "length": length,
                "window": window,
                "key": 2**64 - 5,
            }
            assert examples(_native, words, **case) == examples(_reference, words, **case)


@pytest.mark.parametrize("core", [_native, _reference])
def test_a_window_of_one_takes_the_words_beside_and_stops_at_separators(core: Any) -> None:
    words = [0, 1, 2, SEPARATOR, 3, SEPARATOR, SEPARATOR, 1, 0]
    centres, neighbours = examples(core, words, keep=[ALWAYS] * 4, length=len(words), window=1, key=3)
    assert centres == [0, 1, 2, 1, 0]  # 3 stands alone
    assert neighbours == [[1, -1], [0, 2], [1, -1], [0, -1], [1, -1]]


@pytest.mark.parametrize("core", [_native, _reference])
def test_a_word_that_is_left_out_makes_neighbours_of_those_around_it(core: Any) -> None:
    centres, neighbours = examples(core, [0, 1, 2], keep=[ALWAYS, 0, ALWAYS], length=3, window=1, key=0)
    assert centres == [0, 2]
    assert neighbours == [[2, -1], [0, -1]]


def test_segments_together_give_what_the_whole_gives() -> None:
    random = np.random.default_rng(0)
    words = random.integers(0, 50, 1000).astype(np.uint32)
    words[::37] = SEPARATOR
    keep = random.integers(2**30, 2**32, 50)
    whole = examples(_native, words, keep=keep, length=1000, window=5, key=9)
    parts = examples(_native, words, keep=keep, begins=np.arange(0, 1000, 8), length=8, window=5, key=9)
    assert parts == whole


def test_windows_are_of_every_size_and_words_stay_as_often_as_they_should() -> None:
    words = np.zeros(20_000, np.uint32)
    _, neighbours = examples(_native, words, keep=[ALWAYS], length=20_000, window=4, key=1)
    sizes = np.bincount((np.array(neighbours[100:-100]) >= 0).sum(1), minlength=9)[2::2]
    assert (abs(sizes / sizes.sum() - 0.25) < 0.02).all()
    centres, _ = examples(_native, words, keep=[2**30], length=20_000, window=4, key=1)
    assert abs(len(centres) / 20_000 - 0.25) < 0.01


def test_other_keys_give_other_examples() -> None:
    words = np.arange(100, dtype=np.uint32)
    case = {"keep": [ALWAYS] * 100, "length": 100, "window": 5}
    assert examples(_native, words, **case, key=1) != examples(_native, words, **case, key=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keep": [1]}, "no entry in keep"),
        ({"begins": [-1]}, "begins lie in the text"),
        ({"begins": [4]}, "begins lie in the text"),
        ({"length": 4}, "length is at most"),
        ({"window": 0}, "window is from 1"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    case = {"keep": [ALWAYS] * 3, "begins": [0], "length": 3, "window": 2, "key": 0} | change
    with pytest.raises(ValueError, match=message):
        examples(_native, [0, 1, 2], **case)


def test_room_for_every_word_is_asked_for() -> None:
    words, keep = np.zeros(3, np.uint32), np.full(1, ALWAYS, np.uint32)
    with pytest.raises(ValueError, match="room for every word"):
        _native.skip_gram_examples(
            words, keep, np.zeros(2, np.int64), 3, 2, 0, np.empty(5, np.int64), np.empty((5, 4), np.int64)
        )
