"""Tic-tac-toe, with the rules of PettingZoo's tictactoe_v3."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Array
from marltrain.envs.native.bounds import turn_of
from marltrain.envs.native.game import TERMINATED, Game

LINES = np.array([(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)])


class TicTacToe(Game):
    """Two players mark nine squares in turn; three in a line win: +1 for the winner, -1 for the loser."""

    name = "tictactoe_v3"
    api = "turns"

    def __init__(self) -> None:
        """Declare the game. `s.squares` holds 0 for empty, or the player's number, 1 or 2."""
        board, mask = spaces.Box(0, 1, (3, 3, 2), np.int8), spaces.Box(0, 1, (9,), np.int8)
        players = {
            name: (spaces.Dict({"observation": board, "action_mask": mask}), spaces.Discrete(9))
            for name in ("player_1", "player_2")
        }
        super().__init__(players, fields={"squares": (np.int8, 9, (0, 2)), "marks": (int, (), (0, 9))})

    def sound(self, records: Array) -> Array:
        """Check that marks are counted, alternate between players, and leave an empty square."""
        marks, squares = records["marks"], records["squares"]
        own = [(squares == player).sum(-1) == (marks + 2 - player) // 2 for player in (1, 2)]
        return own[0] & own[1] & (marks < 9) & turn_of(records, marks % 2)

    def text(self, state: Mapping[str, Any], viewers: Collection[int] | None) -> str:
        """Return the board: X of the first player, O of the second, and the number of each empty square.

        As in the original, squares are numbered from the top down, column by column.
        """
        signs = [("XO"[mark - 1] if mark else str(square)) for square, mark in enumerate(state["squares"].tolist())]
        return "\n---+---+---\n".join(f" {' | '.join(signs[row::3])} " for row in range(3))

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Start with an empty board; player 0 moves first."""
        s.squares[:] = 0
        s.marks = 0
        s.turn[1] = 0

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Mark a square; end the episode if this completes a line or fills the board."""
        mover = s.marks % 2
        s.squares[s.action[mover]] = mover + 1
        s.marks += 1
        s.turn[mover], s.turn[1 - mover] = 0, 1
        won = False
        for a, b, c in LINES:
            won = won or (s.squares[a] == s.squares[b] == s.squares[c] == mover + 1)
        if won:
            s.reward[mover], s.reward[1 - mover] = 1.0, -1.0
        if won or s.marks == 9:
            s.over[:] = TERMINATED

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write the player's own marks and the opponent's, [3, 3, 2]."""
        for square in range(9):
            obs[2 * square] = s.squares[square] == p + 1
            obs[2 * square + 1] = s.squares[square] == 2 - p

    @staticmethod
    def legal(s: Any, rules: Any, p: int, mask: Any) -> None:
        """Allow the empty squares, for the player with the turn."""
        for square in range(9):
            mask[square] = s.turn[p] and s.squares[square] == 0
