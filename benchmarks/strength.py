"""Measures of play against random play and against perfect play, for `rivals.py` and `pools.py`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import marltrain as mt

BOARD, FOUR, LEDUC = "marltrain/tictactoe_v3", "marltrain/connect_four_v3", "marltrain/leduc_poker_v1"
STONES = {"beginning": (100, 8, 12), "middle": (200, 13, 24), "end": (200, 25, 36)}
"""Positions of connect four by their stage: number, and the range of the number of stones."""


def lost_to_random(env: str, agent: Any, games: int) -> list[int]:
    """Return the numbers of games that an agent, without exploration, loses to random play from each seat."""
    trainer = mt.DecentralizedTrainer(
        env, num_test_envs=256, max_test_steps=42 * games, seed=0, run_dir=False, progress=False
    )
    random = mt.RandomAgent()
    first: Any = trainer.test([agent, random], games).losses
    second: Any = trainer.test([random, agent], games).losses
    return [int(first[0]), int(second[1])]


def lost_of_all(agent: Any) -> float:
    """Return the number of games of tic-tac-toe that an agent loses among all that opponents can play."""
    return float(mt.tictactoe_games([agent, agent]).losses.sum())


class Mirrored(mt.Agent):
    """An agent of connect four that plays by the product of its probabilities on the board and on its mirror image."""

    def __init__(self, agent: Any) -> None:
        """agent: a player by probabilities, such as one of PPO or MMD."""
        self.agent = agent

    def act(self, observation: Any, legal: Any = None, explore: Any = False) -> Any:
        """Return the most probable column, or one for each observation [B, 6, 7, 2]; see `mt.Agent.act`."""
        board, free = np.asarray(observation), np.asarray(legal)
        shares = self.agent.probabilities(board, free)
        image = self.agent.probabilities(board[..., ::-1, :].copy(), free[..., ::-1].copy())
        return np.where(free, shares * image[..., ::-1], -1.0).argmax(-1)


@cache
def _positions(stage: str) -> Any:
    return mt.connect_four_positions(*STONES[stage], seed=0)


def given_away(agent: Any, stage: str) -> float:
    """Return the share of an agent's moves that give away the result of the positions of a stage of connect four.

    The first call solves the positions: two minutes for the beginning, seconds for the others.
    """
    return float(mt.connect_four_blunders([agent, agent], *_positions(stage)).mean())
