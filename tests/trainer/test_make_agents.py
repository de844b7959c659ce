"""make_agents: one agent per player, by one algorithm or several; errors name the player."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from torch import nn

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.trainer.make_agents import make_agents
from tests.gymnasium_toys import MaskedByInfo
from tests.toys import Crowd, Identity, Motley, Relay
from tests.trainer.running import SMALL, changed, weights


def test_one_agent_per_player_or_per_kind():
    separate = mt.make_agents("ppo", Crowd, seed=0)
    assert len({id(agent) for agent in separate}) == 3
    shared = mt.make_agents("ppo", Crowd, seed=0, share=True)
    assert shared[0] is shared[2]
    assert shared[0] is not shared[1]
    assert [agent.action_space for agent in separate] == [
        spaces.Discrete(3),
        spaces.Discrete(2, start=5),
        spaces.Discrete(3),
    ]
    assert all(isinstance(agent, mt.RandomAgent) for agent in mt.make_agents("random", Motley))
    assert [type(agent) for agent in mt.make_agents("dqn", MaskedByInfo)] == [mt.DQN]


def test_settings_apply_to_every_agent():
    agents: list[Any] = mt.make_agents("dqn", Relay, n_step=3, epsilon=0.2, seed=4)
    assert [(agent.hyper.n_step, agent.hyper.epsilon) for agent in agents] == [(3, 0.2)] * 3


def test_seed_of_an_agent_depends_on_its_place():
    """A game with an additional player has the same weights for the first players; 0 is a valid seed."""
    two, three, other = (
        weights(mt.make_agents("ppo", Identity, env_args={"players": n}, seed=seed))
        for n, seed in ((2, 0), (3, 0), (2, 1))
    )
    assert changed(two, three[:2]) == [False, False]
    assert changed(two, other) == [True, True]
    assert changed(two[:1], two[1:]) == [True]
    free = [weights(mt.make_agents("ppo", Identity)) for _ in range(2)]
    assert changed(*free) == [True, True]


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("pppo", {}, "no algorithm is called 'pppo'. Did you mean 'ppo'?"),
        ("dqn", {"clip": 0.1}, "DQN has no setting 'clip'"),
        ("dqn", {"n_step": 0}, "DQN: n_step must be at least 1, got 0"),
        ("ppo", {"backend": "touch"}, "backend must be one of"),
        ("random", {"epsilon": 0.1}, "name: a 'random' agent has no settings, got epsilon"),
        (np.array(["ppo"]), {}, "name: no algorithm is called array(['ppo']"),
        ("ppo", {"share": np.ones(2)}, "make_agents: share must be True or False, got array([1., 1.])"),
        ("ppo", {"frame_stack": 2}, "make_agents: frame_stack is set by the environment: leave it out"),
        ("ppo", {"device": 3}, "PPO: device must be a string, got 3"),
        ("ppo", {"backend": ["torch"]}, "PPO: backend must be a string, got ['torch']"),
        ("ppo", {"jit_compile": 1}, "PPO: jit_compile must be True or False or 'require', got 1"),
        ("ppo", {"learning_rate": float("inf")}, "PPO: learning_rate must be at most 10.0, got inf"),
        ("dqn", {"update_per_step": 1e300}, "DQN: update_per_step must be at most 10000, got 1e+300"),
        ("dqn", {"n_step": 10**9}, "DQN: n_step must be at most 10000, got 1000000000"),
    ],
)
def test_invalid_arguments(name, settings, words):
    with pytest.raises(ConfigError) as caught:
        make_agents(name, Identity, **settings)
    assert words in str(caught.value)


def test_settings_accept_numpy_numbers():
    given: dict[str, Any] = {"learning_rate": np.float32(0.5), "gamma": np.float64(0.5), "epochs": np.int64(3)}
    ends: dict[str, Any] = {"start": np.float32(0.5), "stop": np.int64(1), "steps": np.int32(20)}
    given |= {"share": np.True_, "seed": np.int64(1), "clip": mt.linear(**ends)}
    agents: list[Any] = list(make_agents("ppo", Identity, **given))
    settings = agents[0].state().info["settings"]
    json.dumps(settings)
    assert (settings["learning_rate"], settings["epochs"], settings["clip"]["schedule"]["steps"]) == (0.5, 3, 20)
    assert agents[0] is agents[1]
    agents[0].hyper.learning_rate = np.float32(0.25)
    assert agents[0].hyper.learning_rate == 0.25


def test_dqn_refuses_box_actions():
    with pytest.raises(mt.SpecError, match="DQN needs a Discrete action space, got MultiDiscrete"):
        make_agents("dqn", Motley)


# Each player its own --------------------------------------------------------------------------------------------------


def kinds(agents):
    return [type(agent).__name__ for agent in agents]


def made(name, env=Crowd, **settings) -> list[Any]:
    return list(make_agents(name, env, seed=0, **settings))


def test_names_and_patterns_select_algorithm_and_settings():
    agents = made({"red_*": ("ppo", {"epochs": 2, "gamma": 0.5}), "blue": "dqn"}, gamma=0.9)
    assert kinds(agents) == ["PPO", "DQN", "PPO"]
    assert [agent.hyper.gamma for agent in agents] == [0.5, 0.9, 0.5]  # an entry's own settings take precedence
    assert [agent.hyper.epochs for agent in (agents[0], agents[2])] == [2, 2]
    assert kinds(made({"*": "ppo", "red_1": "random"})) == ["PPO", "PPO", "RandomAgent"]
    assert kinds(made({"[br]*[!1]": "ppo", "red_?": "dqn", "red_0": mt.RandomAgent})) == ["RandomAgent", "PPO", "DQN"]


def test_list_has_one_entry_per_player():
    agents = made(["ppo", ("dqn", {"n_step": 3}), mt.RandomAgent])
    assert kinds(agents) == ["PPO", "DQN", "RandomAgent"]
    assert agents[1].hyper.n_step == 3
    assert kinds(made((mt.DQN, {"n_step": 2}))) == ["DQN"] * 3
    assert made(("dqn", "ppo", "ppo"), backend="torch")[1].backend.name == "torch"


@pytest.mark.parametrize("share", [False, True])
def test_mapping_of_one_algorithm_equals_its_name(share):
    plain = weights(made("ppo", share=share, network=SMALL))
    for name in ({"*": "ppo"}, {"red_*": ("ppo", {"network": SMALL}), "blue": mt.PPO}):
        assert changed(plain, weights(made(name, share=share, network=SMALL))) == [False] * 3
    mixed = made({"red_1": "dqn", "*": "ppo"}, network=SMALL)
    assert changed(weights(made("ppo", network=SMALL))[:2], weights(mixed[:2])) == [False] * 2
    assert mixed[2].seed == made("dqn")[2].seed


def test_players_of_one_entry_and_equal_spaces_share():
    four = {"players": 4}
    first, second, third, last = make_agents({"*[01]": "ppo", "*[23]": "ppo"}, Identity, env_args=four, share=True)
    assert first is second
    assert third is last
    assert first is not third
    red, blue, other = made({"*": "ppo"}, share=True)
    assert red is other
    assert blue is not red


class Own(mt.Agent):
    """Accepts the spaces and the seed as keywords, and another setting."""

    def __init__(self, action_space, seed, boldness=0):
        self.given, self.boldness = (action_space, seed), boldness


def test_custom_class_receives_the_arguments_of_its_constructor():
    agents = made({"red_*": (Own, {"boldness": 3}), "blue": Own})
    assert [agent.given[0].n for agent in agents] == [3, 2, 3]
    assert [agent.boldness for agent in agents] == [3, 0, 3]
    assert [agent.given[1] for agent in agents] == [agent.seed for agent in made("random")]


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ({"red_*": "ppo"}, {}, "player 'blue' of Crowd is matched by none of the keys"),
        ({}, {}, "player 'red_0' of Crowd is matched by none of the keys; every player must be matched once"),
        ({"RED_*": "ppo", "blue": "ppo"}, {}, "player 'red_0' of Crowd is matched by none"),
        ({"red_*": "ppo", "*": "dqn"}, {}, "player 'red_0' of Crowd is matched by 2 patterns ('red_*', '*')"),
        ({"*": "ppo", "bleu": "dqn"}, {}, "no player of Crowd is left for the key 'bleu'. Did you mean 'blue'?"),
        ({"*": "ppo", "green_*": "dqn"}, {}, "left for the key 'green_*'. Players: red_0, blue, red_1"),
        ({"blue": "ppo", "b*": "dqn", "red_*": "dqn"}, {}, "no player of Crowd is left for the key 'b*'"),
        ({"*": "pppo"}, {}, "name['*']: no algorithm is called 'pppo'. Did you mean 'ppo'?"),
        ({"*": 3}, {}, "name['*']: no algorithm is called 3"),
        ({3: "ppo"}, {}, "name: keys are players' names or patterns, got 3"),
        (["ppo", "dqn"], {}, "Crowd has 3 players (red_0, blue, red_1), got a list of 2"),
        (["ppo", "dqn", "dqo"], {}, "name[2]: no algorithm is called 'dqo'. Did you mean 'dqn'?"),
        (["ppo"] * 3, {"share": True}, "a list has one entry per player"),
        ({"red_*": "ppo", "blue": "dqn"}, {"clip": 0.1}, "player 'blue': DQN has no setting 'clip'. It has:"),
        ({"red_*": "dqn", "blue": ("ppo", {"clip": -1})}, {}, "player 'blue': PPO: clip must be greater than 0"),
        ({"*": ("ppo", {"seed": 3})}, {}, "name['*']: seed is an argument of make_agents"),
        ({"*": ("ppo", {"frame_stack": 3})}, {}, "frame_stack is set by the environment"),
        ({"*": "ppo", "blue": "random"}, {"gamma": 0.5}, "name['blue']: a 'random' agent has no settings, got gamma"),
        (mt.PPO(spaces.Discrete(3), spaces.Discrete(3)), {}, "is an agent already: give its class"),
        (mt.LearningAgent, {}, "name: LearningAgent names no algorithm: set algorithm_class"),
        (("ppo", {3: 4}), {}, "player 'red_0': its PPO cannot be made: TypeError"),
        (make_agents, {}, "name: no algorithm is called <function make_agents"),
        (mt.Algorithm, {}, "Algorithm is an Algorithm, which an agent class holds: define one, class Mine("),
        ((Own, {"boldnes": 1}), {}, "player 'red_0': its Own cannot be made: TypeError"),
    ],
)
def test_invalid_entries(name, settings, words):
    with pytest.raises((ConfigError, AgentError)) as caught:
        made(name, **settings)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (nn.Sequential(nn.LazyLinear(8), nn.LazyLinear(3)), "module Sequential has parameters without a shape yet"),
        (nn.Linear(2, 3), "module Linear cannot take this player's observations, of shapes {'vector': (2, 3)}"),
        (lambda: nn.Linear(3, 1 // 0), "its DQN cannot be made: ZeroDivisionError: "),
    ],
)
def test_error_of_a_network_names_player_and_remedy(network, words):
    with pytest.raises(AgentError) as caught:
        made({"red_*": "random", "blue": ("dqn", {"network": network})})
    assert str(caught.value).startswith("player 'blue': ")
    assert words in str(caught.value)
