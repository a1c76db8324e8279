"""Laws of figures: names stand at the ends of their lines, apart from each other; numbers on axes are plain."""

import matplotlib.pyplot as plt
import pytest

from experiments.frame.drawing import (
    Line,
    canvas,
    draw_lines,
    in_percent,
    in_plain_numbers,
    kept_beside,
    label_ends,
    spread,
)


def texts(axis: plt.Axes) -> dict[str, float]:
    """Return the names beside an axis and their heights."""
    return {text.get_text(): float(text.get_position()[1]) for text in axis.texts}


def test_names_stand_at_the_ends_of_their_lines_and_apart() -> None:
    figure, (axis,) = canvas(1)
    ends = {"low": 0.1, "high": 0.9, "just below": 0.89, "nameless": 0.5}
    lines = [Line("" if name == "nameless" else name, [1, 2], [0, end], {"color": "#123456"})
             for name, end in ends.items()]  # fmt: skip
    draw_lines(axis, lines, ylim=(0, 1), xlabel="steps")
    found = texts(axis)
    assert found.keys() == {"low", "high", "just below"}
    assert found["low"] == pytest.approx(0.1)
    assert found["high"] - found["just below"] == pytest.approx(0.065)
    assert axis.get_xlabel() == "steps"
    plt.close(figure)


def test_a_line_without_points_is_left_out() -> None:
    figure, (axis,) = canvas(1)
    draw_lines(axis, [Line("nothing", [], [], {"color": "#123456"})], yscale="log")
    assert not axis.texts
    assert not axis.lines
    plt.close(figure)


def test_ticks_are_plain_numbers() -> None:
    figure, (log, linear) = canvas(2)
    draw_lines(log, [Line("a", [1, 1000], [0.5, 0.9], {"color": "#123456"})], xscale="log")
    in_percent(log.yaxis)
    in_plain_numbers(linear.xaxis)
    assert log.xaxis.get_major_formatter()(2000) == "2,000"
    assert log.yaxis.get_major_formatter()(0.25) == "25%"
    assert [linear.xaxis.get_major_formatter()(value) for value in (0, 0.5, 1500)] == ["0", "0.5", "1,500"]
    plt.close(figure)


def test_names_stay_beside_the_axis() -> None:
    figure, (axis,) = canvas(1)
    axis.set_ylim(0, 1)
    label_ends(axis, [(str(number), 0.0, "#123456") for number in range(5)], gap=0.1)
    assert min(texts(axis).values()) >= 0.02 - 1e-9
    plt.close(figure)


def test_spreading_keeps_the_order_and_the_middle() -> None:
    assert spread([0.5, 0.5, 0.9], 0.2) == pytest.approx([0.4, 0.6, 0.9])
    assert spread([], 0.1) == []


def test_names_that_would_leave_the_axis_move_and_the_others_stay() -> None:
    found = kept_beside([0.1, 0.97, 1.04, 1.11], 0.07)
    assert found == pytest.approx([0.1, 0.84, 0.91, 0.98])
    assert kept_beside([-0.05, 0.02, 0.5], 0.07) == pytest.approx([0.02, 0.09, 0.5])
