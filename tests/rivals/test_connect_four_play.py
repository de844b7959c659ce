"""Positions of connect four, moves that give away their results, and the player by minimax."""

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.rivals.connect_four import NO_MOVE, board_after

BOARD = board_after([2, 5, 1, 3, 2, 1, 6, 5, 0, 6, 6, 1, 2, 3, 4, 3, 1, 6, 4, 0, 5, 5])
"""A position in which column 2 wins, column 3 draws, and all others lose; the player that began has the turn."""


@pytest.fixture(scope="module")
def late():
    return mt.connect_four_positions(30, 32, 38, seed=1)


def observed(board):
    """Return the observation of the player with the turn."""
    mover = (board > 0).sum() % 2
    return np.stack([board == 1 + mover, board == 2 - mover], -1)


def test_positions_differ_in_the_results_of_their_moves(late):
    boards, results = late
    scores = mt.connect_four_scores(boards)
    assert np.array_equal(results, np.where(scores == NO_MOVE, NO_MOVE, np.sign(scores)))
    assert all(len(np.unique(row[row != NO_MOVE])) > 1 for row in results)
    pieces = (boards > 0).sum((1, 2))
    assert pieces.min() >= 32 and pieces.max() <= 38 and len(np.unique(pieces)) > 4
    assert len({board.tobytes() for board in boards}) == 30


def test_positions_follow_from_the_seed(late):
    assert np.array_equal(mt.connect_four_positions(5, 32, 38, seed=1)[0], late[0][:5])
    assert not np.array_equal(mt.connect_four_positions(5, 32, 38, seed=2)[0], late[0][:5])


@pytest.mark.parametrize(("column", "share"), [(2, 0), (3, 1), (0, 1)])
def test_moves_that_give_away_a_win(column, share):
    results = mt.connect_four_scores(BOARD[None], only_signs=True)
    player, other = mt.FunctionAgent(lambda seen, legal: column), mt.FunctionAgent(lambda seen, legal: 9)
    assert mt.connect_four_blunders([player, other], BOARD[None], results) == [share]


def test_random_moves_and_moves_of_each_seat(late):
    boards, results = late
    random, minimax = mt.RandomAgent(), mt.ConnectFourMinimax(10)
    found = mt.connect_four_blunders([random, minimax], boards, results)
    allowed, best = results != NO_MOVE, results.max(1, keepdims=True)
    by_chance = ((results < best) & allowed).sum(1) / allowed.sum(1)
    second = (boards > 0).sum((1, 2)) % 2 == 1
    assert 0 < second.sum() < 30
    assert found.tolist() == pytest.approx(np.where(second, 0, by_chance).tolist())


def test_minimax_to_the_end_of_the_game_prefers_early_wins_and_late_losses(late):
    boards, _ = late
    scores = mt.connect_four_scores(boards)
    shares = [mt.ConnectFourMinimax(10).probabilities(observed(board)) for board in boards]
    best = scores == scores.max(1, keepdims=True)
    assert np.array_equal(np.stack(shares), best / best.sum(1, keepdims=True))


def test_minimax_plays_games():
    trainer = mt.DecentralizedTrainer(
        "marltrain/connect_four_v3", num_test_envs=4, seed=0, progress=False, run_dir=False
    )
    test = trainer.test([mt.RandomAgent(), mt.ConnectFourMinimax(3)], episodes=8)
    assert test.wins is not None and test.wins[1] >= 7


@pytest.mark.parametrize(
    ("count", "fewest", "most", "named"),
    [(0, 8, 12, "count 0"), (1, -1, 12, "fewest -1"), (1, 13, 12, "most 12"), (1, 8, 42, "most 42")],
)
def test_positions_that_do_not_exist(count, fewest, most, named):
    with pytest.raises(ConfigError, match=named):
        mt.connect_four_positions(count, fewest, most)


def test_depth_below_1():
    with pytest.raises(ConfigError, match="got 0"):
        mt.ConnectFourMinimax(0)


def test_agents_of_another_game():
    agents = mt.make_agents("ppo", "marltrain/tictactoe_v3", seed=0)
    with pytest.raises(AgentError):
        mt.connect_four_blunders(agents, BOARD[None], np.zeros((1, 7)))
