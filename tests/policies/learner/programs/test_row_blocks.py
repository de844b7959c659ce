"""How the rows of a rollout are divided into blocks."""

import pytest

from marltrain.policies.learner.programs.row_blocks import IN_ROWS, IN_SEQUENCES, RowBlocks


@pytest.mark.parametrize(
    ("rows", "blocks"), [(0, (0, 0)), (1, (0, 1)), (16, (0, 1)), (127, (0, 8)), (128, (1, 0)), (300, (2, 3))]
)
def test_blocks_that_hold_some_rows(rows, blocks):
    assert IN_ROWS == (128, 16)
    each = RowBlocks.of_units(1)
    assert each.of(rows) == blocks
    whole, rests = blocks
    assert each.widened(rows) == 128 * whole + 16 * rests


def test_sequences_stay_together():
    assert IN_SEQUENCES == (32, 8)
    each = RowBlocks.of_units(5)
    assert (each.block, each.rest) == (160, 40)
    assert each.of(165) == (1, 1)


@pytest.mark.parametrize(("units", "width"), [(1, 32), (33, 48), (64, 64), (65, 80), (130, 144), (300, 320)])
def test_widths_of_minibatches(units, width):
    """Eight to each doubling, in whole blocks."""
    assert RowBlocks.of_units(1).width(units) == width


def test_smaller_blocks():
    each = RowBlocks.of_units(1)
    assert [each.smaller(parts).block for parts in (1, 2, 3, 8, 50)] == [128, 64, 32, 16, 16]
    assert each.smaller(3).rest == 16
