"""Interquartile means, intervals and ranks."""

import numpy as np
import pytest

from marltrain.tools.finding.ranking import interquartile_mean, interval_of_best, ranked


@pytest.mark.parametrize(
    ("scores", "mean"), [([1, 2, 9], 4), ([0, 1, 2, 3, 100], 2), ([4, 2], 3), ([-np.inf, 1, 2, 3], 1.5), ([5], 5)]
)
def test_a_quarter_rounded_down_is_left_out_at_either_end(scores, mean):
    assert interquartile_mean(np.array(scores, float)) == mean


def test_candidates_are_ranked_with_intervals():
    ranking = ranked([[1.0, 2.0, 3.0], [7.0, 8.0, 9.0], [-np.inf, -np.inf, 8.0]])
    assert ranking.order.tolist() == [1, 0, 2]
    assert ranking.score.tolist() == [2.0, 8.0, -np.inf]
    assert (ranking.low[1], ranking.high[1]) == (7.0, 9.0)  # the smallest and the largest mean of a resample: 1 / 27
    assert ranking.first[0] == 0.0 and ranking.first.sum() == pytest.approx(1.0)
    assert 0.97 < ranking.first[1] <= 1.0


def test_equal_candidates_share_the_first_rank():
    assert ranked([[1.0, 1.0], [1.0, 1.0]]).first.tolist() == [0.5, 0.5]


def test_a_single_seed_has_no_interval():
    ranking = ranked([[1.0], [2.0]])
    assert (ranking.low[0], ranking.high[0]) == (-np.inf, np.inf) and ranking.order.tolist() == [1, 0]
    assert np.isnan(ranking.first).all() and interval_of_best(ranking, [0.1, 0.2]) is None


def test_candidates_of_equal_seeds_are_resampled_together():
    """A candidate that is better by a constant with every seed is always first, however seeds differ."""
    first = [0.0, 10.0, 50.0, 100.0]
    assert ranked([first, [value + 1 for value in first]]).first.tolist() == [0.0, 1.0]
    assert 0.2 < ranked([first, [value + 1 for value in first * 2]]).first[1] < 0.8  # other seeds


def test_interval_of_the_best_value_leaves_out_values_that_rarely_win():
    scores = [[0.0, 0.1, 0.2], [5.0, 5.5, 6.0], [4.9, 5.6, 6.1]]
    assert interval_of_best(ranked(scores), [0.3, 0.2, 0.1]) == (0.1, 0.2)
    assert interval_of_best(ranked(scores[:2]), [0.3, 0.2]) == (0.2, 0.2)
