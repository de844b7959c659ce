"""Connect four, with the rules of PettingZoo's connect_four_v3."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Array
from marltrain.envs.native.arguments import whole
from marltrain.envs.native.bounds import turn_of
from marltrain.envs.native.chance import integer
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.jit.compiling import inner

ROWS, COLUMNS = 6, 7
PLACES = ROWS * COLUMNS
DIRECTIONS = np.array([(0, 1), (1, 0), (1, 1), (1, -1)])


class ConnectFour(Game):
    """Two players drop pieces into seven columns in turn; four in a line win: +1 for the winner, -1 for the loser."""

    name = "connect_four_v3"
    api = "turns"
    training_only = ("random_moves",)

    def __init__(self, random_moves: int = 0) -> None:
        """Declare the game. `s.board`, row by row from the top, holds 0 for empty, or the piece's owner, 1 or 2.

        random_moves: an episode of training begins after random moves; their number is drawn from 0 to this one. No
            random move completes a line. If every move does, the episode begins there. Tests, and objects for other
            libraries, begin with an empty board.

        Raises ConfigError.
        """
        self._random_moves = whole("random_moves", random_moves, 0, PLACES - 1)
        seen = spaces.Box(0, 1, (ROWS, COLUMNS, 2), np.int8)
        mask = spaces.Box(0, 1, (COLUMNS,), np.int8)
        sides = (spaces.Dict({"observation": seen, "action_mask": mask}), spaces.Discrete(COLUMNS))
        super().__init__(
            {"player_0": sides, "player_1": sides},
            fields={"board": (np.int8, PLACES, (0, 2)), "pieces": (int, (), (0, PLACES))},
            rules={"random_moves": 0},
        )

    def for_training(self) -> None:
        """Begin episodes with random moves."""
        self.rules["random_moves"] = self._random_moves

    def sound(self, records: Array) -> Array:
        """Check that pieces are counted, alternate between players, rest on others, and leave a free place."""
        pieces, board = records["pieces"], records["board"]
        own = [(board == player).sum(-1) == (pieces + 2 - player) // 2 for player in (1, 2)]
        held = ((board[:, :-COLUMNS] == 0) | (board[:, COLUMNS:] != 0)).all(-1)
        return own[0] & own[1] & held & (pieces < PLACES) & turn_of(records, pieces % 2)

    def text(self, state: Mapping[str, Any], viewers: Collection[int] | None) -> str:
        """Return the board: X of the first player, O of the second, above the numbers of the columns."""
        rows = state["board"].reshape(ROWS, COLUMNS).tolist()
        lines = [" ".join(".XO"[piece] for piece in row) for row in rows]
        return "\n".join([*lines, " ".join(map(str, range(COLUMNS)))])

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Start with an empty board, or after random moves; player 0 moves first."""
        s.board[:] = 0
        s.pieces = 0
        s.turn[1] = 0
        if rules.random_moves > 0:
            move_at_random(s, integer(s, rules.random_moves + 1))

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Drop a piece; end the episode if it completes a line or fills the board."""
        mover = s.pieces % 2
        won = drop(s, s.action[mover])
        if won:
            s.reward[mover], s.reward[1 - mover] = 1.0, -1.0
        if won or s.pieces == PLACES:
            s.over[:] = TERMINATED

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write the player's own pieces and the opponent's, [6, 7, 2]."""
        for place in range(PLACES):
            obs[2 * place] = s.board[place] == p + 1
            obs[2 * place + 1] = s.board[place] == 2 - p

    @staticmethod
    def legal(s: Any, rules: Any, p: int, mask: Any) -> None:
        """Allow the columns that are not full, for the player with the turn."""
        for column in range(COLUMNS):
            mask[column] = s.turn[p] and s.board[column] == 0


@inner
def drop(s: Any, column: int) -> bool:
    """Let the player with the turn drop a piece; return whether it completes a line."""
    mover, row = s.pieces % 2, free_row(s.board, column)
    s.board[COLUMNS * row + column] = mover + 1
    s.pieces += 1
    s.turn[mover], s.turn[1 - mover] = 0, 1
    return in_line(s.board, row, column)


@inner
def free_row(board: Any, column: int) -> int:
    """Return the lowest free row of a column, -1 if it is full."""
    row = ROWS - 1
    while row >= 0 and board[COLUMNS * row + column] != 0:
        row -= 1
    return row


@inner
def move_at_random(s: Any, moves: int) -> None:
    """Let the players drop pieces at random where they complete no line, until there is no such column."""
    for _ in range(moves):
        chosen, found = -1, 0
        for column in range(COLUMNS):
            row = free_row(s.board, column)
            if row < 0:
                continue
            place = COLUMNS * row + column
            s.board[place] = s.pieces % 2 + 1
            if not in_line(s.board, row, column):
                found += 1
                if integer(s, found) == 0:
                    chosen = column
            s.board[place] = 0
        if chosen < 0:
            return
        drop(s, chosen)


@inner
def in_line(board: Any, row: int, column: int) -> bool:
    """Return whether the piece at a place is part of a line of four."""
    for direction in range(len(DIRECTIONS)):
        down, right = DIRECTIONS[direction]
        if 1 + reach(board, row, column, down, right) + reach(board, row, column, -down, -right) >= 4:
            return True
    return False


@inner
def reach(board: Any, row: int, column: int, down: int, right: int) -> int:
    """Return how many pieces of the same owner follow a place in one direction."""
    piece, length = board[COLUMNS * row + column], 0
    row, column = row + down, column + right
    while 0 <= row < ROWS and 0 <= column < COLUMNS and board[COLUMNS * row + column] == piece:
        row, column, length = row + down, column + right, length + 1
    return length
