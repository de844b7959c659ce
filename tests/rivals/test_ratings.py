"""Ratings and equilibria of known results."""

import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.rivals.ratings import bradley_terry, intervals, nash_average, score_bounds

ROCK = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])


def test_ratings_of_two_players_are_their_odds():
    """3 points to 1: odds of 3; with a prior of half a point, 3.5 to 1.5."""
    points = np.array([[0.0, 3], [1, 0]])
    for prior, odds in ((0.0, 3.0), (0.5, 3.5 / 1.5)):
        found = bradley_terry(points, prior)
        np.testing.assert_allclose(found, [200 * np.log10(odds), -200 * np.log10(odds)], atol=1e-6)


def test_strengths_are_found_again_from_expected_results():
    """Strengths 1, 2, 5: points are the expected ones of games of different numbers; one pair did not meet."""
    strength, games = np.array([1.0, 2, 5, 4]), np.array([[0, 10, 4, 0], [10, 0, 7, 3], [4, 7, 0, 9], [0, 3, 9, 0]])
    points = games * strength[:, None] / (strength[:, None] + strength)
    found = bradley_terry(points, prior=0.0)
    expected = 400 * np.log10(strength)
    np.testing.assert_allclose(found, expected - expected.mean(), atol=1e-5)


def test_players_without_a_connection_are_refused():
    points = np.zeros((4, 4))
    points[0, 1] = points[1, 0] = points[2, 3] = points[3, 2] = 1
    with pytest.raises(ConfigError, match="player 0 has no points against player 2"):
        bradley_terry(points)
    with pytest.raises(ConfigError, match="player 1 has no points against player 0"):
        bradley_terry(np.array([[0.0, 3], [0, 0]]), prior=0.0)


def test_intervals_become_narrow_with_games_and_hold_the_rating():
    """The standard error of a logit of n games is 1 / sqrt(n p (1 - p)); a rating is half of it, in Elo points."""
    share, widths = 0.7, list[float]()
    for games in (100, 10_000):
        outcomes = np.zeros((2, 2, 3), np.int64)
        outcomes[0, 1], outcomes[1, 0] = (
            (share * games, 0, (1 - share) * games),
            ((1 - share) * games, 0, share * games),
        )
        low, high = intervals(outcomes, 0.0, 2000, 0.95, 0)
        rating = 200 * np.log10(share / (1 - share))
        assert low[0] < rating < high[0] and low[1] < -rating < high[1]
        error = 0.5 * 400 / np.log(10) / np.sqrt(games * share * (1 - share))
        widths.append((high[0] - low[0]) / (2 * 1.96 * error))
    assert widths == pytest.approx([1.0, 1.0], rel=0.08)


def test_bounds_of_scores_without_draws_are_wilsons():
    """40 wins in 100 games."""
    z = 1.6448536269514722
    wilson = (0.4 + z**2 / 200 + z * np.sqrt(0.24 / 100 + z**2 / 40_000)) / (1 + z**2 / 100)
    assert score_bounds(np.array([40, 0, 60]), 0.95) == pytest.approx(wilson, abs=1e-12)


def test_bounds_are_below_one_half_by_the_sign_test():
    """(losses - wins) / sqrt(losses + wins) decides, whatever the number of draws."""
    level = 0.975  # z = 1.95996
    for draws in (0, 5, 10_000):
        below = score_bounds(np.array([[24, draws, 40], [0, draws, 4]]), level)  # both 2.0
        above = score_bounds(np.array([[0, draws, 3], [25, draws, 40]]), level)  # 1.73, 1.86
        assert (below < 0.5).all() and (above > 0.5).all()


def test_bounds_hold_with_their_probability():
    rng = np.random.default_rng(0)
    wins, draws, losses = 0.2, 0.5, 0.3
    outcomes = rng.multinomial(400, (wins, draws, losses), 20_000)
    held = (score_bounds(outcomes, 0.95) >= wins + draws / 2).mean()
    assert held == pytest.approx(0.95, abs=0.006)


def test_bounds_of_draws_alone_and_of_no_games():
    assert score_bounds(np.array([[0, 7, 0], [0, 0, 0]]), 0.95).tolist() == [0.5, 1.0]


def test_draws_make_intervals_narrow():
    outcomes = np.zeros((2, 2, 3), np.int64)
    outcomes[0, 1] = outcomes[1, 0] = 0, 100, 0
    low, high = intervals(outcomes, 0.5, 100, 0.95, 0)
    assert low.tolist() == high.tolist() == [0, 0]


def test_the_equilibrium_of_a_cycle_counts_copies_once():
    share, rating = nash_average(ROCK)
    np.testing.assert_allclose(share, 1 / 3, atol=1e-5)
    np.testing.assert_allclose(rating, 0, atol=1e-5)
    copied = ROCK[np.ix_([0, 1, 2, 2], [0, 1, 2, 2])]
    np.testing.assert_allclose(nash_average(copied)[0], [1 / 3, 1 / 3, 1 / 6, 1 / 6], atol=1e-4)


def test_a_player_that_beats_all_others_is_the_equilibrium():
    payoffs = np.array([[0.0, 2, 1], [-2, 0, 3], [-1, -3, 0]])
    share, rating = nash_average(payoffs)
    np.testing.assert_allclose(share, [1, 0, 0], atol=1e-3)
    np.testing.assert_allclose(rating, [0, -2, -1], atol=5e-3)


def test_equal_players_share_the_equilibrium():
    np.testing.assert_allclose(nash_average(np.zeros((4, 4)))[0], 0.25)


def test_payoffs_that_are_not_antisymmetric_are_refused():
    with pytest.raises(ConfigError, match="reaches 2"):
        nash_average(np.ones((2, 2)))
