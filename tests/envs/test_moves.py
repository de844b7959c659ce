"""Moves: what was played since each environment's episode began, whatever rows the others need."""

import numpy as np
import pytest

from marltrain.envs import probe
from marltrain.envs.moves import Moves
from tests.toys import Crowd


def played(step, num_envs):
    """Actions that name their step, player and environment."""
    reds = 100 * step + 10 * np.arange(2)[:, None] + np.arange(num_envs)
    return reds, 100 * step + 70 + np.arange(num_envs)[None]


def test_each_environment_has_its_own_episode():
    moves = Moves(probe(Crowd), 3)
    for step in range(5):
        moves.add(played(step, 3))
        if step == 2:
            moves.begin(1)
    reds, blue = moves.of(1)
    assert reds.tolist() == [[301, 311], [401, 411]]
    assert blue.tolist() == [[371], [471]]
    assert [len(moves.of(e)[0]) for e in range(3)] == [5, 2, 5]
    moves.begin(2)
    assert moves.of(2)[0].shape == (0, 2)


@pytest.mark.parametrize("lengths", [(3, 70), (1, 1), (7, 300)])
def test_rows_that_nobody_needs_make_room_and_no_other_is_lost(lengths):
    moves = Moves(probe(Crowd), 2)
    expected: list[list[int]] = [[], []]
    for step in range(1000):
        moves.add(played(step, 2))
        for e, length in enumerate(lengths):
            expected[e].append(100 * step + e)
            if len(expected[e]) == length:
                expected[e].clear()
                moves.begin(e)
        assert [moves.of(e)[0][:, 0].tolist() for e in range(2)] == expected
    assert len(moves._kept[0]) <= 4 * max(*lengths, 64)


def test_restored_moves_go_on():
    moves, again = Moves(probe(Crowd), 2), Moves(probe(Crowd), 2)
    for step in range(100):
        moves.add(played(step, 2))
        if step == 90:
            moves.begin(0)
    again.restore([moves.of(0), moves.of(1)])
    for both in (moves, again):
        both.add(played(100, 2))
    for e in range(2):
        for mine, theirs in zip(moves.of(e), again.of(e), strict=True):
            np.testing.assert_array_equal(mine, theirs)
