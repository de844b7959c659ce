"""Legends below axes that keep their size; lines that lie on each other."""

import numpy as np
import pytest

from marltrain.trainer.reporting.figures import new_figure, png_of
from marltrain.trainer.reporting.legends import TURNS, add_common_legend, add_legend, add_legends, coincident


def named(ax):
    legend = ax.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def curve(x, y):
    return np.column_stack([np.array(x, float), np.array(y, float)])


def test_equal_curves_are_found():
    """The third differs in one point by a hundredth of the axes; the fourth, by less than can be seen."""
    x, y = [0, 0.5, 1], [0.2, 0.7, 0.3]
    curves = [curve(x, y), curve(x, y), curve(x, [0.2, 0.71, 0.3]), curve(x, [0.203, 0.7, 0.3])]
    assert coincident(curves) == [[0, 1, 3]]


def test_curves_of_other_points_are_compared_between_them():
    """A straight line through (0, 0) and (1, 1) with and without a point at 0.25 and at 0.5."""
    straight = curve([0, 1], [0, 1])
    assert coincident([straight, curve([0, 0.25, 1], [0, 0.25, 1])]) == [[0, 1]]
    assert coincident([straight, curve([0, 0.5, 1], [0, 0.6, 1])]) == []
    assert coincident([straight, curve([0, 0.95], [0, 0.95])]) == [[0, 1]]
    assert coincident([straight, curve([0, 0.5], [0, 0.5])]) == []  # half of it is seen
    assert coincident([straight, curve([2, 3], [2, 3])]) == []


def test_single_points_and_missing_values():
    point, nothing = curve([0.5], [0.5]), curve([0.5], [np.nan])
    assert coincident([point, point, curve([0.5], [0.6]), curve([0.6], [0.5])]) == [[0, 1]]
    assert coincident([nothing, nothing]) == []
    assert coincident([curve([0, 0.5, 1], [0, np.nan, 1]), curve([0, 1], [0, 1])]) == [[0, 1]]


def lines(values, scale="linear"):
    ax = new_figure(7.2, 3).subplots()
    ax.set_yscale(scale)
    for i, y in enumerate(values):
        ax.plot([0, 1, 2], y, label=f"line {i}", marker="o", ms=3)
    return ax


def test_coincident_lines_take_turns_and_are_told():
    """Three equal lines: dashes of length 5 with gaps of 10, begun at 0, 5 and 10; the first marker is the largest."""
    ax = lines([[1, 2, 3], [1, 5, 3], [1, 2, 3], [1, 2, 3]])
    add_legend(ax)
    assert named(ax) == ["line 0", "line 1", "line 2 (same line as line 0)", "line 3 (same line as line 0)"]
    found = [ax.lines[i] for i in (0, 2, 3)]
    assert [line._unscaled_dash_pattern for line in found] == [(0, (5, 10)), (5, (5, 10)), (10, (5, 10))]
    sizes = [line.get_markersize() for line in found]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 3
    assert ax.lines[1].get_linestyle() == "-" and ax.lines[1].get_markersize() == 3


def test_both_colors_of_coincident_lines_are_seen():
    ax = lines([[1, 2, 3], [1, 2, 3]])
    for line, color in zip(ax.lines, ("#ff0000", "#0000ff"), strict=True):
        line.set(color=color, marker="")
    add_legend(ax)
    figure = ax.figure
    figure.canvas.draw()
    low, high = ax.bbox.intervaly.astype(int)
    image = np.asarray(figure.canvas.buffer_rgba())[::-1][low:high, :, :3].astype(int)
    red, blue = ((np.abs(image - color).max(-1) < 60).sum() for color in ([255, 0, 0], [0, 0, 255]))
    assert 0.5 < red / blue < 2


def test_lines_are_compared_as_they_are_drawn():
    """On a logarithmic axis from 1 to 10^6, 1 and 2 are far apart; on a linear one, they are one line."""
    values = [[1, 1, 1e6], [2, 2, 1e6]]
    for scale, data in (("linear", 1), ("log", 0)):
        ax = lines(values, scale)
        add_legend(ax)
        assert sum("same line" in text for text in named(ax)) == data


def test_many_coincident_lines():
    """Of twenty equal lines, twelve take turns; the others lie below them."""
    ax = lines([[1, 2, 3]] * 20)
    add_legend(ax)
    turning = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert len(turning) == 12 and len(named(ax)) == 12 and named(ax)[-1] == "and 9 more"
    assert max(line.get_zorder() for line in ax.lines[12:]) < min(line.get_zorder() for line in turning)


@pytest.mark.parametrize(("count", "longest"), [(1, 5), (3, 5), (12, 60), (40, 60)])
def test_axes_keep_their_size(count, longest):
    """The picture grows by the height of the legend."""
    sizes = []
    for legend in (False, True):
        figure = new_figure(7.2, 3)
        ax = figure.subplots()
        for i in range(count):
            ax.plot([0, 1], [0, i], label=f"{i}".rjust(longest, "x"))
        ax.set_xlabel("env steps")
        if legend:
            add_legend(ax)
        figure.draw_without_rendering()
        sizes.append(ax.bbox.size)
    np.testing.assert_allclose(sizes[0], sizes[1], rtol=0.03)


def test_panels_of_equal_entries_share_the_lowest_legend():
    figure = new_figure(7.2, 6)
    axes = figure.subplots(3, 1)
    for ax, names in zip(axes, ("ab", "ac", "ac"), strict=True):
        for i, name in enumerate(names):
            ax.plot([0, 1], [0, i], label=name)
    add_legends(list(axes))
    assert [named(ax) for ax in axes] == [["a", "b"], [], ["a", "c"]]


def test_a_legend_of_several_panels_tells_of_coincident_lines():
    figure = new_figure(7.2, 4)
    axes = figure.subplots(1, 2)
    for ax, height in zip(axes, (1, 0), strict=True):
        ax.plot([0, 1], [0, 0], label="a")
        ax.plot([0, 1], [0, height], label="b")
    add_common_legend(list(axes))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", TURNS]
    assert png_of(figure).startswith(b"\x89PNG")
