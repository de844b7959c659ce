"""Agents that a user holds: acting, spaces, and those that never learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError, SpecError
from marltrain.core.layout import Layout
from marltrain.envs import probe, resolve
from tests.toys import Crowd, Motley, Relay
from tests.trainer.running import trainer

BOX = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = [
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
    spaces.Box(-2, 3, (2, 2), np.float32),
    spaces.Box(0.1, 0.1 + 1e-8, (2,), np.float64),
    spaces.Box(-np.inf, np.inf, (2,), np.float32),
    spaces.Box(np.array([0.0, -np.inf], np.float32), np.array([np.inf, 1.0], np.float32)),
]


@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_random_actions_lie_in_the_space(space):
    agent = mt.RandomAgent(BOX, space, seed=0)
    batch = agent.act(np.zeros((200, 3), np.float32))
    assert all(space.contains(space.dtype.type(a) if isinstance(space, spaces.Discrete) else a) for a in batch)
    assert np.shape(agent.act(np.zeros(3, np.float32))) == (space.shape or ())
    if isinstance(space, spaces.Discrete):
        assert set(batch) == {-1, 0, 1}


def test_random_legal_actions_are_uniform():
    agent = mt.RandomAgent(BOX, spaces.Discrete(4), seed=0)
    taken = agent.act(np.zeros((3000, 3), np.float32), np.tile([True, False, True, True], (3000, 1)))
    shares = np.bincount(taken, minlength=4) / 3000
    assert shares[1] == 0
    assert np.abs(shares[[0, 2, 3]] - 1 / 3).max() < 0.044  # five standard deviations


def test_a_random_agents_seed_is_its_stream():
    def actions(seed):
        return mt.RandomAgent(BOX, spaces.Discrete(9), seed=seed).act(np.zeros((30, 3))).tolist()

    assert actions(0) == actions(0)
    assert actions(0) != actions(1)
    assert actions(None) != actions(None)


def test_a_function_is_given_one_observation_and_its_legal_moves_where_there_are_any():
    seen = []

    def one(*given):
        seen.append(given)
        return 1

    agent = mt.FunctionAgent(one, spaces.Dict({"a": BOX, "b": spaces.Discrete(2)}), spaces.Discrete(2))
    observation = {"a": np.array([0.5, 0.0, -1.0], np.float32), "b": 1}
    assert agent.act(observation) == 1
    (given,) = seen.pop()
    assert given["a"].tolist() == [0.5, 0.0, -1.0]
    assert given["b"] == 1
    assert agent.act(observation, [True, True]) == 1
    assert seen.pop()[1].tolist() == [True, True]
    batch = {"a": np.zeros((3, 3), np.float32), "b": np.array([0, 1, 1])}
    assert agent.act(batch).tolist() == [1, 1, 1]
    assert [given["b"] for (given,) in seen] == [0, 1, 1]
    not_a_function: Any = 3
    with pytest.raises(AgentError, match="needs a function, got 3"):
        mt.FunctionAgent(not_a_function)


def test_a_function_must_take_what_its_seat_is_shown():
    relay, crowd = probe(resolve(Relay)).players[0], probe(resolve(Crowd)).players[0]
    mt.FunctionAgent(lambda observation: 0).sit(crowd, 0)
    mt.FunctionAgent(lambda observation, legal: 0).sit(relay, 0)
    with pytest.raises(mt.ConfigError, match=r"FunctionAgent: function is called as .*\(observation, legal\), but"):
        mt.FunctionAgent(lambda observation: 0).sit(relay, 0)
    with pytest.raises(mt.ConfigError, match=r"FunctionAgent: function is called as .*\(observation\), but what was"):
        mt.FunctionAgent(lambda: 0).sit(crowd, 0)


@pytest.mark.parametrize("given", [3, None, mt.RandomAgent])
def test_only_an_agent_is_frozen(given):
    with pytest.raises(AgentError, match="FrozenAgent: agent must be an Agent, got"):
        mt.FrozenAgent(given)


def test_without_a_seat_there_are_no_spaces():
    for agent in (mt.RandomAgent(), mt.FunctionAgent(lambda o: 0)):
        with pytest.raises(AgentError, match="has no seat yet"):
            agent.act(np.zeros(3))


def test_observations_that_do_not_fit():
    agent = mt.PPO(BOX, spaces.Discrete(2), seed=0)
    for wrong in (np.zeros(4), np.zeros((2, 4)), np.zeros((2, 2, 3)), 0.0):
        with pytest.raises(SpecError, match="has shape"):
            agent.act(wrong)
    mapped = mt.PPO(spaces.Dict({"a": BOX, "b": BOX}), spaces.Discrete(2), seed=0)
    with pytest.raises(SpecError, match="has no part 'b'"):
        mapped.act({"a": np.zeros(3)})


@pytest.mark.parametrize(
    ("space", "seen", "message"),
    [
        (spaces.Box(0, 255, (4, 4), np.uint8), np.full((4, 4), 0.5), r"entry \(0, 0\) is 0\.5"),
        (spaces.Discrete(3, start=2), 5, "the value is 5, expected a whole number from 2 to 4"),
        (spaces.MultiBinary(2), [[0, 1], [0, 7]], "row 1: entry 1 is 7"),
        (BOX, [0, 0, np.nan], "entry 2 is nan"),
        (BOX, [0, 1e300, 0], r"entry 1 is 1e\+300"),
    ],
)
def test_an_agent_refuses_values_that_it_would_not_see(space, seen, message):
    for agent in (
        mt.PPO(space, spaces.Discrete(2), seed=0),
        mt.FunctionAgent(lambda observation: 0, space, spaces.Discrete(2)),
        mt.RandomAgent(space, spaces.Discrete(2), seed=0),
    ):
        with pytest.raises(SpecError, match=f"observation leaves its space .*{message}"):
            agent.act(seen)


@pytest.mark.parametrize("legal", [[1, 2], [0.5, 1], [np.nan, 1], [-1, 1], ["1", "1"]])
def test_legal_moves_are_true_or_false(legal):
    agent = mt.FunctionAgent(lambda observation, legal: int(legal.argmax()), BOX, spaces.Discrete(2))
    with pytest.raises(SpecError, match="legal must hold True and False, or 1 and 0, for each action, got"):
        agent.act(np.zeros(3), legal)
    assert agent.act(np.zeros(3), [0.0, 1.0]) == 1


def test_an_agent_must_define_act():
    class Empty(mt.Agent):
        pass

    with pytest.raises(TypeError, match="Empty must define act"):
        Empty().act(np.zeros(3))
    assert not Empty().learns
    with pytest.raises(AgentError, match=r"player 'ann': a Empty cannot play: its class must define act\("):
        Empty().sit(probe(resolve(Relay)).players[0], 0)


@pytest.mark.parametrize("key", ["observation", "board"])
def test_a_mask_beside_one_part_leaves_that_part_alone_for_layout_and_agent_alike(key):
    """What an environment's layout decodes is what an agent made for its space encodes."""

    class Named(Relay):
        def __init__(self):
            super().__init__()
            seen = spaces.Dict(
                {key: spaces.Box(-1, 1000, (3,), np.float32), "action_mask": spaces.Box(0, 1, (3,), np.int8)}
            )
            self._seen = dict.fromkeys(self.possible_agents, seen)

        def observe(self, agent):
            observation = super().observe(agent)
            return {key: observation["observation"], "action_mask": observation["action_mask"]}

    seen = []

    class Asking(mt.Agent):
        def act(self, observation, legal=None, explore=False):
            seen.append(observation)
            return legal.argmax(-1)

    agent: Any = mt.make_agents("ppo", Named, seed=0)[2]
    run = trainer(Named, steps_per_train=12)
    run.train([Asking(), mt.RandomAgent(), agent], [0, 0, 1], plot=False)
    player: Any = probe(resolve(Named, {})).players[0]
    assert list(player.layout.shapes) == list(agent.layout.shapes)
    data = seen[0] if key == "observation" else seen[0].pop(key)
    assert data.shape[1:] == (3,)
    assert key == "observation" or not seen[0]


# Frozen copies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [mt.PPO, mt.DQN])
def test_a_frozen_copy_acts_as_the_agent_did_and_stays_so(make):
    agent = make(BOX, spaces.Discrete(4), seed=0)
    observation = np.random.default_rng(0).uniform(-1, 1, (30, 3)).astype(np.float32)
    frozen, before = mt.FrozenAgent(agent), agent.act(observation).tolist()
    again = mt.FrozenAgent(frozen)
    state = agent.learner_.export(0)
    for name, array in state.arrays.items():
        if "net/" in name:
            array[...] = -array
    agent.learner_.load(0, state)
    assert agent.act(observation).tolist() != before
    assert frozen.act(observation).tolist() == before
    assert frozen.act(observation, explore=True).tolist() == before
    on = np.ones(30, bool)
    decided = frozen.decide(observation, None, None, turn=on, explore=on, rng=np.random.default_rng(0))
    assert decided.action.tolist() == before
    assert again.act(observation).tolist() == before
    assert not frozen.learns


def test_freezing_takes_any_agent():
    class Growing(mt.Agent):
        number = 0

        def act(self, observation, legal=None, explore=False):
            return np.full(len(observation), self.number)

        def update(self, env_steps):
            self.number += 1
            return {}

    agent = Growing()
    assert agent.learns
    frozen = mt.FrozenAgent(agent)
    agent.update(5)
    assert agent.act(np.zeros((2, 3))).tolist() == [1, 1]
    assert frozen.act(np.zeros((2, 3))).tolist() == [0, 0]
    assert not frozen.learns


# States ---------------------------------------------------------------------------------------------------------------


def test_a_state_is_everything_in_plain_values():
    agent = mt.DQN(BOX, spaces.Discrete(2), seed=3, epsilon=mt.linear(1.0, 0.1, 50), network=mt.MLP(hidden=(4,)))
    state = agent.state()
    assert state.info["type"] == "dqn"
    assert state.info["settings"]["network"] == {"network": {"type": "MLP", "hidden": (4,), "activation": "tanh"}}
    assert {"net/q/hidden0.weight", "net/target_q/head0.bias", "optimizer/q/first"} <= set(state.arrays)
    flat = agent.state_dict()
    assert flat["info"] == state.info
    assert (flat["net/q/hidden0.weight"] == state.arrays["net/q/hidden0.weight"]).all()
    twin = mt.DQN.from_state(state, {}, None)
    observation = np.random.default_rng(0).uniform(-1, 1, (30, 3)).astype(np.float32)
    assert twin.act(observation, explore=True).tolist() == agent.act(observation, explore=True).tolist()
    assert twin.hyper.epsilon == agent.hyper.epsilon


def test_every_kind_of_player_can_be_random():
    for env in (Crowd, Motley, Relay):
        spec = probe(resolve(env, {}))
        for player in spec.players:
            agent = mt.RandomAgent()
            agent.sit(player, 7)
            assert agent.layout is player.layout
            assert isinstance(agent.layout, Layout)
            assert agent.seed == 7


@pytest.mark.parametrize("explore", ["False", ["False"], [True, True], 0.5, 7, [-1], None])
def test_exploring_is_true_or_false(explore):
    """Text would count as true."""
    agent = mt.PPO(spaces.Box(-1, 1, (2,)), spaces.Discrete(2), network=mt.MLP((4,)), seed=0)
    with pytest.raises(AgentError, match="explore must be True or False, or one of these for each of 1 rows, got"):
        agent.act(np.zeros(2, np.float32), explore=explore)
    assert agent.act(np.zeros((2, 2), np.float32), explore=np.array([True, False])).shape == (2,)
