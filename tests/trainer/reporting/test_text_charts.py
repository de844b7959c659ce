import math

import pytest

from marltrain.trainer.reporting.text_charts import BRAILLE, PLAIN, bar, beside, box, curve, fitted, plain, width_of


def dots(line):
    """The columns of a line of a curve with a dot, of two per character."""
    cells = [ord(c) - BRAILLE for c in plain([line])[10:] if ord(c) >= BRAILLE]
    return [2 * i + half for i, bits in enumerate(cells) for half in (0, 1) if bits & (0x47, 0xB8)[half]]


def test_curve_goes_through_its_points():
    """Four values over 8 columns and 8 rows of dots: up, down, and level in the middle."""
    lines = curve([0, 100], [1.0, 3.0], 14, 3)
    assert plain(lines) == "        3 ⠀⠀⡠⠊\n        1 ⡠⠊⠀⠀\n          0 100"
    assert [dots(line) for line in curve([0, 100], [3.0, 1.0], 14, 3)[:2]] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert plain(curve([0, 100], [2.0, 2.0], 14, 3)).startswith("        2 ⠒⠒⠒⠒\n")


def test_steep_curve_has_no_gap():
    lines = curve([0, 49, 50, 100], [0.0, 0.0, 1.0, 1.0], 40, 6)
    assert all(dots(line) for line in lines[:5])


def test_points_of_one_column_are_averaged():
    one = curve([0, 1, 1000], [0.0, 10.0, 5.0], 14, 3)
    assert plain(one) == plain(curve([0, 1000], [5.0, 5.0], 14, 3))


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, math.nan]])
def test_curve_without_a_finite_value_says_so(values):
    assert plain(curve(range(len(values)), values, 30, 4)).strip() == "no value yet"


def test_values_that_are_not_finite_are_left_out():
    assert plain(curve([0, 50, 100], [1.0, math.nan, 3.0], 14, 3)) == plain(curve([0, 100], [1.0, 3.0], 14, 3))


def test_boxes_have_their_size_and_stand_side_by_side():
    left, right = box("a", [[("x" * 50, "")]], 10, 4), box("a long title", [], 9, 4)
    assert plain(beside(left, right)) == (
        "┌─ a ────┐┌─ a l ─┐\n│ xxxxxx ││       │\n│        ││       │\n└────────┘└───────┘"
    )
    assert {width_of(line) for line in beside(left, right)} == {19}


def test_lines_are_cut_and_filled():
    assert plain([fitted([("abc", ""), ("def", "")], 4)]) == "abcd"
    assert width_of(fitted([("abc", "")], 7)) == 7


@pytest.mark.parametrize(("share", "text"), [(0.0, "────"), (0.5, "━━──"), (1.0, "━━━━")])
def test_bar(share, text):
    assert plain([bar(share, 4)]) == text


def test_lines_can_be_written_without_unicode():
    text = plain([*box("a", curve([0, 1], [0.0, 1.0], 20, 3), 24, 5), bar(0.5, 4)]).translate(PLAIN)
    assert text.isascii() and "*" in text
