"""Exact scores of the moves of connect four: alpha-beta search in compiled code.

Positions are pairs of bitboards, `own` (the stones of the player that moves) and `mask` (all stones). The square in row
r from the bottom of column c is bit 7 c + r; the bit above each column stays empty. The search is the usual one for
this game (Allis 1988; Tromp 1995): null windows, moves that make most threats first and central columns first among
equals, no moves that lose at once, and a transposition table of fixed size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, shown
from marltrain.core.layout import Array
from marltrain.jit.compiling import inner, program, python_function

ROWS, COLUMNS = 6, 7
PLACES = ROWS * COLUMNS
NO_MOVE = -100
"""Score of a column that is full."""
ENTRIES = 8_388_593
"""Entries of the transposition table, a prime; 75 MB if all are used."""
ORDER = np.array([3, 2, 4, 1, 5, 0, 6])
"""Columns from the center outward."""
STEPS = np.array([1, 6, 7, 8])
"""Distances of neighboring bits in a line: up, down to the right, to the right, up to the right."""
BOTTOM = sum(1 << (7 * column) for column in range(COLUMNS))
BOARD = 63 * BOTTOM
LOWER = 64
"""Added to a score in the table that is a lower bound; other entries are upper bounds."""


@inner
def stones(bits: int) -> int:
    """Return the number of bits that are set."""
    count = 0
    while bits:
        bits &= bits - 1
        count += 1
    return count


@inner
def has_line(own: int) -> bool:
    """Return whether four stones stand in a line."""
    for step in STEPS:
        pairs = own & (own >> step)
        if pairs & (pairs >> (2 * step)):
            return True
    return False


@inner
def threats(own: int, mask: int) -> int:
    """Return the empty squares, reachable or not, that complete a line of `own`."""
    found = (own << 1) & (own << 2) & (own << 3)
    for step in STEPS[1:]:
        before, after = (own << step) & (own << (2 * step)), (own >> step) & (own >> (2 * step))
        found |= before & ((own << (3 * step)) | (own >> step))
        found |= after & ((own << step) | (own >> (3 * step)))
    return found & (BOARD ^ mask)


@inner
def safe_moves(own: int, mask: int) -> int:
    """Return the moves after which the opponent cannot win at once, as squares; 0 if there are none."""
    moves, danger = (mask + BOTTOM) & BOARD, threats(own ^ mask, mask)
    forced = moves & danger
    if forced:
        if forced & (forced - 1):
            return 0
        moves = forced
    return moves & ~(danger >> 1)


@inner
def bounded(own: int, mask: int, alpha: int, beta: int, keys: Any, values: Any) -> int:
    """Return the score if it lies between alpha and beta, else a bound of it; no move wins at once.

    keys, values: the transposition table.
    """
    played = stones(mask)
    moves = safe_moves(own, mask)
    if moves == 0:
        return -((PLACES - played) // 2)
    if played >= PLACES - 2:
        return 0
    alpha = max(alpha, -((PLACES - 2 - played) // 2))
    if alpha >= beta:
        return alpha
    beta = min(beta, (PLACES - 1 - played) // 2)
    if alpha >= beta:
        return beta
    key = own + mask + BOTTOM
    place = key % ENTRIES
    if keys[place] == key:
        known = int(values[place])
        if known > LOWER // 2:
            alpha = max(alpha, known - LOWER)
        else:
            beta = min(beta, known)
        if alpha >= beta:
            return known - LOWER if known > LOWER // 2 else known
    squares, ranks, count = np.empty(COLUMNS, np.int64), np.empty(COLUMNS, np.int64), 0
    for column in ORDER:
        square = moves & (63 << (7 * column))
        if square:
            rank, at = stones(threats(own | square, mask)), count
            while at > 0 and ranks[at - 1] < rank:
                squares[at], ranks[at] = squares[at - 1], ranks[at - 1]
                at -= 1
            squares[at], ranks[at] = square, rank
            count += 1
    for i in range(count):
        score = -bounded(own ^ mask, mask | squares[i], -beta, -alpha, keys, values)
        if score >= beta:
            keys[place], values[place] = key, score + LOWER
            return score
        alpha = max(alpha, score)
    keys[place], values[place] = key, alpha
    return alpha


@inner
def solved(own: int, mask: int, only_sign: bool, keys: Any, values: Any) -> int:
    """Return the exact score of a position without a line, by searches with null windows around halved intervals.

    only_sign: return a number of the same sign, which takes fewer searches.
    """
    played = stones(mask)
    if threats(own, mask) & (mask + BOTTOM):
        return (PLACES + 1 - played) // 2
    low, high = -((PLACES - played) // 2), (PLACES - 1 - played) // 2
    if only_sign:
        low, high = max(low, -1), min(high, 1)
    while low < high:
        middle = low + (high - low) // 2
        if middle <= 0 and -(-low // 2) < middle:
            middle = -(-low // 2)
        elif middle >= 0 and high // 2 > middle:
            middle = high // 2
        found = bounded(own, mask, middle, middle + 1, keys, values)
        if found <= middle:
            high = found
        else:
            low = found
    return low


@program
def score_moves(own: Array, mask: Array, keys: Array, values: Array, only_signs: bool, scores: Array) -> None:
    """Write the score of each move of positions [B], or its sign, to scores [B, 7]; `NO_MOVE` for full columns."""
    for b in range(len(own)):
        played = stones(mask[b])
        for column in range(COLUMNS):
            square = (mask[b] + (1 << (7 * column))) & (63 << (7 * column)) & ~mask[b]
            if square == 0:
                scores[b, column] = NO_MOVE
            elif has_line(own[b] | square):
                scores[b, column] = (PLACES + 1 - played) // 2
            elif played + 1 == PLACES:
                scores[b, column] = 0
            else:
                scores[b, column] = -solved(own[b] ^ mask[b], mask[b] | square, only_signs, keys, values)
            if only_signs and square:
                scores[b, column] = min(max(scores[b, column], -1), 1)


_BITS = np.array([1 << (7 * column + ROWS - 1 - row) for row in range(ROWS) for column in range(COLUMNS)], np.int64)
"""The bits of the places of a native board, row by row from the top."""


def connect_four_scores(boards: Any, only_signs: bool = False) -> Array:
    """Return the exact score of every move in positions of connect four, [B, 7] int64; [7] for one position.

    A score is positive if the player that moves wins with perfect play of both, 0 for a draw, negative if it loses. Its
    size is 22 less the number of stones that the winner has then played: 18 is the earliest win, 1 a win with the last
    stone. Full columns have the score `NO_MOVE`, -100. The best moves are those with the highest score; a move gives
    away the result if its score has a lower sign than the highest one.

    boards: [B, 6, 7] or [6, 7], the rows from the top: 0 for empty, or the owner, 1 (who began) or 2, as in the field
      `board` of marltrain/connect_four_v3. `board_after` makes one from moves.
    only_signs: return 1, 0 or -1 in place of scores, about three times as fast.

    The time grows steeply with the number of empty squares: the first moves of a game are not solved within minutes.
    The first call compiles the search.
    Raises ConfigError for other shapes and values, and for positions that no game reaches or that are won already.
    """
    given = np.asarray(boards)
    if given.shape[-2:] != (ROWS, COLUMNS) or given.ndim not in (2, 3) or not np.isin(given, (0, 1, 2)).all():
        raise ConfigError(
            f"boards must be [B, {ROWS}, {COLUMNS}] with 0 for empty and 1 or 2 for a stone's owner, got shape "
            f"{given.shape}" + (f" and values {shown(np.unique(given).tolist())}" if given.size else "")
        )
    flat = given.reshape(-1, PLACES)
    first, second = (bitboards(flat == player) for player in (1, 2))
    mask = first | second
    begun = (flat == 1).sum(1) - (flat == 2).sum(1)
    own = np.where(begun == 0, first, second)
    scores = np.empty((len(flat), COLUMNS), np.int64)
    _check(flat, first, second, begun)
    score_moves(own, mask, np.zeros(ENTRIES, np.int64), np.zeros(ENTRIES, np.int8), only_signs, scores)
    return scores.reshape(*given.shape[:-2], COLUMNS)


def bitboards(places: Array) -> Array:
    """Return the bits of places [B, 42] bool, row by row from the top, as [B] int64."""
    bits: Array = places @ _BITS
    return bits


def _check(flat: Array, first: Array, second: Array, begun: Array) -> None:
    """Raise ConfigError for boards [B, 42] that no game reaches or that are won; begun: stones of 1 less those of 2."""
    floating = ((flat[:, :-COLUMNS] != 0) & (flat[:, COLUMNS:] == 0)).any(1)
    in_line = python_function(has_line)
    won = [in_line(one) or in_line(two) for one, two in zip(first.tolist(), second.tolist(), strict=True)]
    for wrong, reason in (
        ((begun != 0) & (begun != 1), "the players' stones do not alternate, beginning with 1"),
        (floating, "a stone has no stone below it"),
        (np.array(won, np.bool_), "a player has four in a line already"),
    ):
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise ConfigError(
                f"boards: position {row} is no running game: {reason}\n{flat[row].reshape(ROWS, COLUMNS)}"
            )


def board_after(moves: Sequence[int]) -> Array:
    """Return the board [6, 7] int8 after moves, the columns 0 to 6 in order; raises ConfigError for a full column."""
    board = np.zeros((ROWS, COLUMNS), np.int8)
    for number, column in enumerate(moves):
        free = np.flatnonzero(board[:, column] == 0) if 0 <= column < COLUMNS else np.zeros(0, np.int64)
        if not len(free):
            raise ConfigError(f"moves: move {number} is column {shown(column)}, which is full or not from 0 to 6")
        board[free[-1], column] = 1 + number % 2
    return board
