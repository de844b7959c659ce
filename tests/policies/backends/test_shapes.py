"""Rounded numbers of rows: few, never below what is needed, and not much above."""

from __future__ import annotations

from marltrain.policies.backends.shapes import SMALLEST, rounded_up


def test_by_hand():
    assert [rounded_up(rows) for rows in (1, 32, 33, 36, 37, 64, 65, 72, 128, 129, 512)] == [
        32, 32, 36, 36, 40, 64, 72, 72, 128, 144, 512,
    ]  # fmt: skip


def test_an_eighth_too_many_at_most_and_few_different_ones():
    result = {rows: rounded_up(rows) for rows in range(SMALLEST, 4097)}
    assert all(rows <= wide <= rows * 1.125 for rows, wide in result.items())
    assert all(rounded_up(wide) == wide for wide in result.values())
    assert len(set(result.values())) == 1 + 8 * 7  # seven doublings of 32
