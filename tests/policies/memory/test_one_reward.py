"""Rewards of several players: which count, and when they are equal."""

import numpy as np
import pytest

from marltrain.policies.memory.one_reward import compare

YES, NO = True, False


@pytest.mark.parametrize(
    ("rewards", "valid", "largest", "place"),
    [
        ([[1, 2, 3], [1, 2, 3]], [[YES] * 3] * 2, [1, 2, 3], None),
        ([[1, 2, 3], [1, 9, 4]], [[YES] * 3] * 2, [1, 9, 4], 1),  # the first of two columns
        ([[1, 2, 3], [1, 9, 4]], [[YES] * 3, [YES, NO, YES]], [1, 2, 4], 2),
        ([[1, 2, 3], [1, 9, 4]], [[YES] * 3, [YES, NO, NO]], [1, 2, 3], None),
        ([[5, 2], [7, 2]], [[NO, YES], [NO, YES]], [-np.inf, 2], None),  # a column without any
        ([[-1.0, 0.0], [-2.0, 0.0], [-1.0, 1e-6]], [[YES] * 2] * 3, [-1, 1e-6], 0),
        # of rewards below 1 the difference counts, of others its share: 1e-5 of 2000 is 0.02
        ([[0.5, 2000.0], [0.500009, 2000.019]], [[YES] * 2] * 2, [0.500009, 2000.019], None),
        ([[0.5, 2000.0], [0.500009, 2000.03]], [[YES] * 2] * 2, [0.500009, 2000.03], 1),
        ([[0.5, 2000.0], [0.500011, 2000.0]], [[YES] * 2] * 2, [0.500011, 2000.0], 0),
    ],
)
def test_largest_reward_and_first_column_that_differs(rewards, valid, largest, place):
    high, found = compare(np.array(rewards, np.float32), np.array(valid))
    assert found == place
    np.testing.assert_allclose(high, largest, rtol=1e-6)
