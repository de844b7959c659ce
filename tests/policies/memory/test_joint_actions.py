"""Joint actions of rows, in random worlds and by hand: those of the other players at the same batch step."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.errors import AgentError, ConfigError, MarlTrainError
from marltrain.core.layout import Layout
from marltrain.core.spec import EnvSpec, PlayerSpec
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.config import Replay
from marltrain.policies.memory.joint_actions import joint_action_size
from marltrain.policies.memory.needs import Needs
from tests.policies.memory.worlds import VECTOR, Record, World, blank, drive, one_group, two_groups

ENVS = 3
NEEDS = Needs(on_policy=True, joint_actions=10)
WIDTHS = {"a": (0, 3), "b": (3, 2), "c": (5, 3), "d": (8, 2)}
"""Of each player of `two_groups`: where its block begins, and its width."""


class Noted(World):
    """A world that notes the batch step of each number that is seen, and the actions of each batch step."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.time, self.moments, self.played = -1, {}, {}

    def _see(self, p, e, last=False):
        seen = super()._see(p, e, last)
        self.moments[self.count] = (self.time, self.spec.names[p], e)
        return seen

    def next_step(self, first=False, anew=()):
        self.time += 1
        return super().next_step(first, anew)

    def decide(self, group):
        action, extras = super().decide(group)
        for row, p in enumerate(self.spec.groups[group].players):
            for e in np.flatnonzero(self.step.turn[group][row]):
                self.played[self.time, self.spec.names[p], e] = int(action[row, e])
        return action, extras

    def expected(self, count):
        """The joint action without that of the player who sees a number."""
        time, own, e = self.moments[count]
        joint = np.zeros(10)
        for name, (start, _) in WIDTHS.items():
            if name != own and (time, name, e) in self.played:
                joint[start + self.played[time, name, e]] = 1
        return joint


@pytest.mark.parametrize(("seed", "seats"), [(0, [[0], [2]]), (1, [[0, 2]]), (2, [[3]])])
def test_rows_hold_what_the_others_did_at_the_same_batch_step(seed, seats):
    """Turns, deaths, absences, restarts; the rings are smaller than a rollout and of different sizes."""
    world = Noted(two_groups(), ENVS, seed)
    streams = Streams(world.spec, ENVS, {0: Storage(9, joint_actions=True),
                                         1: Storage(2, joint_actions=True)})  # fmt: skip
    reader, seen = streams.reader(seats, NEEDS), []

    def on_step(t):
        if t % 11 == 10:
            rollout = reader.take(np.full(len(seats), 0.5))
            for obs, others in zip(rollout.obs[rollout.weight > 0], rollout.others[rollout.weight > 0], strict=True):
                np.testing.assert_array_equal(others, world.expected(int(obs[0])))
                seen.append(others)

    drive(world, streams, Record(world.spec, ENVS), on_step, 150, resets=(60,), cuts=((33, [1]), (90, [0, 2])))
    assert len(seen) > 90
    counts = np.array(seen).sum(1)
    assert {0.0, 1.0, 2.0, 3.0} == set(counts.tolist())
    assert streams.rings[0].capacity <= 72 and streams.rings[1].capacity <= 72  # taken rows are overwritten


def test_actions_of_every_kind_by_hand():
    """Players u (5, 6 or 7), v (two wheels), w (a Box) in one batch step; w is absent in the second one."""
    kinds = {"u": spaces.Discrete(3, start=5), "v": spaces.MultiDiscrete([2, 3]), "w": spaces.Box(-9, 9, (1, 2))}
    spec = EnvSpec.of("world", [PlayerSpec(name, VECTOR, kind, Layout(VECTOR)) for name, kind in kinds.items()])
    assert joint_action_size(spec) == 3 + 5 + 2
    streams = Streams(spec, 1, {g: Storage(4, joint_actions=True) for g in range(3)})
    readers = [streams.reader([[p]], NEEDS) for p in range(3)]
    actions = [np.array([[2]]), np.array([[[1, 0]]]), np.array([[[0.5, -4]]], np.float32)]
    for t in range(3):
        step = blank(spec)
        for g in range(3):
            step.turn[g][:] = g < 2 or t != 1
        streams.record_step(step)
        if t < 2:
            for g, action in enumerate(actions):
                streams.record_actions(g, action, {})
    taken = [reader.take(np.ones(1)).others[0].tolist() for reader in readers]
    u, v, w, no = [0, 0, 1], [0, 1, 1, 0, 0], [0.5, -4], [0.0]
    assert taken[0] == [no * 3 + v + w, no * 3 + v + no * 2]
    assert taken[1] == [u + no * 5 + w, u + no * 5 + no * 2]
    assert taken[2] == [u + v + no * 2]


def test_what_is_not_stored_is_not_read():
    streams = Streams(two_groups(), 1, {0: Storage(4), 1: Storage(4)})
    with pytest.raises(AgentError, match="joint actions are needed but not stored"):
        streams.reader([[0]], NEEDS)
    streams = Streams(one_group(), 1, {0: Storage(4, joint_actions=True)})
    for more in ({"on_policy": False}, {"on_policy": True, "sequence": 2}, {"on_policy": True, "replay": Replay()}):
        with pytest.raises(ConfigError, match="for rollouts without earlier rows"):
            streams.reader([[0]], Needs(joint_actions=9, **more))
    with pytest.raises(ConfigError, match="joint actions need the rings of all groups, and group 1 is not recorded"):
        Streams(two_groups(), 1, {0: Storage(4, joint_actions=True)})


def test_a_batch_step_that_a_ring_has_overwritten_is_an_error():
    world = World(two_groups(), 1, 0, dense=True)
    streams = Streams(world.spec, 1, {0: Storage(20, joint_actions=True), 1: Storage(2)})
    drive(world, streams, Record(world.spec, 1), lambda t: None, 9)
    ring = streams.rings[0]
    assert ring.joint is not None
    with pytest.raises(MarlTrainError, match="group 1 no longer holds batch step 0"):
        ring.joint.of_others(ring, np.array([[0]]))
