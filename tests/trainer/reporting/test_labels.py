"""Labels that have room: widths in inches, shortened to what fits."""

import pytest

from marltrain.trainer.reporting.labels import LONGEST_LABEL, label, labels, unescaped, width_of


def test_a_text_is_as_wide_as_it_is_drawn():
    """Twice the letters or twice the size are twice as wide; nine points of an em are an eighth of an inch."""
    assert width_of("mm") == pytest.approx(2 * width_of("m"), rel=0.05)
    assert width_of("m", 18) == pytest.approx(2 * width_of("m", 9), rel=0.05)
    assert 0.8 * 9 / 72 < width_of("m") < 9 / 72 and width_of("") == 0


@pytest.mark.parametrize("name", ["m" * 50, "i" * 50, "名前" * 25, "$" * 50, "a_b" * 15, "W" * 60])
@pytest.mark.parametrize("inches", [0.5, 1.0, 3.0])
def test_labels_have_room(name, inches):
    """As much is kept as fits: with three letters more, it would not."""
    text = unescaped(label(name, inches=inches))
    assert width_of(text) <= inches
    if len(text) < len(name):
        assert "…" in text and width_of(text + name[:3]) > inches


def test_a_label_that_fits_is_not_changed():
    assert label("m" * 10, inches=width_of("m" * 10)) == "m" * 10
    assert label("mm", inches=0.01) == "…"  # a letter is drawn in any case
    assert len(label("i" * 100, inches=100)) == LONGEST_LABEL


def test_labels_without_room_for_the_difference_have_numbers():
    result = labels([f"{'m' * 20}{i}{'m' * 20}" for i in range(12)], inches=1.5)
    assert len(set(result)) == 12 and all(width_of(text) <= 1.5 for text in result)
    assert result[1].endswith(" (2)") and result[11].endswith(" (12)")
    assert labels(["a", "a", "a (2)"]) == ["a", "a (2)", "a (2) (2)"]
