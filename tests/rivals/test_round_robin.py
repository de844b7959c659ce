"""Round robins of players of known strength."""

import itertools
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.rivals.round_robin import RoundRobin

ROCKS, HANDS = "marltrain/rock_paper_scissors_v1", ("rock", "paper", "scissors")


def hand(number: int) -> Any:
    """Return a player that always shows a hand."""
    return mt.FunctionAgent(lambda observation: number)


def test_hands_form_a_cycle():
    players = {name: hand(number) for number, name in enumerate(HANDS)}
    result = mt.round_robin(players, ROCKS, episodes=3)
    assert result.outcomes.tolist() == [
        [[0, 0, 0], [0, 0, 6], [6, 0, 0]], [[6, 0, 0], [0, 0, 0], [0, 0, 6]], [[0, 0, 6], [6, 0, 0], [0, 0, 0]],
    ]  # fmt: skip
    assert result.cycles() == [("rock", "scissors", "paper")]
    table = result.ratings()
    assert list(table.index) == list(HANDS)
    for column, expected in {"rating": 0, "low": 0, "high": 0, "score": 0.5, "nash": 1 / 3, "nash_rating": 0}.items():
        np.testing.assert_allclose(table[column], expected, atol=1e-3)
    assert result.returns[0, 2] == -result.returns[2, 0] > 0 and np.isnan(result.returns[1, 1])
    assert "scissors" in repr(result) and result.payoffs().loc["paper", "rock"] == 1


def test_both_seats_are_played():
    """Tic-tac-toe: the first free field against itself wins for the player that begins; scores are even."""
    first = mt.FunctionAgent(lambda observation, legal: legal.argmax(-1))
    last = mt.FunctionAgent(lambda observation, legal: 8 - legal[..., ::-1].argmax(-1))
    result = mt.round_robin({"first": first, "last": last}, "marltrain/tictactoe_v3", episodes=2)
    alone = mt.DecentralizedTrainer("marltrain/tictactoe_v3", seed=0, progress=False, run_dir=False)
    own = alone.test([first, last], 2).returns[:, 0], alone.test([last, first], 2).returns[:, 1]
    expected = [sum(int((side > 0).sum()) for side in own), sum(int((side < 0).sum()) for side in own)]
    assert result.outcomes[0, 1, [0, 2]].tolist() == expected and result.outcomes[0, 1].sum() == 4


def test_the_best_is_named_first():
    outcomes = np.zeros((3, 3, 3), np.int64)
    for (i, j), wins in {(0, 1): 10, (1, 2): 60, (0, 2): 30}.items():
        outcomes[i, j], outcomes[j, i] = (wins, 10, 90 - wins), (90 - wins, 10, wins)
    result = RoundRobin(("a", "b", "c"), outcomes, *np.zeros((2, 3, 3)))
    table = result.ratings()
    assert list(table.index) == ["b", "c", "a"] and table["rating"].sum() == pytest.approx(0, abs=1e-6)
    assert ((table["low"] < table["rating"]) & (table["rating"] < table["high"])).all()
    assert result.scores[0, 1] == 0.15 and not result.cycles()
    assert table.loc["b", "nash"] == pytest.approx(1, abs=1e-3)


def test_an_agent_regresses_if_the_bound_of_its_score_is_below_one_half():
    """Two earlier players, 95 % together: 97.5 % each, z = 1.96. 16 to 36 are 20 / sqrt(52) = 2.77 standard errors, 20
    to 32 are 1.66, which is enough for one player alone (z = 1.645).
    """
    outcomes = np.zeros((4, 4, 3), np.int64)
    for other, (wins, draws, losses) in {1: (16, 9, 36), 2: (20, 1, 32), 3: (0, 0, 9)}.items():
        outcomes[0, other], outcomes[other, 0] = (wins, draws, losses), (losses, draws, wins)
    result = RoundRobin(("final", "a", "b", "random"), outcomes, *np.zeros((2, 4, 4)))
    table = result.regressions("final", ["a", "b"])
    assert list(table.index) == ["a", "b"] and table["regresses"].tolist() == [True, False]
    assert table[["games", "wins", "draws", "losses"]].to_numpy().tolist() == [[61, 16, 9, 36], [53, 20, 1, 32]]
    assert table["score"].tolist() == [20.5 / 61, 20.5 / 53] and table["high"].to_numpy()[1] > 0.5
    assert list(result.regressions("final").index) == ["a", "b", "random"]
    assert result.regressions("final", ["b"])["regresses"].all()


def test_an_agent_regresses_if_the_bound_of_its_margin_is_below_zero():
    """Two earlier players, z = 1.96: margins of -2 and -0.5 with a standard error of 1 and 0.25 each."""
    returns, errors = np.zeros((3, 3)), np.full((3, 3), 1.0)
    returns[0], returns[:, 0], errors[0, 2] = (np.nan, -1, -0.3), (np.nan, 1, 0.2), 0.3
    result = RoundRobin(("final", "a", "b"), np.ones((3, 3, 3), np.int64), returns, errors)
    table = result.regressions("final", by="return")
    assert table["margin"].tolist() == [-2, -0.5] and table["regresses"].tolist() == [True, False]
    np.testing.assert_allclose(table["high"], [-2 + 1.959964, -0.5 + 0.3 * 1.959964], rtol=1e-6)
    assert not result.regressions("final")["regresses"].any()
    assert result.regressions("final", ["a"], by="return")["high"].tolist() == pytest.approx([-2 + 1.644854], abs=1e-5)
    with pytest.raises(ConfigError, match='by="score" or by="return", got \'mean\''):
        result.regressions("final", by="mean")


def test_standard_errors_are_those_of_the_differences_of_returns():
    """Rock against rock, paper and scissors in turn, in episodes of 25 moves: differences 0, -2, 2, twice each."""
    moves = itertools.count()
    changing = mt.FunctionAgent(lambda observation: next(moves) % 3)
    result = mt.round_robin({"rock": hand(0), "changing": changing}, ROCKS, episodes=3, num_test_envs=1)
    expected = np.sqrt(16 / 5) / np.sqrt(6)
    np.testing.assert_allclose(result.errors, [[np.nan, expected], [expected, np.nan]])


@pytest.mark.parametrize(
    ("final", "earlier", "level", "named"),
    [
        ("c", None, 0.95, "'c'"), ("a", ["c"], 0.95, "'c'"), ("a", [], 0.95, r"\[\]"), ("a", ["a"], 0.95, r"\['a'\]"),
        ("a", None, 1.0, "level=1.0"),
    ],
)  # fmt: skip
def test_regressions_of_unknown_players_are_refused(final, earlier, level, named):
    result = RoundRobin(("a", "b"), np.ones((2, 2, 3), np.int64), *np.zeros((2, 2, 2)))
    with pytest.raises(ConfigError, match=named):
        result.regressions(final, earlier, level)


@pytest.mark.parametrize(("prior", "resamples", "level"), [(-1, 10, 0.9), (0.5, 0, 0.9), (0.5, 10, 1)])
def test_numbers_out_of_range_are_refused(prior, resamples, level):
    result = RoundRobin(("a", "b"), np.ones((2, 2, 3), np.int64), *np.zeros((2, 2, 2)))
    with pytest.raises(ConfigError, match=f"got prior={prior}, resamples={resamples}, level={level}"):
        result.ratings(prior, resamples, level)


def test_a_player_without_points_has_a_rating_only_with_a_prior():
    outcomes = np.array([[[0, 0, 0], [5, 0, 0]], [[0, 0, 5], [0, 0, 0]]])
    result = RoundRobin(("a", "b"), outcomes, *np.zeros((2, 2, 2)))
    assert result.ratings()["rating"].tolist() == pytest.approx([200 * np.log10(11), -200 * np.log10(11)])
    with pytest.raises(ConfigError, match="prior"):
        result.ratings(prior=0)


@pytest.mark.parametrize("env", ["marltrain/simple_adversary_v3", "marltrain/CartPole-v1"])
def test_games_of_others_than_two_equal_players_are_refused(env):
    with pytest.raises(ConfigError, match="expected a game of two players with equal spaces"):
        mt.round_robin({"a": mt.RandomAgent(), "b": mt.RandomAgent()}, env)


def test_a_single_agent_is_refused():
    with pytest.raises(ConfigError, match=r"at least two agents, got \['a'\]"):
        mt.round_robin({"a": mt.RandomAgent()}, ROCKS)
