"""The joined observations of all players, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.core.spec import EnvSpec
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.joined import JoinedObservations, joined_size
from tests.policies.memory.worlds import Script, blank, one_group, two_groups

ANY = (True, True, True)
NOBODY = [0, 0, 0]


def test_a_game_in_turns_by_hand():
    """Each player's block is its last observation [v, -v] of the episode and its turn; c dies, then the game ends."""
    spec = EnvSpec.of("world", one_group().players, turn_based=True)
    script, join = Script(spec), JoinedObservations(spec)
    state, fresh = np.full((1, 9), 99, np.float32), np.ones(1, bool)
    story: Any = [
        (dict(turn={0: (1, ANY)}), [1, -1, 1, *NOBODY, *NOBODY], None),
        (dict(turn={2: (2, ANY)}), [1, -1, 0, *NOBODY, 2, -2, 1], None),
        (dict(turn={1: (3, ANY)}, ends={2: ("terminated", 30, ANY)}), [1, -1, 0, 3, -3, 1, *NOBODY], None),
        (
            dict(turn={0: (4, ANY)}, ended=True, ends={0: ("truncated", 60, ANY), 1: ("truncated", 61, ANY)}),
            [4, -4, 1, *NOBODY, *NOBODY], [60, -60, 0, 61, -61, 0, *NOBODY],
        ),
        (dict(turn={1: (5, ANY)}), [4, -4, 0, 5, -5, 1, *NOBODY], None),
    ]  # fmt: skip
    for shown, running, ended in story:
        state, final = join(state, script.show(**shown), fresh)
        fresh[:] = False
        assert state.tolist() == [running]
        assert ended is None or final.tolist() == [ended]


def test_two_groups_that_move_at_once():
    """Groups one after another: the masked players a, c, then b, d; all have the turn, also at the end."""
    spec = two_groups()
    assert joined_size(spec) == 12
    join, step = JoinedObservations(spec), blank(spec, 2)
    for g in (0, 1):
        step.obs[g][:] = np.arange(8).reshape(2, 2, 2) + 10 * g  # [P, E, V]
        step.final_obs[g][:] = -step.obs[g] - 100
        step.turn[g][:] = True
    state, _ = join(np.zeros((2, 12), np.float32), step, np.ones(2, bool))
    first = [0, 1, 1, 4, 5, 1, 10, 11, 1, 14, 15, 1]
    assert state.tolist() == [first, [2, 3, 1, 6, 7, 1, 12, 13, 1, 16, 17, 1]]
    step.truncated[:, 0], step.ended[0] = True, True
    _, final = join(state, step, np.zeros(2, bool))
    assert final[0].tolist() == [-100, -101, 1, -104, -105, 1, -110, -111, 1, -114, -115, 1]


def test_an_episode_that_was_given_up_leaves_nothing_in_the_next():
    script = Script(EnvSpec.of("world", one_group().players, turn_based=True))
    streams = Streams(script.spec, 1, {0: Storage(4, states=("observations",))})
    for player, value in ((0, 7), (1, 8)):
        streams.record_step(script.show({player: (value, ANY)}))
        streams.record_actions(0, np.zeros((3, 1), np.int64), {})
    streams.abandon(np.array([0]))
    streams.record_step(script.show({2: (9, ANY)}))
    (states,) = streams.states.values()
    assert states.values[0, :3, 0].tolist() == [
        [7, -7, 1, *NOBODY, *NOBODY], [7, -7, 0, 8, -8, 1, *NOBODY], [*NOBODY, *NOBODY, 9, -9, 1],
    ]  # fmt: skip
    streams.restart(script.show({0: (5, ANY)}), np.array([0]))
    assert states.values[0, 2, 0].tolist() == [5, -5, 1, *NOBODY, *NOBODY]
