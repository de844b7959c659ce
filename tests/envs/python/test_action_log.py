"""Moves: what was played since each environment's episode began, whatever rows the others need."""

import numpy as np
import pytest

from marltrain.core.errors import SaveError
from marltrain.envs import probe
from marltrain.envs.python.action_log import ActionLog, check_action_log
from marltrain.storage.state import State
from tests.toys import Crowd


def played(step, num_envs):
    """Actions that name their step, player and environment."""
    reds = 100 * step + 10 * np.arange(2)[:, None] + np.arange(num_envs)
    return reds, 100 * step + 70 + np.arange(num_envs)[None]


def test_each_environment_has_its_own_episode():
    moves = ActionLog(probe(Crowd), 3)
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
    moves = ActionLog(probe(Crowd), 2)
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
    moves, again = ActionLog(probe(Crowd), 2), ActionLog(probe(Crowd), 2)
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


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("seed", lambda a: a * 0 - 1, r"envs/seed\[0\] must be from 0 to"),
        ("seed", lambda a: np.arange(3), r"envs/seed must be one for all environments, got \[0, 1, 2\]"),
        ("episode", lambda a: a - 5, r"envs/episode\[0\] must be from 0 to"),
        ("length", lambda a: np.array([1, 2, -6]), r"envs/length\[2\] must be from 0 to"),
        ("length", lambda a: a + 1, r"envs/moves/0 must be int64 of shape \(9, 2\), got int64 of shape \(6, 2\)"),
        ("length", lambda a: a + 2**53 - 9, r"envs/moves/0 must be int64 of shape \(27021"),
        ("moves/1", lambda a: a.astype(np.float32), "envs/moves/1 must be int64"),
        ("moves/1", lambda a: a[..., None], "envs/moves/1 must be int64"),
    ],
)
def test_moves_that_nobody_made_are_refused(name, change, message):
    saved = {"seed": np.full(3, 7), "episode": np.zeros(3, int), "length": np.array([1, 2, 3]),
             "moves/0": np.zeros((6, 2), int), "moves/1": np.zeros((6, 1), int)}  # fmt: skip
    check_action_log(State({}, saved, "envs"), probe(Crowd), 3)
    saved[name] = change(saved[name])
    with pytest.raises(SaveError, match=message):
        check_action_log(State({}, saved, "envs"), probe(Crowd), 3)
