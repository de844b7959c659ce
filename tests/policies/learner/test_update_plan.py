"""Means over rounds of updates, worked out by hand."""

import numpy as np
import pytest

from marltrain.policies.learner.update_plan import DueUpdates, MadeUpdates


def made(counts, measured, *, broken=False):
    """Rounds of two agents: measured [U] of the first agent, and ten times as much of the second; rates 1, 2, ..."""
    values = np.array(measured, float)[:, None, None] * [1, 10]
    rounds = [DueUpdates(3 * i + 3, 30 * i + 30, n) for i, n in enumerate(counts)]
    rates = np.arange(1, len(counts) + 1, dtype=float)[:, None, None] * [1, 1]
    return MadeUpdates(rounds, np.array(counts, np.int64), ("loss", "rate"), values, rates, {}, broken)


@pytest.mark.parametrize(
    ("counts", "measured", "expected"),
    [
        ([1, 1], [3, 5], [[[3, 30], [1, 1]], [[5, 50], [2, 2]]]),
        ([2, 1], [3, 5, 7], [[[4, 40], [1, 1]], [[7, 70], [2, 2]]]),
        ([0, 2, 0], [3, 5], [[[4, 40], [2, 2]]]),
        ([0, 0], [], []),
        ([1, 3], [np.nan, 3, np.nan, 5], [[[np.nan, np.nan], [1, 1]], [[4, 40], [2, 2]]]),
    ],
)
def test_means_over_the_updates_of_each_round(counts, measured, expected):
    means = made(counts, measured).means()
    assert means.shape == (len(expected), 2, 2)
    np.testing.assert_array_equal(means, np.reshape(expected, means.shape))


@pytest.mark.parametrize(("counts", "measured"), [([1, 1], [3, np.nan]), ([1, 3], [3, 5, np.nan])])
def test_a_round_that_was_given_up_is_left_out(counts, measured):
    assert made(counts, measured, broken=True).means().tolist() == [[[3, 30], [1, 1]]]
