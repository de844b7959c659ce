"""Perfect play of tic-tac-toe: scores of all moves, and all games that opponents can play against agents."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from marltrain.core.errors import AgentError, ConfigError, shown
from marltrain.core.layout import Array
from marltrain.core.spec import PlayerSpec
from marltrain.envs.native.board.tictactoe import LINES
from marltrain.envs.python.probe import probe
from marltrain.policies.agents.agent import Agent
from marltrain.trainer.seats.by_player import Agents, in_seats
from marltrain.trainer.seats.seats import Seating

ENV = "marltrain/tictactoe_v3"
SQUARES = 9
NO_MOVE = -100
"""Score of a square that is taken."""
Squares = tuple[int, ...]
"""A position: 0 for empty, or the number of the player, 1 or 2, by square; player 1 begins."""


def tictactoe_scores(squares: Any) -> Array:
    """Return the exact score of every move in positions of tic-tac-toe, [B, 9] int64; [9] for one position.

    1: the player that moves wins with perfect play of both; 0: a draw; -1: it loses. Taken squares have the score
    `NO_MOVE`, -100.

    squares: [B, 9] or [9]: 0 for empty, or the owner, 1 (who began) or 2, as in the field `squares` of
      marltrain/tictactoe_v3.
    Raises ConfigError for other shapes and values, and for positions that no game reaches or that are over.
    """
    given = np.asarray(squares)
    if given.shape[-1:] != (SQUARES,) or given.ndim not in (1, 2) or not np.isin(given, (0, 1, 2)).all():
        raise ConfigError(
            f"squares must be [B, {SQUARES}] with 0 for empty and 1 or 2 for an owner, got {shown(given)}"
        )
    positions: list[Squares] = [tuple(row) for row in given.reshape(-1, SQUARES).tolist()]
    for row, position in enumerate(positions):
        if position.count(1) - position.count(2) not in (0, 1) or _result(position) is not None:
            raise ConfigError(
                f"squares: position {row}, {list(position)}, is no running game: it is over, or the players' marks do "
                "not alternate, beginning with 1"
            )
    scores = [[NO_MOVE if mark else _score(position, i) for i, mark in enumerate(position)] for position in positions]
    return np.array(scores, np.int64).reshape(given.shape)


@dataclass(frozen=True)
class TicTacToeGames:
    """Numbers of games, by the agent's seat: [2] int64 each; see `tictactoe_games`."""

    wins: Array
    draws: Array
    losses: Array

    @property
    def games(self) -> Array:
        """Number of games, [2] int64."""
        return self.wins + self.draws + self.losses


def tictactoe_games(agents: Agents) -> TicTacToeGames:
    """Play each of two agents, without exploration, against every sequence of moves of the opponent.

    agents: one for each seat, in order or by name: agent 0 is played as the player that begins, agent 1 as the other.
    Agents must choose one action for an observation, and have no memory.

    Raises AgentError for agents of other spaces and for illegal moves.
    """
    spec = probe(ENV)
    seated = Seating(spec, in_seats(agents, spec), 0, stack=False).agents
    found = [_all_games(agent, p, spec.players[p]) for p, agent in enumerate(seated)]
    return TicTacToeGames(*(np.array([counts[result] for counts in found], np.int64) for result in (1, 0, -1)))


def _all_games(agent: Agent, p: int, player: PlayerSpec) -> Counter[int]:
    """Return the numbers of games of an agent in seat p, by their result for it: 1, 0 or -1.

    Games that reach the same position go on together, and are counted.
    """
    agent.turn_to(player)
    running, ended = Counter({(0,) * SQUARES: 1}), Counter[int]()
    for mark in range(SQUARES):
        mover, following = mark % 2, Counter[Squares]()
        moves = _moves_of(agent, list(running), p, player) if mover == p else {}
        for position, games in running.items():
            for square in [moves[position]] if mover == p else _empty(position):
                after = _marked(position, square, mover + 1)
                result = _result(after)
                if result is None:
                    following[after] += games
                else:
                    ended[result if mover == p else -result] += games
        running = following
    return ended


def _moves_of(agent: Agent, positions: list[Squares], p: int, player: PlayerSpec) -> dict[Squares, int]:
    """Return the agent's move in each position; raises AgentError for an illegal one."""
    if not positions:
        return {}
    squares = np.array(positions)
    seen = np.stack([squares == p + 1, squares == 2 - p], -1).reshape(-1, 3, 3, 2).astype(np.int8)
    own: Any = agent
    who = {"player": player.name} if agent.identity else {}
    chosen = np.asarray(own.act(seen, squares == 0, False, **who))
    for position, move in zip(positions, chosen.tolist(), strict=True):
        if move not in _empty(position):
            raise AgentError(
                f"player {player.name!r}: {type(agent).__name__} chose {shown(move)} in {list(position)}, expected one "
                f"of the empty squares {_empty(position)}"
            )
    return dict(zip(positions, chosen.tolist(), strict=True))


def _empty(position: Squares) -> list[int]:
    return [square for square, mark in enumerate(position) if mark == 0]


def _marked(position: Squares, square: int, mark: int) -> Squares:
    return (*position[:square], mark, *position[square + 1 :])


def _result(position: Squares) -> int | None:
    """Return 1 if a line is complete, 0 for a full board without one, None for a running game."""
    if any(position[a] and position[a] == position[b] == position[c] for a, b, c in LINES.tolist()):
        return 1
    return None if 0 in position else 0


@cache
def _score(position: Squares, square: int) -> int:
    """Return the score of a move for the player that makes it, by minimax."""
    after = _marked(position, square, 1 + position.count(1) - position.count(2))
    result = _result(after)
    return -max(_score(after, reply) for reply in _empty(after)) if result is None else result
