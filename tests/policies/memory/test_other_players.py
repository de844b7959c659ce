"""Actions of the players outside of a team, by hand; see the game of `test_team_reader`."""

from __future__ import annotations

import numpy as np
import pytest

from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.needs import Needs
from tests.policies.memory.test_team_reader import STEPS, at, reader
from tests.policies.memory.worlds import Script, one_group

NEEDS = Needs(on_policy=False, joint_actions=9)
ONE_HOT = np.eye(3)


def played(steps, decide_last=True, absent=None):
    """Streams in which the players a, b and c took action t mod 3 at step t.

    absent: what their agents return for players that have no turn; None: the same.
    """
    spec = one_group()
    streams, script = Streams(spec, 1, {0: Storage(10, joint_actions=True)}), Script(spec)
    for time, (turn, reward, ends, ended) in enumerate(steps):
        streams.record_step(script.show({p: (time, [True] * 3) for p in turn}, reward, ends, ended=ended))
        if decide_last or time < len(steps) - 1:
            data = np.full((3, 1), time % 3)
            streams.record_actions(0, data if absent is None else np.where(streams.rings[0].turn, data, absent), {})
    return streams


def test_the_actions_of_a_player_outside_of_the_team():
    """C pauses at step 5. Its action after step 3, which a limit cut, is unknown; that after 6, the end, is not needed.

    Players a and b are the team; b is gone from 2 to 3.
    """
    batch = at(reader(played(STEPS), [[[0], [1]]], NEEDS, one_reward=False), range(8), [0] * 8)
    acted = [0, 1, 2, 0, 1, None, 0, 1]
    following = [1, 2, 0, None, None, 0, None, 2]
    for got, expected in ((batch.others, acted), (batch.next_others, following)):
        np.testing.assert_array_equal(got[0], [np.zeros(3) if a is None else ONE_HOT[a] for a in expected])
    (rows,) = batch.members
    assert rows.weight.tolist() == [[1, 1, 1, 0, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1, 1, 1]]
    assert rows.next_present[:, 3].tolist() == [True, False]


@pytest.mark.parametrize("absent", [-1, 3, 2**40])
def test_what_agents_return_for_players_without_a_turn_does_not_matter(absent):
    """An agent of the user's own may return any number there."""
    usual, other = (
        at(reader(played(STEPS, absent=returned), [[[0], [1]]], NEEDS, one_reward=False), range(8), [0] * 8)
        for returned in (None, absent)
    )
    assert (usual.others == other.others).all() and (usual.next_others == other.next_others).all()


def test_before_the_newest_decisions_the_next_actions_are_unknown():
    batch = at(reader(played(STEPS, decide_last=False), [[[0], [1]]], NEEDS, one_reward=False), [4, 7], [0, 0])
    assert batch.members[0].weight.tolist() == [[1, 0], [1, 0]]
    everyone = at(reader(played(STEPS, decide_last=False), [[[0], [1], [2]]], NEEDS, one_reward=False), [3, 7], [0, 0])
    assert everyone.others is None and everyone.members[0].weight[0].tolist() == [1, 1]
