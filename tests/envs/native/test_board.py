"""Board games against PettingZoo's."""

import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.envs.native.vector import NativeVectorEnv
from marltrain.jit.compiling import python_function
from marltrain.rivals.connect_four import bitboards, has_line
from tests.envs.driving import act
from tests.envs.native.originals import hold

FOUR = "marltrain/connect_four_v3"


def tictactoe(env):
    return {"squares": env.board.squares}


def test_tictactoe():
    hold("pettingzoo/classic/tictactoe_v3", "marltrain/tictactoe_v3", tictactoe)


def connect_four(env):
    return {"board": env.board}


def test_connect_four():
    hold("pettingzoo/classic/connect_four_v3", FOUR, connect_four)


def test_connect_four_with_players_who_build_towers():
    """Whoever has the turn mostly plays two columns of its own, so that lines are long, and columns full."""

    def choose(spec, step, rng):
        mover = int(step.turn[0][1, 0])
        legal = np.flatnonzero(step.legal[0][mover, 0])
        wanted = [column for column in legal if column // 4 == mover and column % 4 < 2]
        chosen = rng.choice(wanted if wanted and rng.random() < 0.7 else legal)
        return (np.full((2, 1), chosen),)

    hold("pettingzoo/classic/connect_four_v3", FOUR, connect_four, choose=choose)


def test_connect_four_ends_in_a_draw_when_the_board_is_full():
    full = np.array([[1, 1, 2, 2, 1, 1, 2], [2, 2, 1, 1, 2, 2, 1]] * 3)
    vector = NativeVectorEnv(FOUR, 1)
    vector.reset(0)
    full[0, 6] = 0
    vector.batch.set_state(0, {"board": full.reshape(-1), "pieces": 41, "turn": [0, 1]})
    step = vector.step(act(vector.spec, 1, player_1=6))
    assert step.terminated.all() and step.ended[0] and not step.reward.any()


def started(random_moves, role="train"):
    """Return the records of 600 environments of connect four that have begun an episode."""
    vector = NativeVectorEnv(FOUR, 600, {"random_moves": random_moves}, role=role)
    vector.reset(0)
    return vector.batch.game, vector.batch.records.copy()


def test_connect_four_begins_after_random_moves_in_training():
    game, records = started(random_moves=3)
    assert np.bincount(records["pieces"], minlength=4).min() > 100 and records["pieces"].max() == 3
    assert game.sound(records).all()
    assert len(np.unique(records["board"][records["pieces"] == 1], axis=0)) == 7
    assert not started(random_moves=3, role="test")[1]["pieces"].any()
    assert not started(random_moves=0)[1]["pieces"].any()


def test_random_moves_complete_no_line():
    game, records = started(random_moves=41)
    assert game.sound(records).all() and records["pieces"].max() > 35
    in_line = python_function(has_line)
    for player in (1, 2):
        assert not any(map(in_line, bitboards(records["board"] == player).tolist()))


@pytest.mark.parametrize("wrong", [-1, 42, 0.5])
def test_numbers_of_random_moves_are_those_of_an_unfinished_board(wrong):
    with pytest.raises(ConfigError, match=rf"random_moves.*from 0 to 41, got {wrong}"):
        NativeVectorEnv(FOUR, 1, {"random_moves": wrong})
