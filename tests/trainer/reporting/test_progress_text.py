"""What the progress display shows in terminals of all widths."""

from dataclasses import replace

import pytest

from marltrain.trainer.reporting.progress_text import State, beside_bar, line

STATE = State(12_345, 1_234_567, 76_543.0, -27.123, -26.05, 1.5, None, 3723.0, 7446.0)
TIMES = "[1:02:03<2:04:06]"


def test_all_of_it_in_a_line():
    counts = "12,345 episodes, 1,234,567 env steps, 76,543/s, metric -27.12 (best -26.05), loss 1.5"
    assert line(STATE) == f"{counts}  1:02:03 < 2:04:06"
    assert line(replace(STATE, left=None)) == f"{counts}  1:02:03"
    assert line(State(0, 0, None, None, None, None, (0, 1500), 1.0, None)) == (
        "0 episodes, 0 env steps, testing 0/1,500 episodes  0:01"
    )


@pytest.mark.parametrize(
    ("columns", "bar", "text"),
    [
        (200, 20, "12,345 episodes, 1,234,567 env steps, 76,543/s, metric -27.12 (best -26.05), loss 1.5"),
        (120, 8, "12,345 episodes, 1,234,567 env steps, 76,543/s, metric -27.12 (best -26.05), loss 1.5"),
        (100, 8, "1.23M steps, 76.5k/s, metric -27.12 (best -26.05), loss 1.5"),
        (84, 8, "1.23M steps, 76.5k/s, metric -27.12 (best -26.05)"),
        (79, 8, "1.23M steps, 76.5k/s, metric -27.12"),
        (68, 8, "1.23M steps, 76.5k/s, metric -27.12"),
        (60, 8, "1.23M steps, metric -27.12"),
        (55, 0, "1.23M steps, metric -27.12"),
        (40, 0, "metric -27.12"),
        (10, 0, "metric -27.12"),
    ],
)
def test_beside_a_bar(columns, bar, text):
    """The percentage, the bar's edges and a blank take 7 columns, the times and a blank 18."""
    assert beside_bar(STATE, columns) == (f"{text} {TIMES}", bar)
    if columns >= 40:
        assert 7 + bar + len(f"{text} {TIMES}") <= columns


@pytest.mark.parametrize("testing", [None, (0, 50), (1234, 1500)])
@pytest.mark.parametrize("loss", [None, -1.23e-05, 123_456.0])
@pytest.mark.parametrize("metric", [-27.5, -1.234e-05, 123_456_789.0])
@pytest.mark.parametrize("steps", [0, 999, 999_999, 9_999_999_999])
def test_metric_and_time_stay_at_80_columns(testing, loss, metric, steps):
    """A bar of at least a line, for any numbers; a running test stays, too."""
    state = State(steps // 7, steps, steps / 3, metric, metric, loss, testing, 359_999.0, 3_599_999.0)
    text, bar = beside_bar(state, 79)
    assert 7 + bar + len(text) <= 79
    assert f"metric {metric:.4g}" in text and text.endswith("[99:59:59<999:59:59]")
    assert testing is None or f"{testing[0]}/{testing[1]}" in text.replace(",", "")


@pytest.mark.parametrize(
    ("steps", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (12_340, "12.3k"), (999_600, "1M"), (1_000_000_000, "1B"), (99_999, "100k")],
)
def test_short_counts(steps, text):
    state = State(0, steps, None, None, None, None, None, 0.0, None, short=True)
    assert line(state) == f"{text} steps  0:00"
