"""The one-hot of the observing player: its place in observations and batches, and acting outside a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.core.layout import Layout
from marltrain.policies.batches.player_one_hot import IdentifiedLayout, identified
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.needs import Needs
from tests.policies.memory.worlds import Record, World, drive, two_groups
from tests.policies.some_batches import VECTOR

NAMES = ("a", "b", "c")
FEW: dict[str, Any] = {"network": mt.MLP((5,)), "seed": 0}
CAMERA = spaces.Box(0, 255, (2, 2), np.uint8)


def test_the_one_hot_ends_the_vector_and_images_stay():
    vector, numbers = np.array([[[1, 2]], [[3, 4]]], np.float32), np.array([[2], [-1]])
    expected = [[[1, 2, 0, 0, 1]], [[3, 4, 0, 0, 0]]]
    box = spaces.Box(-9, 9, (2,), np.float32)
    np.testing.assert_array_equal(identified(Layout(box), vector, numbers, 3), expected)
    camera = np.full((2, 1, 2, 2), 7, np.uint8)
    both = Layout(spaces.Dict({"camera": CAMERA, "speed": box}))
    seen: Any = identified(both, {"vector": vector, "camera": camera}, numbers, 3)
    np.testing.assert_array_equal(seen["vector"], expected)
    assert seen["camera"] is camera
    alone: Any = identified(Layout(CAMERA), camera, numbers, 3)
    np.testing.assert_array_equal(alone["vector"], np.array(expected)[..., 2:])
    for space, arrays in ((box, identified(Layout(box), vector, numbers, 3)), (both.space, seen), (CAMERA, alone)):
        layout = IdentifiedLayout(space, 1, NAMES)
        shown = arrays if isinstance(arrays, dict) else {"vector": arrays}
        assert {name: (array.shape[2:], array.dtype) for name, array in shown.items()} == layout.shapes
        assert layout.single == (not isinstance(arrays, dict))


class Noted(World):
    """A world that notes which player sees each number."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.seer = {}

    def _see(self, p, e, last=False):
        seen = super()._see(p, e, last)
        self.seer[self.count] = self.spec.names[p]
        return seen


@pytest.mark.parametrize("seats", [[[0], [2]], [[2, 0]]])
def test_rows_hold_the_player_that_observed(seats):
    """The group's players are a and c; c is the first of the identity. Turns, deaths and ends of both kinds."""
    identity = ("c", "b", "a")
    world = Noted(two_groups(), 3, 1)
    streams = Streams(world.spec, 3, {0: Storage(7), 1: Storage(7)})
    kinds = {"on_policy": True}, {"on_policy": False, "n_step": 3}, {"on_policy": False, "sequence": 2}
    readers = [streams.reader(seats, Needs(identity=identity, **more)) for more in kinds]
    rngs, gamma, seen = [np.random.default_rng(k) for k in range(len(seats))], np.full(len(seats), 0.5), set()

    def hold(obs, where=True):
        for row in obs[where].reshape(-1, 5):
            name = world.seer[int(row[0])]
            np.testing.assert_array_equal(row, [row[0], -row[0], name == "c", name == "b", name == "a"])
            seen.add(name)

    def on_step(t):
        if t % 11 == 10:
            rollout, batch, sequences = readers[0].take(gamma), *(one.sample(rngs, gamma, 20) for one in readers[1:])
            for result in (rollout, sequences):
                hold(result.obs, result.weight > 0)
                hold(result.boot_obs)
            hold(batch.obs)
            hold(batch.next_obs)

    drive(world, streams, Record(world.spec, 3), on_step, 80)
    assert seen == {"a", "c"}


@pytest.mark.parametrize("make", [mt.PPO, mt.DQN])
def test_an_agent_acts_for_the_player_that_it_is_given(make):
    """It is the agent of a wider space whose last numbers are the one-hot."""
    wide = spaces.Box(-1, 1, (VECTOR.shape[0] + 3,), np.float32)
    agent: Any = make(VECTOR, spaces.Discrete(5), identity=NAMES, **FEW)
    plain: Any = make(wide, spaces.Discrete(5), **FEW)
    seen = np.random.default_rng(3).uniform(-1, 1, (30, *VECTOR.shape)).astype(np.float32)
    names = [NAMES[i % 3] for i in range(30)]
    expected = plain.act(np.concatenate([seen, np.eye(3, dtype=np.float32)[np.arange(30) % 3]], 1))
    np.testing.assert_array_equal(agent.act(seen, player=names), expected)
    assert [agent.act(one, player=name) for one, name in zip(seen, names, strict=True)] == expected.tolist()
    assert (agent.act(seen, player="a") != agent.act(seen, player="c")).any()
    np.testing.assert_array_equal(mt.FrozenAgent(agent).act(seen, player=names), expected)


def test_a_saved_agent_knows_its_players(tmp_path):
    agent: Any = mt.PPO(VECTOR, spaces.Discrete(5), identity=NAMES, **FEW)
    mt.save(tmp_path / "agents", [agent, mt.FrozenAgent(agent)])
    seen = np.random.default_rng(3).uniform(-1, 1, (30, *VECTOR.shape)).astype(np.float32)
    for backend in ("torch", "tensorflow"):
        for loaded in mt.load(tmp_path / "agents", backend=backend):
            assert loaded.identity == NAMES
            chosen = [result.act(seen, player="b") for result in (loaded, agent)]
            np.testing.assert_array_equal(*chosen)


def test_agents_of_other_players_get_another_learner():
    kinds = {
        mt.PPO(VECTOR, spaces.Discrete(5), identity=names, **FEW).kind for names in ((), NAMES, NAMES[::-1], ("a",))
    }
    assert len(kinds) == 4


@pytest.mark.parametrize(
    ("player", "told"),
    [(None, "needs player=, one of a, b, c, or one for each of 2 rows, got None"), ("d", "got 'd'"), (1, "got 1"),
     (["a"], r"got \['a'\]")],
)  # fmt: skip
def test_an_unknown_player_is_refused(player, told):
    agent = mt.PPO(VECTOR, spaces.Discrete(5), identity=NAMES, **FEW)
    with pytest.raises(AgentError, match=told):
        agent.act(np.zeros((2, *VECTOR.shape), np.float32), player=player)


def test_a_player_without_identity_is_refused():
    agent = mt.PPO(VECTOR, spaces.Discrete(5), **FEW)
    with pytest.raises(AgentError, match="got player='a', but the agent has no identity"):
        agent.act(np.zeros(VECTOR.shape, np.float32), player="a")


@pytest.mark.parametrize(
    ("identity", "told"), [("ab", "a tuple of players' names, got 'ab'"), ([1], "names, got"), (["a", "a"], "once")]
)
def test_a_wrong_identity_is_refused(identity, told):
    with pytest.raises(ConfigError, match=told):
        mt.PPO(VECTOR, spaces.Discrete(5), identity=identity, **FEW)


def test_demonstrations_have_no_identity():
    seen = np.zeros((4, *VECTOR.shape), np.float32)
    data = mt.Demonstrations.from_arrays(VECTOR, spaces.Discrete(5), seen, np.zeros(4, int))
    with pytest.raises(ConfigError, match="do not tell which of the players a, b, c observed"):
        mt.BC(VECTOR, spaces.Discrete(5), demonstrations=data, identity=NAMES, **FEW)
