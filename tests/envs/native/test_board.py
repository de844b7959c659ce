"""Board games against PettingZoo's."""

import numpy as np

from marltrain.envs.native.vector import NativeVectorEnv
from tests.envs.driving import act
from tests.envs.native.originals import hold


def tictactoe(env):
    return {"squares": env.board.squares}


def test_tictactoe():
    hold("pettingzoo/classic/tictactoe_v3", "marltrain/tictactoe_v3", tictactoe)


def connect_four(env):
    return {"board": env.board}


def test_connect_four():
    hold("pettingzoo/classic/connect_four_v3", "marltrain/connect_four_v3", connect_four)


def test_connect_four_with_players_who_build_towers():
    """Whoever has the turn mostly plays two columns of its own, so that lines are long, and columns full."""

    def choose(spec, step, rng):
        mover = int(step.turn[0][1, 0])
        legal = np.flatnonzero(step.legal[0][mover, 0])
        wanted = [column for column in legal if column // 4 == mover and column % 4 < 2]
        chosen = rng.choice(wanted if wanted and rng.random() < 0.7 else legal)
        return (np.full((2, 1), chosen),)

    hold("pettingzoo/classic/connect_four_v3", "marltrain/connect_four_v3", connect_four, choose=choose)


def test_connect_four_ends_in_a_draw_when_the_board_is_full():
    full = np.array([[1, 1, 2, 2, 1, 1, 2], [2, 2, 1, 1, 2, 2, 1]] * 3)
    vector = NativeVectorEnv("marltrain/connect_four_v3", 1)
    vector.reset(0)
    full[0, 6] = 0
    vector.batch.set_state(0, {"board": full.reshape(-1), "pieces": 41, "turn": [0, 1]})
    step = vector.step(act(vector.spec, 1, player_1=6))
    assert step.terminated.all() and step.ended[0] and not step.reward.any()
