"""The solver of connect four, held against plain minimax at the end of games and against published scores."""

import functools

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.envs.native.objects import aec_env
from marltrain.rivals.connect_four import NO_MOVE, board_after
from tests.tiers import rounds

PUBLISHED = [
    ("2252576253462244111563365343671351441", -1), ("7422341735647741166133573473242566", 1),
    ("23163416124767223154467471272416755633", 0), ("71255763773133525731261364622167124446454", 0),
    ("65214673556155731566316327373221417", -1),
]  # fmt: skip
"""Positions as columns 1 to 7, with the score of the best move: Pons, "Solving Connect 4" (2015), test set L3 R1."""


def columns(text):
    return [int(column) - 1 for column in text]


def wins(board, row, column):
    """Return whether the stone at a place is in a line of four."""
    own = board[row, column]
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        length = 1
        for sign in (1, -1):
            r, c = row + sign * down, column + sign * right
            while 0 <= r < 6 and 0 <= c < 7 and board[r, c] == own:
                r, c, length = r + sign * down, c + sign * right, length + 1
        if length >= 4:
            return True
    return False


def random_board(stones, rng):
    """Return the board of a random game that is not over after a number of stones."""
    while True:
        board = np.zeros((6, 7), np.int8)
        for number in range(stones):
            column = rng.choice(np.flatnonzero(board[0] == 0))
            row = np.flatnonzero(board[:, column] == 0)[-1]
            board[row, column] = 1 + number % 2
            if wins(board, row, column):
                break
        else:
            return board


@functools.cache
def by_minimax(text):
    """Return the scores of the moves of a board given as bytes."""
    board = np.frombuffer(text, np.int8).reshape(6, 7)
    stones, scores = int((board > 0).sum()), np.full(7, NO_MOVE)
    for column in range(7):
        free = np.flatnonzero(board[:, column] == 0)
        if not len(free):
            continue
        after = board.copy()
        after[free[-1], column] = 1 + stones % 2
        if wins(after, free[-1], column):
            scores[column] = 22 - (stones // 2 + 1)
        else:
            scores[column] = 0 if stones == 41 else -by_minimax(after.tobytes()).max()
    return scores


@pytest.mark.parametrize("stones", [34, 37, 40])
def test_scores_at_the_end_are_those_of_minimax(stones):
    rng = np.random.default_rng(stones)
    boards = np.stack([random_board(stones, rng) for _ in range(rounds(10, 50))])
    expected = [by_minimax(board.tobytes()) for board in boards]
    assert mt.connect_four_scores(boards).tolist() == np.stack(expected).tolist()


def test_published_scores():
    boards = np.stack([board_after(columns(text)) for text, _ in PUBLISHED])
    assert mt.connect_four_scores(boards).max(1).tolist() == [score for _, score in PUBLISHED]


def test_mirrored_positions_have_mirrored_scores():
    rng = np.random.default_rng(7)
    boards = np.stack([random_board(24, rng) for _ in range(10)])
    scores = mt.connect_four_scores(boards)
    assert np.array_equal(mt.connect_four_scores(boards[:, :, ::-1]), scores[:, ::-1])
    assert len(np.unique(np.sign(scores[scores != NO_MOVE]))) > 1


def test_boards_are_those_of_the_native_game():
    env = aec_env("connect_four_v3")
    env.reset(seed=0)
    moves = [3, 3, 3, 2, 4, 4, 0, 6]
    for column in moves:
        env.step(column)
    assert np.array_equal(board_after(moves).ravel(), env.unwrapped.get_state()["board"])


@pytest.mark.parametrize(
    ("boards", "message"),
    [
        (np.zeros((2, 42)), r"boards must be \[B, 6, 7\].* got shape \(2, 42\)"),
        (np.full((6, 7), 3), r"values \[3\]"),
        (board_after([0, 0])[::-1], "position 0 is no running game: a stone has no stone below it"),
        (2 * board_after([0]), "do not alternate"),
        (board_after([0, 1, 0, 1, 0, 1, 0]), "four in a line already"),
    ],
)
def test_boards_that_no_game_reaches(boards, message):
    with pytest.raises(ConfigError, match=message):
        mt.connect_four_scores(boards)


@pytest.mark.parametrize("moves", [[0] * 7, [7], [-1]])
def test_moves_that_cannot_be_made(moves):
    with pytest.raises(ConfigError, match=f"move {len(moves) - 1} is column {moves[-1]}"):
        board_after(moves)
