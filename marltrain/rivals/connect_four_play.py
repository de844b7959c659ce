"""Play of connect four against perfect play: positions, moves that give away their results, and a player by minimax."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, shown
from marltrain.core.layout import Array
from marltrain.envs.python.probe import probe
from marltrain.jit.compiling import inner, program, python_function
from marltrain.policies.agents.agent import Agent
from marltrain.rivals.connect_four import (
    BOARD,
    BOTTOM,
    COLUMNS,
    NO_MOVE,
    ORDER,
    PLACES,
    ROWS,
    bitboards,
    board_after,
    connect_four_scores,
    has_line,
    stones,
    threats,
)  # fmt: skip
from marltrain.trainer.seats.by_player import Agents, in_seats
from marltrain.trainer.seats.seats import Seating

ENV = "marltrain/connect_four_v3"
LINES = np.array(
    [
        sum(1 << (7 * (column + i * right) + row + i * up) for i in range(4))
        for right, up in ((0, 1), (1, 0), (1, 1), (1, -1))
        for column in range(COLUMNS - 3 * right)
        for row in range(3 if up < 0 else 0, ROWS - 3 * max(up, 0))
    ]
)
"""The 69 lines of four squares, as bits."""
WEIGHTS = np.array([0, 1, 4, 16])
"""Value of a line without stones of the opponent, by the number of own stones."""
WIN = 1_000_000
"""Value of a win at once."""


def connect_four_positions(count: int, fewest: int, most: int, seed: int = 0) -> tuple[Array, Array]:
    """Return positions whose moves differ in result: boards [N, 6, 7] int8, and results of all moves [N, 7] int64.

    A result is 1, 0 or -1: the player that moves wins, draws or loses with perfect play of both after the move;
    `NO_MOVE`, -100, for full columns. The positions are all different, and equal seeds give equal positions.
    Their games were played by players that complete a line where they can, prevent one where they must, and otherwise
    choose among all columns at random.

    count: N.  fewest, most: range of the number of stones, from which it is drawn for each position.

    Raises ConfigError for numbers out of range. Positions with few stones take long: with 8, seconds each.
    """
    if count < 1 or not 0 <= fewest <= most < PLACES:
        raise ConfigError(
            f"connect_four_positions: expected count of at least 1 and 0 <= fewest <= most < {PLACES}, got count "
            f"{shown(count)}, fewest {shown(fewest)}, most {shown(most)}"
        )
    rng, found = np.random.default_rng(seed), dict[bytes, tuple[Array, Array]]()
    while len(found) < count:
        board = _random_game(int(rng.integers(fewest, most + 1)), rng)
        if board is None or board.tobytes() in found:
            continue
        results = connect_four_scores(board, only_signs=True)
        if len(np.unique(results[results != NO_MOVE])) > 1:
            found[board.tobytes()] = board, results
    boards, scores = zip(*found.values(), strict=True)
    return np.stack(boards), np.stack(scores)


def _random_game(length: int, rng: np.random.Generator) -> Array | None:
    """Return the board after some moves, or None if the game is over before."""
    own, mask, moves = 0, 0, list[int]()
    winning: Any = python_function(threats)
    for _ in range(length):
        free = (mask + BOTTOM) & BOARD
        if winning(own, mask) & free:
            return None
        wanted = winning(own ^ mask, mask) & free or free
        columns = [column for column in range(COLUMNS) if wanted & (63 << (7 * column))]
        moves.append(int(rng.choice(columns)))
        own, mask = own ^ mask, mask | (free & (63 << (7 * moves[-1])))
    return board_after(moves)


def connect_four_blunders(agents: Agents, boards: Array, results: Array, explore: bool = False) -> Array:
    """Return the probabilities with which agents give away the results of positions, [N] float64.

    A move gives away the result if it turns a win into a draw or a loss, or a draw into a loss.

    agents: one for each seat, in order or by name: agent 0 plays the positions in which the player that began has the
      turn.
    boards, results: of `connect_four_positions`.
    explore: True: agents draw their actions, as in training; False: the actions that they play in tests. Minimax and
      random players draw in both.

    Raises AgentError for agents of other spaces and without probabilities, see `Agent.probabilities`.
    """
    spec = probe(ENV)
    seated = Seating(spec, in_seats(agents, spec), 0, stack=False).agents
    given_away = (results < results.max(1, keepdims=True)) & (results != NO_MOVE)
    seats, found = (boards > 0).sum((1, 2)) % 2, np.zeros(len(boards))
    for p, agent in enumerate(seated):
        own: Any = agent
        rows, player = seats == p, spec.players[p]
        if not rows.any():
            continue
        agent.turn_to(player)
        who = {"player": player.name} if agent.identity else {}
        seen = np.stack([boards[rows] == p + 1, boards[rows] == 2 - p], -1).astype(np.int8)
        shares = own.probabilities(seen, results[rows] != NO_MOVE, explore, **who)
        found[rows] = (shares * given_away[rows]).sum(1)
    return found


class ConnectFourMinimax(Agent):
    """A player of connect four that looks a number of moves ahead, by alpha-beta search in compiled code.

    Positions at the end of the search are valued by their lines: each that holds 1, 2 or 3 stones of one player and
    none of the other counts 1, 4 or 16 for this player. Equally good moves have equal probabilities.
    """

    def __init__(self, depth: int = 5) -> None:
        """depth: number of moves.  Raises ConfigError for a depth below 1."""
        if depth < 1:
            raise ConfigError(f"ConnectFourMinimax: depth must be at least 1, got {shown(depth)}")
        self.depth = depth

    def probabilities(self, observation: Any, legal: Any = None, explore: bool = True) -> Array:
        """See `Agent.probabilities`; observation: [6, 7, 2] or [B, 6, 7, 2]."""
        seen = np.asarray(observation)
        flat = seen.reshape(-1, PLACES, 2) != 0
        own, other = (bitboards(flat[..., side]) for side in (0, 1))
        shares = np.empty((len(flat), COLUMNS))
        minimax_moves(own, own | other, self.depth, shares)
        return shares.reshape(*seen.shape[:-3], COLUMNS)

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False) -> Any:
        """Return a column, or one for each observation; see `Agent.act`."""
        shares = self.probabilities(observation)
        chosen = (shares.cumsum(-1) > self.rng.random((*shares.shape[:-1], 1))).argmax(-1)
        return chosen if chosen.ndim else int(chosen)


@program
def minimax_moves(own: Array, mask: Array, depth: int, shares: Array) -> None:
    """Write equal probabilities of the best moves of positions [B] to shares [B, 7]."""
    values = np.empty(COLUMNS, np.int64)
    for b in range(len(own)):
        for column in range(COLUMNS):
            square = (mask[b] + (1 << (7 * column))) & (63 << (7 * column)) & ~mask[b]
            values[column] = -2 * WIN
            if square:
                values[column] = value_of(own[b] | square, mask[b] | square, depth - 1, -WIN, WIN)
        best = values == values.max()
        shares[b] = best / best.sum()


@inner
def value_of(own: int, mask: int, depth: int, alpha: int, beta: int) -> int:
    """Return the value of a position for the player that has moved, `own`; between alpha and beta it is exact."""
    if has_line(own):
        return WIN - stones(mask)
    if mask == BOARD:
        return 0
    if depth == 0:
        return line_value(own, own ^ mask)
    best, low = -2 * WIN, -beta
    for column in ORDER:
        square = (mask + (1 << (7 * column))) & (63 << (7 * column)) & ~mask
        if square:
            best = max(best, value_of((own ^ mask) | square, mask | square, depth - 1, low, -alpha))
            low = max(low, best)
            if low >= -alpha:
                break
    return -best


@inner
def line_value(own: int, other: int) -> int:
    """Return the value of the lines of `own`, less that of the lines of `other`."""
    total = 0
    for line in LINES:
        mine, theirs = stones(own & line), stones(other & line)
        if theirs == 0:
            total += WEIGHTS[mine]
        elif mine == 0:
            total -= WEIGHTS[theirs]
    return total
