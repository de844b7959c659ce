"""Perfect play of tic-tac-toe, by hand and by counts of all games."""

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.rivals.tictactoe import NO_MOVE


def test_scores_of_positions_by_hand():
    empty = mt.tictactoe_scores([0] * 9)
    assert empty.tolist() == [0] * 9
    corner = mt.tictactoe_scores([1, 0, 0, 0, 0, 0, 0, 0, 0])  # only the center holds the draw
    assert corner.tolist() == [NO_MOVE, -1, -1, -1, 0, -1, -1, -1, -1]
    wins = mt.tictactoe_scores([[1, 1, 0, 2, 2, 0, 0, 0, 0], [1, 1, 0, 2, 2, 0, 1, 0, 0]])
    assert wins[0, 2] == 1
    assert wins[1, 5] == 1 and wins[1, 8] == -1  # player 2 completes a line, or lets player 1 do so


def perfect(observation, legal):
    """The best move by the scores; `observation`: own marks and the opponent's."""
    own, other = observation[..., 0].ravel(), observation[..., 1].ravel()
    first = own.sum() == other.sum()
    squares = own + 2 * other if first else 2 * own + other
    return int(mt.tictactoe_scores(squares).argmax())


def first_free(observation, legal):
    return int(np.argmax(legal))


def test_perfect_play_loses_no_game():
    agent = mt.FunctionAgent(perfect)
    played = mt.tictactoe_games([agent, agent])
    assert played.losses.tolist() == [0, 0] and (played.wins > 0).all()


def test_games_of_the_first_free_square_by_a_plain_count():
    def count(squares, mover, seat):
        """Return wins, draws and losses of the player in a seat, who takes the first free square."""
        total = np.zeros(3, int)
        free = [square for square in range(9) if not squares[square]]
        for square in free[:1] if mover == seat else free:
            after = [*squares]
            after[square] = mover + 1
            lines = [after[i : i + 3] for i in (0, 3, 6)] + [after[i::3] for i in range(3)] + [after[::4], after[2:7:2]]
            if any(line == [mover + 1] * 3 for line in lines):
                total[0 if mover == seat else 2] += 1
            elif all(after):
                total[1] += 1
            else:
                total += count(after, 1 - mover, seat)
        return total

    agent = mt.FunctionAgent(first_free)
    played = mt.tictactoe_games({"player_1": agent, "player_2": agent})
    expected = np.stack([count([0] * 9, 0, seat) for seat in (0, 1)], 1)
    assert [played.wins.tolist(), played.draws.tolist(), played.losses.tolist()] == expected.tolist()
    assert np.array_equal(played.games, expected.sum(0)) and (played.losses > 0).any()


def test_a_network_is_played_greedily():
    agents = mt.make_agents("ppo", "marltrain/tictactoe_v3", seed=0)
    played = mt.tictactoe_games(agents)
    assert played.losses.sum() > 0 and np.array_equal(mt.tictactoe_games(agents).losses, played.losses)


def test_illegal_moves_are_told():
    agent = mt.FunctionAgent(lambda observation, legal: 0)
    with pytest.raises(AgentError, match=r"'player_1': FunctionAgent chose 0 in \[1, .*expected one of the empty"):
        mt.tictactoe_games([agent, agent])


def test_agents_of_another_game_are_refused():
    with pytest.raises(AgentError, match="its observation space is"):
        mt.tictactoe_games(mt.make_agents("ppo", "marltrain/connect_four_v3", seed=0))


@pytest.mark.parametrize(
    ("squares", "message"),
    [
        ([0] * 8, r"squares must be \[B, 9\]"),
        ([3] * 9, "1 or 2 for an owner"),
        ([1, 1, 1, 2, 2, 0, 0, 0, 0], "position 0, .* is over"),
        ([2, 0, 0, 0, 0, 0, 0, 0, 0], "do not alternate"),
    ],
)
def test_positions_that_no_game_reaches(squares, message):
    with pytest.raises(ConfigError, match=message):
        mt.tictactoe_scores(squares)
